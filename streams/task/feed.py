"""The feed: merges the partitions of a task into one order.

It takes the record with the lowest head timestamp (ties: topic name, then offset), but only if every partition has a
buffered record or is known to be caught up. With ``max_task_idle_ms`` above 0, it goes on without a caught-up partition
once that time has passed since that one was seen with records, as Kafka Streams does. Over a fixed range this is a sort
by (running maximum of the timestamp within the partition, topic, offset).

Inputs of a higher priority come first while they have records. ``bootstrap`` inputs are read to their ends before all
others, with a cut after them, so a replay needs no further information.

If it went on without a caught-up partition, and a later record should have come earlier by the rule, it notes a
``Cut``. A feed that gets the cuts (``replay``) reproduces the live order: it merges each range to its end before the
next. Only in that case can the head's sort key fall below that of the previous record, so comparing the two at each
pick detects all cuts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from penstock.streams.ports.chunk import Chunk, ascending, below, highest
from penstock.streams.task.journal import ClockFiring, Cut, JournalEntry

_NEVER = -(1 << 62)
_FIRST = (_NEVER, _NEVER, -1)


class Run(NamedTuple):
    """Records ``start <= i < stop`` of a chunk."""

    source: int
    """The topic's place in the feed's list."""
    chunk: Chunk
    start: int
    stop: int


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
        chunk, ordered, next_offset = self.chunks[0]
        start, stop = self.at, min(len(chunk.offsets), self.at + most)
        if self.limit is not None:
            stop = bisect_left(chunk.offsets, self.limit, start, stop)
        times = chunk.times
        if bound_ms is not None:
            if ordered:
                stop = below(times, bound_ms, start + 1, stop, or_equal=tie)
            else:
                last = bound_ms if tie else bound_ms - 1
                stop = next((i for i in range(start + 1, stop) if times[i] > last), stop)
        latest = int(times[stop - 1]) if ordered else highest(times, start, stop)
        self.running_max = max(self.running_max, latest)
        self.buffered -= stop - start
        self.at = stop
        if stop == len(chunk.offsets):
            self._next_chunk(next_offset)
        else:
            self.position = chunk.offsets[stop - 1] + 1
        return Run(source, chunk, start, stop)

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
        left = max_records
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
            run = self._take_lowest(heads, left)
            runs.append(run)
            left -= run.stop - run.start
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
        key = (self._ranks[lowest], max(queue.running_max, head_ms), lowest)
        if key < self._last_key:
            self._cut()
        others = [h for h in heads if h[1] != lowest]
        bound_ms, other = min(others) if others else (None, 0)
        run = queue.take(lowest, most, bound_ms, lowest < other)
        self._last_key = (self._ranks[lowest], queue.running_max, lowest)
        return run

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
