"""A task's event time: the watermark after each of its records, from those of its sources.

Deterministic: it depends on the records in the task's order and on the journaled readings of the clock, which decide
idleness (a source is idle if no record of it came between two readings that are at least ``idle_ms`` apart). What a
restart needs is committed with the offsets (``saved``).

Through a repartition topic the watermark travels as a separate record in every partition, with a null key, a null value
and the header ``HEADER``; readers remove such records before any operator sees them.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from penstock.state.errors import StateCorruptedError
from penstock.state.log import Headers, Record
from penstock.streams.ports.chunk import Chunk, running_highest
from penstock.streams.task.event_time import decoded
from penstock.streams.task.feed import Run, between, in_turns
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import NO_TIME
from penstock.topologies.operator_api.watermark_strategies import (
    BoundedOutOfOrderness,
    Carried,
    Looped,
    Punctuated,
    WatermarkStrategy,
)
from penstock.topologies.operators.records.source_sink import SourceSpec

HEADER = "penstock.watermark"
_MARK = struct.Struct(">iiq??h")
_FAR = 1 << 62
_TASK = ""
"""Where the task's own watermark is saved: no topic has this name."""


class WatermarkMark(NamedTuple):
    """The announcement of one upstream task: it is ``writer`` of ``writers``, and has reached ``watermark_ms``, or is
    idle; or it has written all that its inputs held when it started (``caught_up``, which says nothing about time)."""

    writer: int
    writers: int
    watermark_ms: int
    idle: bool
    caught_up: bool = False
    round: int = 0
    """In a feedback topic: the round."""

    @property
    def headers(self) -> Headers:
        """The record's headers."""
        return ((HEADER, _MARK.pack(*self)),)


def mark_of(headers: Headers) -> WatermarkMark | None:
    """Return the mark in a record; ``None`` for a data record."""
    for name, value in headers:
        if name == HEADER:
            if value is None or len(value) != _MARK.size:
                raise StateCorruptedError(f"header {HEADER} holds {value!r:.60}; something else wrote to this topic")
            return WatermarkMark(*_MARK.unpack(value))
    return None


def with_marks(chunk: Chunk, source: SourceSpec, refused: Container[int]) -> tuple[Chunk, dict[int, str]]:
    """Return the chunk with the watermarks that the source's strategy reads from its records, if it does, and the
    errors by offset. Records whose timestamps were ``refused`` (by offset), or that cannot be decoded, are skipped."""
    strategy = source.watermark
    wrong: dict[int, str] = {}
    if isinstance(strategy, (Carried, Looped)) or source.waits_for_writers:
        if chunk.headers is not None:
            chunk.marks = [mark_of(h) if h else None for h in chunk.headers]
    elif isinstance(strategy, Punctuated):
        chunk.marks = [
            None if offset in refused else _punctuation(strategy, source, chunk, i, wrong)
            for i, offset in enumerate(chunk.offsets)
        ]
    return chunk, wrong


def _punctuation(strategy: Punctuated, source: SourceSpec, chunk: Chunk, i: int, wrong: dict[int, str]) -> int | None:
    headers = () if chunk.headers is None else chunk.headers[i]
    try:
        key, value = decoded(source.key_serde, chunk.keys[i]), decoded(source.value_serde, chunk.values[i])
    except Exception:  # not swallowed: the source operator decodes again and applies the policy
        return None
    try:
        stated: Any = strategy.fn(Record(key, value, chunk.timestamps[i], headers))
    except Exception as exc:
        wrong[chunk.offsets[i]] = f"the watermark function raised {type(exc).__name__}: {exc}"
        return None
    if stated is None or type(stated) is int:
        return stated
    wrong[chunk.offsets[i]] = (
        f"the watermark function returned {stated!r:.100}; it must return milliseconds as an int, or None"
    )
    return None


