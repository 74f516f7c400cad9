"""The interface of external sinks: databases, files and services that take a stream's rows.

A ``Sink`` is a value in the graph. A worker opens a ``SinkWriter`` of it for each task, gives it the rows of each commit
with the position behind them, and commits that position to Kafka only after the writer has returned.

What makes rows exactly-once is the writer's own position. It is the offset, in the partition that the rows come from,
of the next record whose rows are not in the sink yet. A writer moves its position from exactly where it stood, and it
makes the move durable together with the rows between: all or nothing. After a crash Kafka's position is behind or equal,
so the records between are read again, and their rows are left out. So each row is applied once, in the order of its
partition, be it by a new owner or by a frozen one that wakes. A sink that cannot keep a position is
at-least-once. Pure.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from penstock.state.log import Headers


class SinkPartition(NamedTuple):
    """The part of a sink that one task writes. A sink keeps one position for each, under all five fields: a topic that was
    deleted and recreated has another ``topic_id``, and its offsets mean other records."""

    application_id: str
    sink: str
    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.sink}/{self.topic}-{self.partition}"


@dataclasses.dataclass(frozen=True)
class SinkRows:
    """Rows in the order of the log. ``rows``: what ``Sink.row`` made; ``offsets``: of the record behind each row. They never
    go down, and rows of one record have equal ones."""

    rows: list[Any]
    offsets: list[int]

    def __len__(self) -> int:
        return len(self.rows)

    def from_offset(self, position: int) -> SinkRows:
        """The rows of records from this offset on."""
        first = next((i for i, offset in enumerate(self.offsets) if offset >= position), len(self.offsets))
        return SinkRows(self.rows[first:], self.offsets[first:])


class SinkWriter(ABC):
    """One task's way into a sink. Used by one thread at a time.

    ``position``: see the module; of a sink that keeps none, where it was opened.
    """

    position: int

    @abstractmethod
    def write(self, rows: SinkRows, position: int) -> int:
        """Make the rows durable, and with them the position behind them, which may move without a row. All rows are of
        records from ``self.position`` on and before ``position``. Returns the position that is durable now: this one, or
        a lower one if the sink ``spans_commits``.

        Raises ``RetriableError`` if the sink does not answer, or if it is not known what it did: the writer is closed, a new
        one is opened after a pause, and the rows behind its position come again. ``TaskMigratedError`` if another writer
        of this partition was opened since: nothing of this call is in the sink, and this worker joins its group again.
        Any other error ends the worker."""

    def due(self) -> bool:
        """Whether rows of earlier calls wait to become durable and the time for it has come; then ``write`` is called
        soon, perhaps without a row."""
        return False

    def close(self) -> None:  # noqa: B027  # one that holds nothing has nothing to release
        """Release everything. What is not durable is dropped. Idempotent."""


class Sink(ABC):
    """Where the rows of a stream go: a database, files or a service. It is kept in the topology, so that it must be
    picklable: it opens nothing before ``open``.

    ``by_key``: rows of equal keys must come from one partition. If keys may have changed, they go through a repartition
    topic first. ``append_only``: every row is a fact, so a table's changes are refused. ``spans_commits``: rows of several
    commits become durable at once; see ``SinkWriter.write``."""

    by_key: bool = True
    append_only: bool = False
    spans_commits: bool = False

    @abstractmethod
    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> Any:
        """The row of a record. Must follow from its arguments alone. An exception is an error of the record, for the
        policies."""

    @abstractmethod
    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        """Open the writer of a partition, and refuse all that older writers of it have not made durable yet. ``start``: its
        position if the sink has kept none.

        Raises ``RetriableError`` if the sink does not answer: the call is repeated after a pause. Any other error ends the
        worker."""

    def describe(self) -> str:
        """Describe what it writes to, in a few words without secrets."""
        return type(self).__name__
