"""A task's input, read by the process that runs the task, in the order of ``replay_rows``: without a shuffle and a sort.

An input partition is read in offset order, which is the order of a task with one input. A task with several gets them
merged: of what has been read, everything up to the place where the first of the inputs must be read further. Memory holds
one chunk of each input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.replay_rows import Ordering, Placer, cuts_of, inputs_of
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.event_time import with_event_times
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operators.records.source_sink import SourceSpec

ReadRange = Callable[[TopicPartition, int, int], Iterator[Chunk]]
"""Gives the records of a partition from an offset up to another, in offset order."""
TaskPiece = tuple[int, list[Chunk]]
"""The number of a range between journal entries, and records of each input: a part of the task's order."""


def task_pieces(
    ordering: Ordering,
    topology: Topology,
    task: TaskId,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    read: ReadRange,
) -> Iterator[TaskPiece]:
    """A task's records between the offsets of ``ranges``, in pieces that follow each other in the task's order."""
    if len(ranges) == 1:
        ((tp, (start, stop)),) = ranges.items()
        cuts = cuts_of(ordering, task, tp.topic)
        for chunk in read(tp, start, stop):
            yield from _split(chunk, cuts)
        return
    known = inputs_of(ordering, topology)
    yield from _merged([_Input(ordering, tp, *known[tp.topic], read(tp, *ranges[tp])) for tp in sorted(ranges)])


def _split(chunk: Chunk, cuts: Ints) -> Iterator[TaskPiece]:
    """One input's records, parted where ranges end."""
    first, last = (int(np.searchsorted(cuts, chunk.offsets[i], "right")) for i in (0, -1))
    at = 0
    for number in range(first, last):
        stop = int(np.searchsorted(chunk.offsets, cuts[number]))
        if stop > at:
            yield number, [chunk.part(at, stop)]
        at = stop
    yield last, [chunk.part(at, len(chunk))]


class _Place(NamedTuple):
    """A place in the order, up to the topic."""

    range: int
    rank: int
    running_max_ms: int
    topic: str


class _Input:
    """One input partition: the chunk that has been read and not all been taken."""

    def __init__(
        self, ordering: Ordering, tp: TopicPartition, source: SourceSpec, policies: Policies, chunks: Iterator[Chunk]
    ) -> None:
        self._source = source
        self._placer = Placer(ordering, tp, policies)
        self._chunks = chunks
        self._topic = tp.topic
        self._chunk: Chunk | None = None
        self._ranges: Ints
        self._running: Ints
        self._at = 0

    def fill(self) -> bool:
        """Read further if all was taken. ``False``: there is nothing more."""
        while self._chunk is None or self._at == len(self._chunk):
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                return False
            self._at = 0
            self._ranges, self._running = self._placer.place(with_event_times(self._chunk, self._source)[0])
        return True

    @property
    def range(self) -> int:
        """That of the first record."""
        return int(self._ranges[self._at])

    @property
    def last(self) -> _Place:
        """The place of the last record."""
        return _Place(int(self._ranges[-1]), -self._source.priority, int(self._running[-1]), self._topic)

    def take(self, number: int, bound: _Place) -> Chunk | None:
        """The records of this range up to ``bound``."""
        chunk, start = self._chunk, self._at
        if chunk is None:
            return None
        low, high = np.searchsorted(self._ranges, [number, number + 1]).tolist()
        if number == bound.range:
            rank = -self._source.priority
            if rank > bound.rank:
                high = low
            elif rank == bound.rank:
                side = "right" if self._topic <= bound.topic else "left"
                high = low + int(np.searchsorted(self._running[low:high], bound.running_max_ms, side))  # type: ignore[call-overload]  # one of two texts
        if high <= start:
            return None
        self._at = high
        return chunk.part(start, high)


def _merged(inputs: Sequence[_Input]) -> Iterator[TaskPiece]:
    """Records of all inputs. What comes later of an input lies behind what has been read of it: so everything up to the
    lowest of the inputs' last places is complete."""
    while reading := [one for one in inputs if one.fill()]:
        bound = min(one.last for one in reading)
        for number in range(min(one.range for one in reading), bound.range + 1):
            if taken := [chunk for one in reading if (chunk := one.take(number, bound)) is not None]:
                yield number, taken