class _SourceTime:
    """The event time of one source."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        self.watermark_ms = NO_TIME
        self.idle = False
        self.fresh = False
        """Whether a record arrived since the last reading of the clock."""
        self.active_ms = NO_TIME
        """The reading at which it was last seen active."""
        self.writers: dict[int, tuple[int, bool]] = {}
        self.writer_count = 0

    def after(self, chunk: Chunk, start: int, stop: int) -> Ints:
        """Return the source's watermark after each record of a run. Not for other tasks' marks."""
        self.fresh, self.idle = True, False
        if isinstance(self.strategy, BoundedOutOfOrderness):
            less = self.strategy.delay_ms + 1
            marks: Ints = running_highest(chunk.times, start, stop, self.watermark_ms + less) - less
        else:
            assert chunk.marks is not None
            stated = [NO_TIME if m is None else m for m in chunk.marks[start:stop]]
            marks = np.maximum.accumulate(np.array([self.watermark_ms, *stated], np.int64))[1:]
        self.watermark_ms = int(marks[-1])
        return marks

    def take_mark(self, mark: WatermarkMark) -> None:
        """Add a writer's mark: the lowest counts, once all writers have sent one; idle ones do not. Tasks are only
        added."""
        self.writer_count = max(mark.writers, self.writer_count)
        self.writers[mark.writer] = (mark.watermark_ms, mark.idle)
        if len(self.writers) < self.writer_count:
            return
        running = [ms for ms, idle in self.writers.values() if not idle]
        self.idle = not running
        # if the last writer has become idle, nothing is held back any more
        reached = min(running) if running else max(ms for ms, _ in self.writers.values())
        self.watermark_ms = max(self.watermark_ms, reached)

    def read(self, now_ms: int) -> bool:
        """Note a reading of the clock; return whether the source became idle."""
        limit_ms = self.strategy.idle_ms
        if self.fresh or self.active_ms == NO_TIME:
            self.active_ms, self.fresh = now_ms, False
        elif limit_ms is not None and now_ms - self.active_ms >= limit_ms and not self.idle:
            self.idle = True
            return True
        return False


class _LoopClock(_SourceTime):
    """The event time of a feedback topic. The watermark of the task's other inputs is written to it as round 0. What
    all writers have sent in a round is written as the next round, after the records that went around meanwhile. After
    as many rounds as a record may take, no record up to it can arrive any more."""

    def __init__(self, strategy: Looped) -> None:
        super().__init__(strategy)
        self.rounds = strategy.rounds
        self.marks_by_round: list[dict[int, int]] = [{} for _ in range(self.rounds)]
        self.reached = [NO_TIME] * self.rounds

    def take_round(self, mark: WatermarkMark) -> WatermarkMark | None:
        """Add a writer's mark. Returns the mark to write for the next round (its writer is unknown here)."""
        self.writer_count = max(mark.writers, self.writer_count)
        said = self.marks_by_round[mark.round]
        said[mark.writer] = max(mark.watermark_ms, said.get(mark.writer, NO_TIME))
        lowest = min(said.values()) if len(said) == self.writer_count else NO_TIME
        if lowest <= self.reached[mark.round]:
            return None
        self.reached[mark.round] = lowest
        if mark.round + 1 == self.rounds:
            self.watermark_ms = max(self.watermark_ms, lowest)
            return None
        return WatermarkMark(-1, -1, lowest, False, round=mark.round + 1)


