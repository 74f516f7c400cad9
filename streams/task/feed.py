"""The feed: merges the partitions of a task into one order.

It takes the record with the lowest head timestamp (ties: topic name, then offset), but only if every partition has a
buffered record or is known to be caught up. With ``max_task_idle_ms`` above 0, it goes on without a caught-up partition
once that time has passed since that one was seen with records, as Kafka Streams does. Over a fixed range this is a sort
by (running maximum of the timestamp within the partition, topic, offset).

Inputs of a higher priority come first while they have records. ``bootstrap`` inputs are read to their ends before all
others, with a cut after them, so a replay needs no further information.

Where records of several partitions come in turns, they are merged at once, by the running maximum (``_take_merged``), and
not turn by turn.

If it went on without a caught-up partition, and a later record should have come earlier by the rule, it notes a
``Cut``. A feed that gets the cuts (``replay``) reproduces the live order: it merges each range to its end before the
next. Only in that case can the head's sort key fall below that of the previous record, so comparing the two at each
pick detects all cuts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from penstock.streams.ports.chunk import Chunk, ascending, below, highest, running_highest
from penstock.streams.task.journal import ClockFiring, Cut, JournalEntry
from penstock.topologies.operator_api.columns import Ints

_NEVER = -(1 << 62)
_FIRST = (_NEVER, _NEVER, -1)
_SHORT = 32
"""A run of fewer records is a reason to merge the next ones."""


class Run(NamedTuple):
    """Records ``start <= i < stop`` of a chunk."""

    source: int
    """The topic's place in the feed's list."""
    chunk: Chunk
    start: int
    stop: int
    places: Ints | None = None
    """Where each record stands among those that were taken at once, ascending; ``None``: one after the other, behind all
    records of the runs before."""


def in_turns(runs: Sequence[Run]) -> Iterator[Run]:
    """The records of runs in their order, as runs without ``places``."""
    for merged, some in groupby(runs, lambda run: run.places is not None):
        listed = [*some]
        yield from _turns(listed) if merged else listed


def between(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """The records at the places ``start <= place < stop`` of a batch, whose places then begin at 0."""
    found: list[Run] = []
    base = 0
    for run in runs:
        count = run.stop - run.start
        if run.places is None:
            low, high = (min(max(place - base, 0), count) for place in (start, stop))
            places = None
        else:
            low, high = np.searchsorted(run.places, (start, stop)).tolist()
            places = run.places[low:high] - start
        base += count
        if low < high:
            found.append(run._replace(start=run.start + low, stop=run.start + high, places=places))
    return found


def _turns(merged: list[Run]) -> Iterator[Run]:
    places = np.concatenate([run.places for run in merged if run.places is not None])
    owners = np.repeat(np.arange(len(merged)), [run.stop - run.start for run in merged])[np.argsort(places)]
    ends = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
    at = [run.start for run in merged]
    for begin, end in pairwise(ends):
        owner = int(owners[begin])
        start = at[owner]
        at[owner] = start + end - begin
        yield merged[owner]._replace(start=start, stop=at[owner], places=None)


class _PartitionQueue:
    """The buffered records of one partition."""

    def __init__(self, topic: str, position: int) -> None:
        self.topic = topic
        self.position = position
        self.end: int | None = None
        """Known end of the partition (next offset to be written); ``None`` until it was reached once."""
        self.limit: int | None = None
        """Replay: the offset at which the current range ends."""
        self.chunks: deque[tuple[Chunk, bool, int]] = deque()
        self.at = 0
        self.running_max = _NEVER
        self.buffered = 0
        self.idle_since_ms: int | None = None
        """Since when it is known to be caught up, without records; ``None`` while it has some."""

    def head_ms(self) -> int | None:
        """Timestamp of the next record within the range, or ``None``."""
        while self.chunks:
            chunk, _, next_offset = self.chunks[0]
            if self.at < len(chunk.offsets):
                if self.limit is not None and chunk.offsets[self.at] >= self.limit:
                    return None
                return int(chunk.times[self.at])
            # a chunk may have no record left: all dropped at entry
            self._next_chunk(next_offset)
        return None

    def complete(self) -> bool:
        """Whether, without a head, no more records are known to exist."""
        if self.limit is not None:
            return (
                bool(self.chunks) or self.position >= self.limit or (self.end is not None and self.position >= self.end)
            )
        return self.end is not None and self.position >= self.end

    def take(self, source: int, most: int, bound_ms: int | None, tie: bool) -> Run:
        """Take the run from the head of at most ``most`` records with timestamps below ``bound_ms`` (``tie``: or
        equal)."""
        chunk, ordered, _ = self.chunks[0]
        start, stop = self.at, self.reach(most)
        times = chunk.times
        if bound_ms is not None:
            if ordered:
                stop = below(times, bound_ms, start + 1, stop, or_equal=tie)
            else:
                last = bound_ms if tie else bound_ms - 1
                stop = next((i for i in range(start + 1, stop) if times[i] > last), stop)
        latest = int(times[stop - 1]) if ordered else highest(times, start, stop)
        self.advance(stop, latest)
        return Run(source, chunk, start, stop)

    def reach(self, most: int) -> int:
        """Where the next ``most`` records of the first chunk that are within the range end."""
        chunk = self.chunks[0][0]
        stop = min(len(chunk.offsets), self.at + most)
        return stop if self.limit is None else bisect_left(chunk.offsets, self.limit, self.at, stop)

    def advance(self, stop: int, latest_ms: int) -> None:
        """Go on behind records of the first chunk, of which ``latest_ms`` is the highest timestamp."""
        chunk, _, next_offset = self.chunks[0]
        self.running_max = max(self.running_max, latest_ms)
        self.buffered -= stop - self.at
        self.at = stop
        if stop == len(chunk.offsets):
            self._next_chunk(next_offset)
        else:
            self.position = chunk.offsets[stop - 1] + 1

    def _next_chunk(self, next_offset: int) -> None:
        self.chunks.popleft()
        self.at = 0
        self.position = next_offset
        if not self.chunks and self.end is not None:
            # only control records are between the last record and the end
            self.position = max(next_offset, self.end)


class Feed:
    """The order of one task. ``topics`` are its inputs; ``positions`` their next offsets."""

    def __init__(
        self,
        topics: Sequence[str],
        positions: dict[str, int],
        *,
        max_task_idle_ms: int = 0,
        replay: Sequence[Cut | ClockFiring] = (),
        bootstrap: Collection[str] = (),
        priorities: Mapping[str, int] | None = None,
    ) -> None:
        self.topics = sorted(topics)
        self._ranks = [-(priorities or {}).get(t, 0) for t in self.topics]
        self._prior = len(set(self._ranks)) > 1
        self._bootstrap = frozenset() if replay else frozenset(bootstrap)
        self._held_back: set[str] = set()
        """Bootstrap inputs whose end does not count yet: ``hold_back``."""
        self._queues = [_PartitionQueue(t, positions[t]) for t in self.topics]
        self._by_topic = {q.topic: q for q in self._queues}
        self._max_idle_ms = max_task_idle_ms
        self._last_key: tuple[int, int, int] = _FIRST
        self._script = deque(replay)
        self._set_limits()
        self.cuts: list[JournalEntry] = []
        """Entries to journal with the next commit; the committer takes and clears them."""

    # -- filling -------------------------------------------------------------------------------------------------

    def add(self, chunk: Chunk, next_offset: int) -> None:
        """Buffer records; ``next_offset`` is the partition's next offset after them, dropped ones included."""
        queue = self._by_topic[chunk.topic]
        queue.chunks.append((chunk, ascending(chunk.times), next_offset))
        queue.buffered += len(chunk.offsets)

    def set_end(self, topic: str, end: int) -> None:
        """Note the partition's end; once the buffer is empty, the position moves there, past control records."""
        queue = self._by_topic[topic]
        queue.end = end
        if not queue.chunks and queue.position < end:
            queue.position = end

    def buffered(self, topic: str) -> int:
        """Return how many records are buffered."""
        return self._by_topic[topic].buffered

    # -- taking --------------------------------------------------------------------------------------------------

    def take(self, max_records: int, now_ms: int = 0) -> list[Run]:
        """Return the next records in order, as runs; empty if there are none or the rule says to wait."""
        if len(self._queues) == 1:
            return self._take_single(max_records)
        runs: list[Run] = []
        left, in_turn = max_records, False
        while left:
            heads: list[tuple[int, int]] = []
            waiting: list[_PartitionQueue] = []
            for i, queue in enumerate(self._queues):
                head = queue.head_ms()
                if head is not None:
                    queue.idle_since_ms = None
                    heads.append((head, i))
                elif not queue.complete():
                    return runs
                else:
                    waiting.append(queue)
            if self._bootstrap:
                heads = [h for h in heads if self.topics[h[1]] in self._bootstrap]
                if not heads and self._bootstrapped():
                    continue
            elif self._prior and heads:
                highest = min(self._ranks[i] for _, i in heads)
                heads = [h for h in heads if self._ranks[h[1]] == highest]
            if (waiting and self._must_wait(waiting, now_ms)) or not heads:
                return runs
            taken = self._take_merged(heads, left, max_records - left) if in_turn else []
            if not taken:
                taken = [self._take_lowest(heads, left)]
            runs += taken
            count = sum(run.stop - run.start for run in taken)
            in_turn = len(heads) > 1 and (in_turn or count < _SHORT)
            left -= count
        return runs

    def _take_single(self, max_records: int) -> list[Run]:
        runs: list[Run] = []
        queue = self._queues[0]
        while max_records and queue.head_ms() is not None:
            run = queue.take(0, max_records, None, False)
            runs.append(run)
            max_records -= run.stop - run.start
        return runs

    def _take_lowest(self, heads: list[tuple[int, int]], most: int) -> Run:
        head_ms, lowest = min(heads)
        queue = self._queues[lowest]
        if self._key(head_ms, lowest) < self._last_key:
            self._cut()
        others = [h for h in heads if h[1] != lowest]
        bound_ms, other = min(others) if others else (None, 0)
        run = queue.take(lowest, most, bound_ms, lowest < other)
        self._last_key = (self._ranks[lowest], queue.running_max, lowest)
        return run

    def _take_merged(self, heads: list[tuple[int, int]], most: int, base: int) -> list[Run]:
        """Take up to ``most`` records of these heads' chunks in their order, which is that of the running maximum; ``base``:
        how many were taken before. Empty: a record has come too late for its place."""
        if any(self._key(head_ms, i) < self._last_key for head_ms, i in heads):
            return []
        chunks: list[tuple[int, Chunk, int, Ints]] = []
        for _, i in heads:
            queue = self._queues[i]
            chunk, start = queue.chunks[0][0], queue.at
            keys = running_highest(chunk.times, start, queue.reach(most), queue.running_max)
            chunks.append((i, chunk, start, keys))
        # behind the end of any chunk the next one must be known
        last_ms, last = min((int(keys[-1]), i) for i, _, _, keys in chunks)
        keys_of = [
            keys[: int(np.searchsorted(keys, last_ms, "right" if i <= last else "left"))] for i, _, _, keys in chunks
        ]
        order = np.argsort(np.concatenate(keys_of), kind="stable")[:most]
        owners = np.repeat(np.arange(len(chunks)), [len(keys) for keys in keys_of])[order]
        runs: list[Run] = []
        for number, (i, chunk, start, keys) in enumerate(chunks):
            places = np.flatnonzero(owners == number)
            if len(places):
                stop = start + len(places)
                self._queues[i].advance(stop, int(keys[len(places) - 1]))
                runs.append(Run(i, chunk, start, stop, places + base))
        last = chunks[int(owners[-1])][0]
        self._last_key = (self._ranks[last], self._queues[last].running_max, last)
        return runs

    def _key(self, head_ms: int, source: int) -> tuple[int, int, int]:
        """The sort key of a head."""
        return self._ranks[source], max(self._queues[source].running_max, head_ms), source

    def hold_back(self, topic: str, held: bool) -> None:
        """Hold back the end of a bootstrap input that other tasks write, until they have announced it."""
        (self._held_back.add if held else self._held_back.discard)(topic)

    def take_as_given(self) -> None:
        """Take records as a replay gives them: bootstrap inputs before the first range's end, without waiting."""
        self._bootstrap = frozenset()

    def _bootstrapped(self) -> bool:
        """Whether the bootstrap inputs were read to their ends. Then the others begin, after a cut."""
        if self._held_back or not all(self._by_topic[t].complete() for t in self._bootstrap):
            return False
        self._bootstrap = frozenset()
        self._cut()
        return True

    @property
    def at_end(self) -> bool:
        """Whether every partition was read to its known end."""
        return all(q.head_ms() is None and q.complete() for q in self._queues)

    def _must_wait(self, caught_up: list[_PartitionQueue], now_ms: int) -> bool:
        """Whether one of these partitions may still get a record that comes first. The others go on without it until it
        has records again."""
        if not self._max_idle_ms or self._bootstrap or self._script:
            return False
        wait = False
        for queue in caught_up:
            since_ms = queue.idle_since_ms
            if since_ms is None or now_ms < since_ms:  # begin again if the clock was set back
                queue.idle_since_ms = since_ms = now_ms
            wait = wait or now_ms - since_ms < self._max_idle_ms
        return wait

    # -- cuts ----------------------------------------------------------------------------------------------------

    def positions(self) -> dict[str, int]:
        """Next offset of each topic's partition."""
        return {q.topic: q.position for q in self._queues}

    def note_start(self) -> None:
        """Note that the task starts here: its order starts from scratch, as after a cut."""
        if len(self._queues) > 1:
            self._cut()

    def note_clock(self, before_ms: int, now_ms: int) -> None:
        """Note that wall-clock timers fire here; after them the order starts from scratch."""
        self.cuts.append(ClockFiring(self.positions(), before_ms, now_ms))
        self._restart_order()

    def _cut(self) -> None:
        self.cuts.append(Cut(self.positions()))
        self._restart_order()

    def _restart_order(self) -> None:
        self._last_key = _FIRST
        for queue in self._queues:
            queue.running_max = _NEVER

    # -- replay --------------------------------------------------------------------------------------------------

    def next_scripted(self) -> Cut | ClockFiring | None:
        """In a replay: return the entry whose range was consumed to its end, once; then the next range is open."""
        if not self._script or any(q.head_ms() is not None or not q.complete() for q in self._queues):
            return None
        entry = self._script.popleft()
        self._set_limits()
        self._restart_order()
        return entry

    def _set_limits(self) -> None:
        for queue in self._queues:
            queue.limit = self._script[0].offsets.get(queue.topic) if self._script else None
