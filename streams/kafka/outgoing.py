"""The records of one ``send``: as columns for the compiled writer, as rows for the client's own ``produce``.

Measured on one 2-core box beside its broker, 105-byte JSON values with keys and timestamps, lz4, CPU of the whole process
per record and rate: ``produce`` called from a loop 2.9 µs, 0.3 M/s; the writer 1.2 µs from lists and 1.4–1.6 µs from
columns (they differ by less than runs do), 0.5–0.8 M/s, of which 0.5 µs are the caller's thread, the rest the client's;
a C loop over ``rd_kafka_produceva`` 1.3 µs. ``rd_kafka_produce_batch`` takes no timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from penstock.state.log import TIMESTAMP_ZERO_HEADER, Headers
from penstock.topologies.columns import BytesColumn, CodedColumn, Column, Ints

ANY_PARTITION = -1
_ZERO: Headers = ((TIMESTAMP_ZERO_HEADER, b"0"),)


class Outgoing:
    """Columns as ``LogProducer.send`` takes them."""

    def __init__(
        self,
        topic: str,
        keys: Sequence[bytes | None] | Column,
        values: Sequence[bytes | None] | Column,
        timestamps: Sequence[int] | Ints,
        headers: Sequence[Headers] | None,
        partition: int | Sequence[int] | None,
    ) -> None:
        self.topic = topic
        self.count = len(keys)
        self._keys = keys
        self._values = values
        self._timestamps = timestamps
        self._headers = headers
        self._partition = ANY_PARTITION if partition is None else partition
        self._by_key = partition is None

    def reported(self) -> list[int]:
        """The places whose delivery is to be reported, ascending: the last record of each partition, where partitions
        are given."""
        if self._by_key:
            return []
        if isinstance(self._partition, int):
            return [self.count - 1]
        return sorted({p: i for i, p in enumerate(self._partition)}.values())

    def columns(self) -> tuple[Any, Any, Any, Any, Any]:
        """Keys, values, timestamps, headers and partitions as ``penstock_native.Writer.send`` takes them."""
        times = self._timestamps
        return (
            _strings(self._keys),
            _strings(self._values),
            np.ascontiguousarray(times, np.int64) if isinstance(times, np.ndarray) else _listed(times),
            None if self._headers is None else _listed(self._headers),
            self._partition if isinstance(self._partition, int) else _listed(self._partition),
        )

    def rows(self, start: int, stop: int) -> Iterator[tuple[Any, ...]]:
        """Key, value, timestamp, headers or ``None``, and partition of each record ``start <= i < stop``, headers with
        the one that stands for timestamp 0."""
        times = self._part(self._timestamps, start, stop)
        headers = None if self._headers is None else self._part(self._headers, start, stop)
        if headers is not None or 0 in times:
            headers = with_zero_header(times, headers)
        where = self._partition
        places: Iterable[int] = repeat(where) if isinstance(where, int) else self._part(where, start, stop)
        columns = (self._part(self._keys, start, stop), self._part(self._values, start, stop), times)
        return zip(*columns, repeat(None) if headers is None else headers, places, strict=False)

    def _part(self, column: Any, start: int, stop: int) -> Any:
        if isinstance(column, Column):
            return column.slice(start, stop).to_list()
        if start or stop < self.count:
            column = column[start:stop]
        return column.tolist() if isinstance(column, np.ndarray) else column


def with_zero_header(timestamps: Sequence[int], headers: Sequence[Headers] | None) -> list[Headers]:
    """Headers with the one that stands for timestamp 0 where it is 0, and nowhere else."""
    column: Sequence[Headers] = headers if headers is not None else [()] * len(timestamps)
    out: list[Headers] = []
    for at, own in zip(timestamps, column, strict=True):
        kept = tuple(h for h in own if h[0] != TIMESTAMP_ZERO_HEADER) if own else ()
        out.append(kept + _ZERO if at == 0 else kept)
    return out


def _listed(column: Sequence[Any]) -> list[Any]:
    return column if isinstance(column, list) else list(column)


def _strings(column: Sequence[bytes | None] | Column) -> Any:
    if isinstance(column, BytesColumn):
        nulls = None if column.nulls is None else np.ascontiguousarray(column.nulls).view(np.uint8)
        return column.data, np.ascontiguousarray(column.offsets, np.int64), nulls
    if isinstance(column, CodedColumn):
        return np.ascontiguousarray(column.codes, np.int32), column.values
    return _listed(column.to_list() if isinstance(column, Column) else column)
