"""Runs of rows: rows that follow each other and have one key, such as their partition, in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import pyarrow as pa

from penstock.state.log import TopicPartition

_Key = TypeVar("_Key")


def runs_of(batch: pa.RecordBatch, keys: Iterable[_Key]) -> Iterator[tuple[_Key, pa.RecordBatch]]:
    """The batch's runs. ``keys``: of each row."""
    start = 0
    for key, same in groupby(keys):
        count = sum(1 for _ in same)
        yield key, batch.slice(start, count)
        start += count


def place_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The runs of one ``place`` in each batch."""
    for batch in batches:
        yield from runs_of(batch, batch.column("place").to_pylist())


def partition_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The runs of one ``topic`` and ``partition`` in each batch."""
    for batch in batches:
        keys = zip(batch.column("topic").to_pylist(), batch.column("partition").to_pylist(), strict=True)
        for (topic, partition), rows in runs_of(batch, keys):
            yield TopicPartition(topic, partition), rows


def whole_runs(
    runs: Iterable[tuple[_Key, pa.RecordBatch]],
) -> Iterator[tuple[_Key, Iterator[pa.RecordBatch]]]:
    """Runs over the ends of batches. Read each one's rows before the next run."""
    for key, parts in groupby(runs, key=itemgetter(0)):
        yield key, (rows for _, rows in parts)
