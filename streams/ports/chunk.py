"""A chunk: records of one topic-partition as a reader took them from the log.

Keys and values are lists, or ``BytesColumn``s of a native reader; timestamps a list or an array.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.state.log import Headers
from penstock.streams.ports.record_columns import RecordColumns
from penstock.topologies.operator_api.columns import BytesColumn, Ints


class Chunk(RecordColumns[BytesColumn]):
    """Records of one topic-partition in offset order, as parallel columns. ``offsets`` is a range if none is missing.
    ``headers`` is ``None`` if no record of the chunk has any. Timestamps are as Penstock's readers see them (a
    ``penstock.ts`` header has been applied). ``leader_epoch``: of the leader that the last record was written to, -1 if
    unknown."""

    __slots__ = ("headers", "leader_epoch", "marks", "offsets", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        keys: list[bytes | None] | BytesColumn,
        values: list[bytes | None] | BytesColumn,
        timestamps: list[int] | Ints,
        headers: list[Headers] | None = None,
        marks: list[Any] | None = None,
        leader_epoch: int = -1,
    ) -> None:
        super().__init__(keys, values, timestamps)
        self.topic = topic
        self.partition = partition
        self.offsets = offsets
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.marks = marks
        """Filled by the task: what the records say about the watermark (``penstock.streams.task.task_watermarks``)."""

    def __len__(self) -> int:
        return len(self.offsets)

    def with_times(self, timestamps: list[int] | Ints) -> Chunk:
        """These records with other timestamps."""
        keys = self.keys if self.key_column is None else self.key_column
        values = self.values if self.value_column is None else self.value_column
        return Chunk(self.topic, self.partition, self.offsets, keys, values, timestamps, self.headers, self.marks)

    def before(self, offset: int) -> Chunk:
        """The records before this offset."""
        return self.part(0, bisect_left(self.offsets, offset))

    def part(self, start: int, stop: int) -> Chunk:
        """The records ``start <= i < stop``."""
        if start == 0 and stop == len(self.offsets):
            return self
        return Chunk(
            self.topic,
            self.partition,
            self.offsets[start:stop],
            self.keys[start:stop] if self.key_column is None else self.key_column.slice(start, stop),
            self.values[start:stop] if self.value_column is None else self.value_column.slice(start, stop),
            self.times[start:stop],
            None if self.headers is None else self.headers[start:stop],
            None if self.marks is None else self.marks[start:stop],
            self.leader_epoch,
        )

    def in_columns(self) -> Chunk:
        """These records as a native reader gives them."""
        return Chunk(
            self.topic,
            self.partition,
            self.offsets,
            BytesColumn.of(self.keys) if self.key_column is None else self.key_column,
            BytesColumn.of(self.values) if self.value_column is None else self.value_column,
            np.array(self.times, np.int64),
            self.headers,
            self.marks,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chunk) and self._rows() == other._rows()

    __hash__ = None  # type: ignore[assignment]  # a chunk is compared by what it holds

    def __repr__(self) -> str:
        return f"Chunk{self._rows()!r}"

    def _rows(self) -> tuple[Any, ...]:
        columns = (list(self.offsets), self.keys, self.values, self.timestamps, self.headers, self.marks)
        return (self.topic, self.partition, *columns)


Times = list[int] | Ints


def ascending(times: Times) -> bool:
    """Whether the times never decrease."""
    if isinstance(times, list):
        return times == sorted(times)  # linear, and in C, if they do not
    return bool((times[1:] >= times[:-1]).all())


def highest(times: Times, start: int, stop: int) -> int:
    """The largest time of a run that is not empty."""
    return max(times[start:stop]) if isinstance(times, list) else int(times[start:stop].max())


def lowest(times: Times, start: int, stop: int) -> int:
    """The smallest time of a run that is not empty."""
    return min(times[start:stop]) if isinstance(times, list) else int(times[start:stop].min())


def below(times: Times, bound_ms: int, start: int, stop: int, *, or_equal: bool) -> int:
    """The index of the first time in an ascending run that is at least ``bound_ms`` (``or_equal``: above it)."""
    if isinstance(times, list):
        return (bisect_right if or_equal else bisect_left)(times, bound_ms, start, stop)
    return start + int(np.searchsorted(times[start:stop], bound_ms, "right" if or_equal else "left"))


def running_highest(times: Times, start: int, stop: int, before: int) -> Ints:
    """The highest time so far after each record of a run, including ``before``."""
    return np.maximum(np.maximum.accumulate(np.asarray(times[start:stop], np.int64)), before)
