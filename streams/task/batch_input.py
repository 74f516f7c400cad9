"""One batch of a task as its operators get it: the feed's runs as columns per source operator, and the input record
of each place in the batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping
from itertools import accumulate

import numpy as np

from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.failure_report import Origin
from penstock.streams.task.feed import Run
from penstock.streams.task.operator_context import RecordErrorHandler
from penstock.topologies.operator_api.batch import Batch, ColumnBatch, concat


class BatchInput:
    """The current batch. ``sources``: the index of each topic's source operator; ``names``: of all operators.
    ``marked``: the topics that hold watermark records of other tasks, which are not data."""

    def __init__(
        self,
        stride: int,
        names: tuple[str, ...],
        sources: Mapping[str, int],
        marked: Collection[str],
    ) -> None:
        self._stride = stride
        self._names = names
        self._sources = sources
        self._marked = frozenset(marked)
        self._rejected: dict[TopicPartition, dict[int, str]] = {}
        self._runs: list[Run] = []
        self._bases: list[int] = []
        self._merged = False
        self._placed: tuple[list[int], list[int]] | None = None
        """Where merged runs have records: the run at each place, and the record's index in its chunk."""

    def reject(self, partition: TopicPartition, wrong: Mapping[int, str]) -> None:
        """Note offsets with invalid timestamps: the policy handles them at their place."""
        if wrong:
            self._rejected.setdefault(partition, {}).update(wrong)

    def set(self, runs: list[Run]) -> int:
        """Start a new batch. Returns how many input records it has. For an empty batch, output has no input record."""
        self._runs = runs
        self._bases = [0, *accumulate(r.stop - r.start for r in runs)]
        self._merged = any(run.places is not None for run in runs)
        self._placed = None
        return self._bases[-1]

    def batches(self, failures: RecordErrorHandler) -> dict[int, Batch]:
        """Return the batch per source operator."""
        parts: dict[int, list[Batch]] = {}
        for run, base in zip(self._runs, self._bases, strict=False):
            parts.setdefault(self._sources[run.chunk.topic], []).append(self._columns(run, base, failures))
        return {index: concat(batches) for index, batches in parts.items()}

    def _columns(self, run: Run, base: int, failures: RecordErrorHandler) -> Batch:
        chunk, start, stop = run.chunk, run.start, run.stop
        places = np.arange(base, base + stop - start) if run.places is None else run.places
        if chunk.key_column is not None and chunk.value_column is not None:
            batch: Batch = ColumnBatch(
                chunk.key_column.slice(start, stop),
                chunk.value_column.slice(start, stop),
                np.asarray(chunk.times[start:stop], np.int64),
                places * self._stride,
                None if chunk.headers is None else chunk.headers[start:stop],
            )
        else:
            whole = start == 0 and stop == len(chunk.offsets)
            batch = Batch(
                chunk.keys if whole else chunk.keys[start:stop],
                chunk.values if whole else chunk.values[start:stop],
                chunk.timestamps if whole else chunk.timestamps[start:stop],
                (places * self._stride).tolist(),
                chunk.headers if whole or chunk.headers is None else chunk.headers[start:stop],
            )
        if chunk.marks is not None and chunk.topic in self._marked:
            batch = batch.where([m is None for m in chunk.marks[start:stop]])
        wrong = self._rejected.get(TopicPartition(chunk.topic, chunk.partition)) if self._rejected else None
        return self._without(wrong, run, base, batch, failures) if wrong else batch

    def _without(self, wrong: dict[int, str], run: Run, base: int, batch: Batch, failures: RecordErrorHandler) -> Batch:
        """Apply the policy to records whose timestamp was refused, at their place in the order."""
        source = self._names[self._sources[run.chunk.topic]]
        mask = []
        for order in batch.order:
            place = order // self._stride
            behind = place - base if run.places is None else int(np.searchsorted(run.places, place))
            problem = wrong.pop(run.chunk.offsets[run.start + behind], None)
            if problem is not None:
                failures.bad_timestamp(source, place, problem)
            mask.append(problem is None)
        if not wrong:
            del self._rejected[TopicPartition(run.chunk.topic, run.chunk.partition)]
        return batch.where(mask)

    def _at(self, place: int) -> tuple[Chunk, int]:
        """The record at a place: its chunk, and its index there."""
        if not self._merged:
            number = bisect_right(self._bases, place) - 1
            run = self._runs[number]
            return run.chunk, run.start + place - self._bases[number]
        if self._placed is None:
            self._placed = self._found()
        numbers, rows = self._placed
        return self._runs[numbers[place]].chunk, rows[place]

    def _found(self) -> tuple[list[int], list[int]]:
        numbers, rows = (np.empty(self._bases[-1], np.intp) for _ in range(2))
        for number, (run, base) in enumerate(zip(self._runs, self._bases, strict=False)):
            places = slice(base, base + run.stop - run.start) if run.places is None else run.places
            numbers[places], rows[places] = number, np.arange(run.start, run.stop)
        return numbers.tolist(), rows.tolist()

    def offset_of(self, place: int) -> int:
        """Return the offset of the input record at a place, which has one."""
        chunk, i = self._at(place)
        return chunk.offsets[i]

    def locate(self, place: int) -> Origin | None:
        """Return the input record at a place; ``None`` if it has none."""
        if not self._runs:
            return None
        chunk, i = self._at(place)
        headers: Headers = () if chunk.headers is None else chunk.headers[i]
        return Origin(
            TopicPartition(chunk.topic, chunk.partition),
            chunk.offsets[i],
            chunk.keys[i],
            chunk.values[i],
            chunk.timestamps[i],
            headers,
        )
