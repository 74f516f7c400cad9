"""How many records a turn of the run loop takes: few while it keeps up, many while it is behind.

The answer does not depend on it; speed and latency do. A turn has fixed costs (a poll, a walk of the engine, a send),
so a backlog is drained in large turns. Records wait for the end of their turn, and so do commits and the other tasks,
so a turn is bounded in time, whatever a record costs; slow functions make turns with few records. The number doubles
while more records are available, halves if fewer than half of them were, and drops to what fits if turns take too
long.

The cheapest of the last few turns shows what a record costs. A single slow turn is mostly the machine's doing:
another process had the processor. If it were believed at once, a pause of 26 ms in a turn of 20 records would leave
turns of 7, whose fixed costs use up the processor, so that a backlog grows and a hiccup turns into latencies of
seconds.

Python objects, and what is made of them, are scattered over memory: in large turns they leave the processor's caches
before they are used, and pages are returned to the system and requested again. Reading an event of 280 bytes with the
plain client cost the run loop 1.7 µs in polls of 20,000 and 1.1 in polls of 4,000. Of the row functions after it, a
join of JSON cost a third less, a count per key a tenth more, the others about the same. Columns are packed and gain
from large turns.
"""

from __future__ import annotations

from collections import deque

from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.record_sizes import size_of

TURN_MAX_BYTES = 8 << 20
"""The bound without a limit of the worker's memory: a turn's records are in memory several times, as read, as decoded, as
written."""

TURN_MAX_ROWS = 4_000
"""The most records of a turn if they are Python objects."""

REMEMBERED_TURNS = 4
"""The cheapest of this many turns gives the cost of a record."""

GRAVE_S = 0.5
"""A turn that took longer counts at once: another one like it would delay commits and the group."""


class AdaptiveBatchSize:
    """``records``: how many the next turn may take, from ``least`` to ``most``, or fewer where those take longer than
    ``turn_s``, are larger than ``max_bytes``, or come as Python objects (``TURN_MAX_ROWS``). ``record_bytes``: the mean size
    of a record of the last poll."""

    def __init__(self, least: int, most: int, turn_s: float, max_bytes: int = TURN_MAX_BYTES) -> None:
        self.records = min(least, most)
        self._least = self.records
        self._most = most
        self._turn_s = turn_s
        self._max_bytes = max_bytes
        self._fitting = most
        self._costs_s: deque[float] = deque(maxlen=REMEMBERED_TURNS)
        self.record_bytes = 0.0
        self._in_rows = False

    def took(self, chunks: list[Chunk]) -> None:
        """A poll gave these."""
        if records := sum(map(len, chunks)):
            self.record_bytes = sum(map(size_of, chunks)) / records
            if records >= TURN_MAX_ROWS:  # small polls may come as lists although large ones do not
                self._in_rows = any(chunk.value_column is None for chunk in chunks)

    def turned(self, records: int, seconds: float, waiting: int) -> None:
        """Note a turn: how many records it processed, how long it took, how many are still buffered."""
        if not records:
            return
        most = min(self._most, int(self._max_bytes / max(self.record_bytes, 1.0)))
        if self._in_rows:
            most = min(most, TURN_MAX_ROWS)
        if seconds > 0:
            if seconds > GRAVE_S:
                self._costs_s.clear()
            self._costs_s.append(seconds / records)
            fitting = max(int(self._turn_s / min(self._costs_s)), 1)
            # one quick turn after slow ones proves nothing, least of all a small one, where fixed costs weigh most
            slow = seconds > self._turn_s and fitting < self._fitting
            self._fitting = fitting if slow else min(max(fitting, self._fitting), 2 * self._fitting)
            most = min(most, self._fitting)
        if records >= self.records or waiting >= self.records:
            self.records *= 1 if seconds > self._turn_s else 2
        elif records + waiting < self.records // 2:
            self.records = max(self.records // 2, self._least)
        self.records = max(min(self.records, most), 1)
