"""A sink in memory: the model that external sinks are held to, and one for tests that strikes where the test says.

``MemorySink()`` shares what it holds with its copies only as long as they are in one process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.state.log import Headers
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter


@dataclasses.dataclass
class MemorySink(Sink):
    """Appends rows to ``rows``: pairs of key and value. ``strike(step)`` is called at ``open``, ``before`` and ``after`` a
    write is done, and may raise. ``span``: rows become durable only when this many offsets are complete."""

    strike: Callable[[str], None] = lambda step: None
    span: int = 0
    rows: list[tuple[SinkPartition, int, Any]] = dataclasses.field(default_factory=list)
    """Partition, offset and row, in the order in which they arrived."""
    positions: dict[SinkPartition, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Position and generation of each partition."""

    @property
    def spans_commits(self) -> bool:  # type: ignore[override]  # follows from the span
        return self.span > 0

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> Any:
        return key, value

    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        self.strike("open")
        position, generation = self.positions.get(partition, (start, 0))
        self.positions[partition] = position, generation + 1
        return _MemoryWriter(self, partition)


class _MemoryWriter(SinkWriter):
    def __init__(self, sink: MemorySink, partition: SinkPartition) -> None:
        self._sink, self._partition = sink, partition
        self.position, self._generation = sink.positions[partition]
        self._held = SinkRows([], [])
        self._closed = False

    def write(self, rows: SinkRows, position: int) -> int:
        if self._closed:
            raise RetriableError(f"sink {self._partition} is closed")
        self._sink.strike("before")
        if self._sink.positions[self._partition] != (self.position, self._generation):
            raise TaskMigratedError(f"another writer of {self._partition} was opened since")
        self._held.rows.extend(rows.rows)
        self._held.offsets.extend(rows.offsets)
        if position - self.position < self._sink.span:
            return self.position
        self._sink.rows += [(self._partition, *row) for row in zip(self._held.offsets, self._held.rows, strict=True)]
        self._sink.positions[self._partition] = position, self._generation
        self._sink.strike("after")
        self._held, self.position = SinkRows([], []), position
        return position

    def close(self) -> None:
        self._closed = True
