"""A task's event time: the watermark after each of its records, from those of its sources.

Deterministic: it follows from the records in the task's order and from the journaled readings of the clock, by which
idleness is judged (a source is idle when no record of it lay between two readings that are ``idle_ms`` apart or more).
What is needed to go on after a restart is committed with the offsets (``saved``).

Through a repartition topic the watermark travels as a record of its own in every partition, with a null key, a null value
and the header ``HEADER``; readers take such records out before any operator sees them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from penstock.state.errors import StateCorruptedError
from penstock.state.log import Headers, Record
from penstock.state.serde import Serde
from penstock.streams.ports import Chunk
from penstock.topologies.operator import NO_TIME
from penstock.topologies.operators.endpoints import Source
from penstock.topologies.watermarks import BoundedOutOfOrderness, Carried, Punctuated, WatermarkStrategy

HEADER = "penstock.watermark"
_MARK = struct.Struct(">iiq??")
_TASK = ""
"""Where the task's own watermark is saved: no topic has this name."""


class Mark(NamedTuple):
    """What one upstream task says: it is ``writer`` of ``writers``, and has come to ``watermark_ms``, or is idle; or that
    it has written all that its inputs held when it started (``caught_up``, which says nothing of time)."""

    writer: int
    writers: int
    watermark_ms: int
    idle: bool
    caught_up: bool = False

    @property
    def headers(self) -> Headers:
        """The record's headers."""
        return ((HEADER, _MARK.pack(*self)),)


def mark_of(headers: Headers) -> Mark | None:
    """The mark that a record is, or ``None`` for a record of data."""
    for name, value in headers:
        if name == HEADER:
            if value is None or len(value) != _MARK.size:
                raise StateCorruptedError(f"header {HEADER} holds {value!r:.60}; something else wrote to this topic")
            return Mark(*_MARK.unpack(value))
    return None


def with_marks(chunk: Chunk, source: Source) -> Chunk:
    """The chunk with what its records say about the watermark, where the source's strategy asks them."""
    strategy = source.watermark
    if isinstance(strategy, Carried) or source.waits_for_writers:
        if chunk.headers is not None:
            chunk.marks = [mark_of(h) if h else None for h in chunk.headers]
    elif isinstance(strategy, Punctuated):
        chunk.marks = [_punctuation(strategy, source, chunk, i) for i in range(len(chunk))]
    return chunk


def _punctuation(strategy: Punctuated, source: Source, chunk: Chunk, i: int) -> int | None:
    headers = () if chunk.headers is None else chunk.headers[i]
    try:
        key, value = _decoded(source.key_serde, chunk.keys[i]), _decoded(source.value_serde, chunk.values[i])
    except Exception:  # not swallowed: the source operator decodes again and applies the policy
        return None
    return strategy.fn(Record(key, value, chunk.timestamps[i], headers))


def _decoded(serde: Serde[Any], data: bytes | None) -> Any:
    return None if data is None else serde.deserialize(data)


class _Clock:
    """The event time of one source."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.strategy = strategy
        self.watermark_ms = NO_TIME
        self.idle = False
        self.fresh = False
        """Whether a record came since the last reading of the clock."""
        self.active_ms = NO_TIME
        """The reading at which it was last seen active."""
        self.writers: dict[int, tuple[int, bool]] = {}
        self.writer_count = 0

    def after(self, chunk: Chunk, start: int, stop: int) -> list[int]:
        """The source's watermark after each record of a run."""
        self.fresh, self.idle = True, False
        if isinstance(self.strategy, BoundedOutOfOrderness):
            less = self.strategy.delay_ms + 1
            highest = accumulate(chunk.timestamps[start:stop], max)
            marks = [max(self.watermark_ms, ts - less) for ts in highest]
        elif chunk.marks is None:
            marks = [self.watermark_ms] * (stop - start)
        elif isinstance(self.strategy, Punctuated):
            stated = [NO_TIME if m is None else m for m in chunk.marks[start:stop]]
            marks = list(accumulate(stated, max, initial=self.watermark_ms))[1:]
        else:
            marks = [self._heard(m) for m in chunk.marks[start:stop]]
        self.watermark_ms = marks[-1]
        return marks

    def _heard(self, mark: Mark | None) -> int:
        """The lowest of what the writers say, once all have been heard; idle ones do not count."""
        if mark is None or mark.caught_up:
            return self.watermark_ms
        self.writer_count = mark.writers
        self.writers[mark.writer] = (mark.watermark_ms, mark.idle)
        if len(self.writers) < self.writer_count:
            return self.watermark_ms
        running = [ms for ms, idle in self.writers.values() if not idle]
        self.idle = not running
        self.watermark_ms = max(self.watermark_ms, min(running, default=NO_TIME))
        return self.watermark_ms

    def read(self, now_ms: int) -> None:
        """The clock was read."""
        limit_ms = self.strategy.idle_ms
        if self.fresh or self.active_ms == NO_TIME:
            self.active_ms, self.fresh = now_ms, False
        elif limit_ms is not None and now_ms - self.active_ms >= limit_ms:
            self.idle = True


