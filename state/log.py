"""Values of the log: record, header, topic-partition, task id."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeAlias

from penstock.state.type_parameters import K, V

Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]

TIMESTAMP_ZERO_HEADER = "penstock.ts"
TIMESTAMP_ZERO = (TIMESTAMP_ZERO_HEADER, b"0")
"""librdkafka writes timestamp 0 as the current time; a record with timestamp 0 carries this header (value ``b"0"``)."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class TaskId(NamedTuple):
    """One task: the sub-topology's number and the partition that it owns."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"


class Record(NamedTuple, Generic[K, V]):
    """One record as user code sees it. ``timestamp_ms`` is event time; ``None`` key or value is a real null."""

    key: K
    value: V
    timestamp_ms: int = 0
    headers: Headers = ()


class Windowed(NamedTuple, Generic[K]):
    """The key of a windowed aggregate: the record's key and the window.

    The end is exclusive, ``[start_ms, end_ms)``, for tumbling, hopping, calendar and custom windows, for sessions with
    ``bounds="gap"`` and for panes. It is inclusive, ``[start_ms, end_ms]``, for sliding windows and for sessions, which
    end with their last record (Kafka Streams)."""

    key: K
    start_ms: int
    end_ms: int