class TaskWatermarks:
    """The event time of one task. ``sources``: by topic."""

    def __init__(self, sources: Mapping[str, SourceSpec], saved: Mapping[str, list[Any]]) -> None:
        self._clocks = {t: _clock(s.watermark) for t, s in sources.items() if s.watermark is not None}
        self._looped = any(isinstance(c, _LoopClock) for c in self._clocks.values())
        self.base_by_place: list[int] = []
        """The watermark of the inputs other than feedback, after each input record of the batch. Kept with loops
        only."""
        self.relays: list[tuple[int, str, WatermarkMark]] = []
        """Marks to write to feedback topics: place in the batch, topic, mark. Kept with loops only."""
        for topic, clock in self._clocks.items():
            if topic in saved:
                clock.watermark_ms, clock.idle, clock.fresh, clock.active_ms, clock.writer_count, writers = saved[topic]
                if isinstance(clock, _LoopClock):
                    clock.reached = list(accumulate(reached for reached, _, _ in writers))
                    clock.marks_by_round = [
                        _unpacked(said, deltas, base)
                        for base, (_, said, deltas) in zip(clock.reached, writers, strict=True)
                    ]
                else:
                    said, deltas, idle = writers
                    clock.writers = {
                        w: (ms, w in idle) for w, ms in _unpacked(said, deltas, clock.watermark_ms).items()
                    }
        own = saved.get(_TASK, [NO_TIME])
        self.watermark_ms: int = own[0]
        self.sent: dict[str, tuple[int, int]] = {t: (ms, credit) for t, ms, credit in own[1:]}
        """By repartition topic: the watermark last sent to it, and the credit for marks (``WatermarkEmitter``)."""
        self.became_idle = False
        """Whether a source became idle at the last reading of the clock."""
        self.idle_by_place: list[bool] = []
        """Whether the task was idle after each input record of the batch."""
        self.said_by: list[tuple[int, int]] = []
        """The places of the batch at which another task announced its watermark, and how many tasks do."""
        self._settle()

    @property
    def idle(self) -> bool:
        """Whether every source is idle."""
        clocks = [c for c in self._clocks.values() if not isinstance(c, _LoopClock)]
        return bool(clocks) and all(c.idle for c in clocks)

    @property
    def strategies(self) -> bool:
        """Whether any source has a strategy; without one, stream time - 1 is the watermark."""
        return bool(self._clocks)

    @property
    def interval_ms(self) -> int:
        """The interval at which the watermark is sent to downstream tasks."""
        return min((c.strategy.interval_ms for c in self._clocks.values()), default=1)

    def idle_interval_ms(self) -> int | None:
        """How often the clock should be read for idleness; ``None``: never."""
        limits = [c.strategy.idle_ms for c in self._clocks.values() if c.strategy.idle_ms is not None and not c.idle]
        return None if not limits else max(min(limits) // 2, 1)

    def begin(self) -> None:
        """Start a new batch."""
        self.idle_by_place.clear()
        self.said_by.clear()
        self.base_by_place.clear()
        self.relays.clear()

    @property
    def base_ms(self) -> int:
        """The watermark of the inputs other than feedback."""
        running = [c.watermark_ms for c in self._clocks.values() if not c.idle and not isinstance(c, _LoopClock)]
        return min(running, default=NO_TIME)

    def after_all(self, runs: Sequence[Run]) -> Ints:
        """Begin a batch of these records, and return the task's watermark after each of them."""
        self.begin()
        if self._looped or all(r.places is None for r in runs):
            marks = [self.after(r.chunk.topic, r.chunk, r.start, r.stop) for r in in_turns(runs)]
            return marks[0] if len(marks) == 1 else np.concatenate([np.zeros(0, np.int64), *marks])
        parts: list[Ints] = []
        at = 0
        for place, chunk, i in self._announced(runs):
            parts += [self._after_merged(between(runs, at, place)), self.after(chunk.topic, chunk, i, i + 1)]
            at = place + 1
        count = sum(r.stop - r.start for r in runs)
        return np.concatenate([*parts, self._after_merged(between(runs, at, count))])

    def _announced(self, runs: Sequence[Run]) -> list[tuple[int, Chunk, int]]:
        """The records in which other tasks announce their watermarks, by place."""
        found: list[tuple[int, Chunk, int]] = []
        base = 0
        for r in runs:
            clock = self._clocks.get(r.chunk.topic)
            if clock is not None and isinstance(clock.strategy, Carried) and r.chunk.marks is not None:
                for behind, mark in enumerate(r.chunk.marks[r.start : r.stop]):
                    if mark is not None and not mark.caught_up:
                        place = base + behind if r.places is None else int(r.places[behind])
                        found.append((place, r.chunk, r.start + behind))
            base += r.stop - r.start
        return sorted(found, key=itemgetter(0))

    def _after_merged(self, runs: Sequence[Run]) -> Ints:
        """As ``after`` for each record in turn, of which none announces a watermark of another task."""
        was_idle, count, at = self.idle, sum(r.stop - r.start for r in runs), 0
        # per source: its watermark after each record, and from which one on it counts
        reached = {t: np.full(count, c.watermark_ms, np.int64) for t, c in self._clocks.items()}
        begins = {t: count if c.idle else 0 for t, c in self._clocks.items()}
        first = count
        for r in runs:
            topic, at = r.chunk.topic, at + r.stop - r.start
            places = np.arange(at - (r.stop - r.start), at) if r.places is None else r.places
            clock = self._clocks.get(topic)
            if clock is not None and not isinstance(clock.strategy, Carried):
                reached[topic][places] = clock.after(r.chunk, r.start, r.stop)
                begins[topic] = min(begins[topic], int(places[0]))
                first = min(first, int(places[0]))
        lowest = np.full(count, _FAR, np.int64)
        for topic, marks in reached.items():
            counting = slice(begins[topic], count)
            lowest[counting] = np.minimum(lowest[counting], np.maximum.accumulate(marks)[counting])
        lowest[:first] = NO_TIME  # nothing has changed so far
        found = np.maximum(np.maximum.accumulate(lowest), self.watermark_ms)
        self.watermark_ms = int(found[-1]) if count else self.watermark_ms
        self.idle_by_place += [was_idle] * first + [False] * (count - first)
        return found

    def after(self, topic: str, chunk: Chunk, start: int, stop: int) -> Ints:
        """Return the task's watermark after each record of a run; ``idle_by_place`` grows by as many."""
        if self._looped:
            return np.array(self._one_by_one(topic, chunk, start, stop), np.int64)
        clock = self._clocks.get(topic)
        if clock is None:
            self.idle_by_place += [self.idle] * (stop - start)
            return np.full(stop - start, self.watermark_ms)
        if isinstance(clock.strategy, Carried):
            return self._after_marks(clock, () if chunk.marks is None else chunk.marks[start:stop], stop - start)
        others = [c.watermark_ms for t, c in self._clocks.items() if t != topic and not c.idle]
        marks = clock.after(chunk, start, stop)
        if others:
            marks = np.minimum(marks, min(others))
        marks = np.maximum(marks, self.watermark_ms)
        self.watermark_ms = int(marks[-1])
        self.idle_by_place += [False] * len(marks)
        return marks

    def _one_by_one(self, topic: str, chunk: Chunk, start: int, stop: int) -> list[int]:
        """As ``after``, for a task with a feedback topic, which gets its other inputs' watermark at the right place."""
        clock = self._clocks.get(topic)
        out = []
        for i in range(start, stop):
            if isinstance(clock, _LoopClock):
                mark = None if chunk.marks is None else chunk.marks[i]
                if mark is not None and not mark.caught_up and (relay := clock.take_round(mark)) is not None:
                    self.relays.append((len(self.base_by_place), topic, relay))
            elif clock is not None and isinstance(clock.strategy, Carried):
                if chunk.marks is not None and (mark := chunk.marks[i]) is not None and not mark.caught_up:
                    clock.take_mark(mark)
                    self.said_by.append((len(self.idle_by_place), clock.writer_count))
            elif clock is not None:
                clock.after(chunk, i, i + 1)
            self._settle()
            out.append(self.watermark_ms)
            self.idle_by_place.append(self.idle)
            self.base_by_place.append(self.base_ms)
        return out

    def _after_marks(self, clock: _SourceTime, marks: Sequence[WatermarkMark | None], count: int) -> Ints:
        """As ``after``, for a source whose watermark comes from other tasks, which may become idle anywhere in a
        run of ``count`` records. Without ``marks`` none of them is one."""
        out = np.empty(count, np.int64)
        idle_by_place, first, done = self.idle_by_place, len(self.idle_by_place), 0
        # few records are marks
        for place, mark in [(i, m) for i, m in enumerate(marks) if m is not None and not m.caught_up]:
            out[done:place] = self.watermark_ms
            idle_by_place += [self.idle] * (place - done)
            clock.take_mark(mark)
            self.said_by.append((first + place, clock.writer_count))
            self._settle()
            done = place
        out[done:] = self.watermark_ms
        idle_by_place += [self.idle] * (count - done)
        return out

    def read_clock(self, now_ms: int) -> list[str]:
        """Note a reading of the clock: sources may have become idle. Return the topics of those that did."""
        idle = [topic for topic, clock in self._clocks.items() if clock.read(now_ms)]
        self.became_idle = bool(idle)
        self._settle()
        return idle

    def _settle(self) -> None:
        running = [c.watermark_ms for c in self._clocks.values() if not c.idle]
        if running:
            self.watermark_ms = max(self.watermark_ms, min(running))
        elif self._clocks:
            self.watermark_ms = max(self.watermark_ms, max(c.watermark_ms for c in self._clocks.values()))

    def saved(self) -> dict[str, list[Any]]:
        """Return what a restart needs, by topic, as JSON values."""
        if not self._clocks:
            return {}
        return {_TASK: [self.watermark_ms, *([t, *s] for t, s in sorted(self.sent.items()))]} | {
            topic: [c.watermark_ms, c.idle, c.fresh, c.active_ms, c.writer_count, _rows(c)]
            for topic, c in self._clocks.items()
        }


def _clock(strategy: WatermarkStrategy) -> _SourceTime:
    return _LoopClock(strategy) if isinstance(strategy, Looped) else _SourceTime(strategy)


def _rows(clock: _SourceTime) -> list[Any]:
    """Return the writers' marks compactly: there may be hundreds, and a commit's metadata is small."""
    if isinstance(clock, _LoopClock):
        before = 0
        rows = []
        for said, reached in zip(clock.marks_by_round, clock.reached, strict=True):
            rows.append([reached - before, *_packed(said, reached)])
            before = reached
        return rows
    times = {w: ms for w, (ms, _) in clock.writers.items()}
    idle = sorted(w for w, (_, is_idle) in clock.writers.items() if is_idle)
    return [*_packed(times, clock.watermark_ms), idle]


def _packed(times: Mapping[int, int], base_ms: int) -> tuple[list[int] | int, list[int] | int]:
    """Return the writers seen (an int n means 0 to n - 1) and each one's offset from the base (an int: the same for
    all)."""
    who = sorted(times)
    ahead = [times[w] - base_ms for w in who]
    return (
        len(who) if who == list(range(len(who))) else who,
        ahead[0] if ahead and len(set(ahead)) == 1 else ahead,
    )


def _unpacked(who: list[int] | int, ahead: list[int] | int, base_ms: int) -> dict[int, int]:
    """Invert ``_packed``."""
    writers = range(who) if isinstance(who, int) else who
    deltas = [ahead] * len(writers) if isinstance(ahead, int) else ahead
    return {w: base_ms + delta for w, delta in zip(writers, deltas, strict=True)}