class TaskWatermarks:
    """The event time of one task. ``sources``: by topic."""

    def __init__(self, sources: Mapping[str, Source], saved: Mapping[str, list[Any]]) -> None:
        self._clocks = {t: _Clock(s.watermark) for t, s in sources.items() if s.watermark is not None}
        for topic, clock in self._clocks.items():
            if topic in saved:
                clock.watermark_ms, clock.idle, clock.fresh, clock.active_ms, clock.writer_count, writers = saved[topic]
                clock.writers = {int(w): (ms, idle) for w, ms, idle in writers}
        self.watermark_ms: int = saved.get(_TASK, [NO_TIME])[0]
        self._settle()

    @property
    def idle(self) -> bool:
        """Whether every source is idle."""
        return bool(self._clocks) and all(c.idle for c in self._clocks.values())

    @property
    def strategies(self) -> bool:
        """Whether any source has one; without, stream time - 1 is the watermark."""
        return bool(self._clocks)

    @property
    def interval_ms(self) -> int:
        """How finely it is told to tasks behind repartition topics."""
        return min((c.strategy.interval_ms for c in self._clocks.values()), default=1)

    def idle_interval_ms(self) -> int | None:
        """How often the clock should be read for idleness; ``None``: never."""
        limits = [c.strategy.idle_ms for c in self._clocks.values() if c.strategy.idle_ms is not None and not c.idle]
        return None if not limits else max(min(limits) // 2, 1)

    def after(self, topic: str, chunk: Chunk, start: int, stop: int) -> list[int]:
        """The task's watermark after each record of a run."""
        clock = self._clocks.get(topic)
        if clock is None:
            return [self.watermark_ms] * (stop - start)
        others = [c.watermark_ms for t, c in self._clocks.items() if t != topic and not c.idle]
        marks = clock.after(chunk, start, stop)
        before = self.watermark_ms
        if others:
            lowest = min(others)
            marks = [min(m, lowest) for m in marks]
        marks = [max(before, m) for m in marks]
        self.watermark_ms = marks[-1]
        return marks

    def read_clock(self, now_ms: int) -> None:
        """The clock was read: sources may have become idle."""
        for clock in self._clocks.values():
            clock.read(now_ms)
        self._settle()

    def _settle(self) -> None:
        running = [c.watermark_ms for c in self._clocks.values() if not c.idle]
        if running:
            self.watermark_ms = max(self.watermark_ms, min(running))
        elif self._clocks:
            self.watermark_ms = max(self.watermark_ms, max(c.watermark_ms for c in self._clocks.values()))

    def saved(self) -> dict[str, list[Any]]:
        """What a restart needs, by topic, as JSON takes it."""
        if not self._clocks:
            return {}
        return {_TASK: [self.watermark_ms]} | {
            topic: [c.watermark_ms, c.idle, c.fresh, c.active_ms, c.writer_count, _rows(c)]
            for topic, c in self._clocks.items()
        }


def _rows(clock: _Clock) -> list[list[Any]]:
    return [[writer, ms, idle] for writer, (ms, idle) in sorted(clock.writers.items())]
