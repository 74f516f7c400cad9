"""The consumer's poll on the compiled reader: chunks with array columns, without one Python object per record in large
polls.

This takes far less CPU per record than the client's ``consume``. Taking a bounded number of records out of the queue at
a time keeps the rate high: one call for everything that is queued is not faster, and calls per record are slow, because
each takes the queue's lock.

Large columns are passed on without a copy, as a ``memoryview``.

The client's own queue has what its callbacks serve: group events, errors, log lines. These are left to the client,
whose callbacks end the process if they are served outside of its own calls. So a poll first lets the client serve that
queue, and then takes records from the reader's queue, where no callback ever is. While it waits for records it checks
the client's queue every ``SERVE_INTERVAL_S``. A partition is forwarded to the reader's queue before it is started, so
its records never arrive on the client's queue. If one does, the partition is restarted at its reader's position, and
the record is dropped.

After a poll that got all that it asked for, the compiled reader reads the next records in a thread of its own, while
the client's thread works. What it has read ahead of a partition is from before a seek, a pause, or a new start, so it
is dropped before each of them. If a decoder has asked for fields of a chunk's values, the thread also reads these
fields of the next ones.

The reader's call handles control records (the markers of transactions) before it checks whether they are outdated, and
moves the client's notion of the application's position past them, including the records in between. The client uses
this position for one thing only: to resume a paused partition. So after each pause, by ``pause`` or by the client in an
incremental rebalance, the partition is sought to its reader's position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaError

from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.columns import BytesColumn

if TYPE_CHECKING:
    import penstock_native

SERVE_INTERVAL_S = 0.05
FEWEST_IN_COLUMNS = 256
"""A poll of fewer records gives lists: for small batches a task is faster on lists than on columns."""
UNUSED_MAX = 8
"""If what was read ahead of a partition's values is not used this often in a row, it is read ahead no more: the task
takes its batches in other parts."""


class ReaderEvent(NamedTuple):
    """The end of a partition, or an error."""

    tp: TopicPartition
    offset: int
    error: KafkaError


class Drained(NamedTuple):
    """One look into the queue: chunks (at most one per partition); events; partitions whose records were out of order,
    which a working client never causes; and offsets of records with a header name that is not UTF-8, which no chunk
    reaches."""

    chunks: list[Chunk]
    events: list[ReaderEvent]
    disordered: list[TopicPartition]
    unreadable: dict[TopicPartition, int]


class _Projections:
    """By which projectors the values of partitions are read ahead."""

    def __init__(self) -> None:
        self._used: dict[TopicPartition, penstock_native.JsonProjector] = {}
        self._asked: dict[TopicPartition, penstock_native.JsonProjector | None] = {}
        self._unused: dict[TopicPartition, int] = {}

    def ahead(self, tp: TopicPartition, found: tuple[int, Any] | None) -> _ReadAhead:
        """Return what a chunk's values carry."""
        if found is not None:
            self._unused[tp] = self._unused.get(tp, 0) + 1
            if self._unused[tp] > UNUSED_MAX:
                self._asked[tp] = None
        return _ReadAhead(self, tp, found)

    def ask(self, tp: TopicPartition, by: penstock_native.JsonProjector) -> None:
        """Have the next values read by this one."""
        if self._used.get(tp) is not by:
            self._asked[tp] = by

    def used(self, tp: TopicPartition) -> None:
        """Note that what was read ahead has served."""
        self._unused.pop(tp, None)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is read no more."""
        for known in (self._used, self._asked, self._unused):
            known.pop(tp, None)

    def tell(self, reader: penstock_native.Reader) -> None:
        """Pass on what was asked since the last time."""
        for tp, by in self._asked.items():
            reader.project(tp.topic, tp.partition, by)
            self._unused.pop(tp, None)
            if by is None:
                self._used.pop(tp, None)
            else:
                self._used[tp] = by
        self._asked.clear()


class _ReadAhead:
    """``ReadAhead`` of one chunk's values."""

    __slots__ = ("_found", "_projections", "_tp")

    def __init__(self, projections: _Projections, tp: TopicPartition, found: tuple[int, Any] | None) -> None:
        self._projections = projections
        self._tp = tp
        self._found = found

    def by(self, projector: Any) -> Any:
        if self._found is not None and self._found[0] == projector.token():
            self._projections.used(self._tp)
            return self._found[1]
        self._projections.ask(self._tp, projector)
        return None


class NativeReader:
    """The compiled reader for ``KafkaConsumer``. Used by the consumer's thread only."""

    def __init__(self, reader: penstock_native.Reader) -> None:
        self._reader = reader
        self._projections = _Projections()

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepare for these partitions to be started or restarted."""
        for tp in partitions:
            self._reader.follow(tp.topic, tp.partition)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these partitions have stopped."""
        for tp in partitions:
            self._reader.leave(tp.topic, tp.partition)
            self._projections.forget(tp)

    def discard(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what was read ahead of these partitions. Call it before the client seeks or pauses them: after it, nothing
        is read until the next ``drain``."""
        for tp in partitions:
            self._reader.discard(tp.topic, tp.partition)

    def drain(self, max_records: int, timeout_s: float) -> Drained:
        """Take up to ``max_records`` records and events, waiting for the first."""
        self._projections.tell(self._reader)
        raw, events = self._reader.drain(max_records, int(timeout_s * 1000 + 0.999))
        out = Drained([], [], [], {})
        few = sum(len(chunk[5]) for chunk in raw) < 8 * FEWEST_IN_COLUMNS
        for chunk in raw:
            if chunk[-1]:
                out.chunks.append(self._chunk(*chunk[:-1], few=few))
            else:
                out.disordered.append(TopicPartition(chunk[0], chunk[1]))
        for topic, partition, code, offset, text in events:
            if code == KafkaError._VALUE_DESERIALIZATION:
                out.unreadable[TopicPartition(topic or "", partition)] = offset
            elif not _is_for_callback(topic, partition, text):
                err = KafkaError(code, text) if text else KafkaError(code)
                out.events.append(ReaderEvent(TopicPartition(topic or "", partition), offset, err))
        return out

    def _chunk(
        self,
        topic: str,
        partition: int,
        first: int,
        last: int,
        offsets: bytes | None,
        timestamps: bytes,
        keys: Any,
        values: Any,
        headers: Any,
        epoch: int,
        projected: Any,
        *,
        few: bool,
    ) -> Chunk:
        places = range(first, last + 1) if offsets is None else np.frombuffer(offsets, np.int64).tolist()
        key_column, value_column, times = _column(*keys), _column(*values), np.frombuffer(timestamps, np.int64)
        if few:
            keys, values = key_column.to_list(), value_column.to_list()
            return Chunk(topic, partition, places, keys, values, times.tolist(), headers, leader_epoch=epoch)
        value_column.ahead = self._projections.ahead(TopicPartition(topic, partition), projected)
        return Chunk(topic, partition, places, key_column, value_column, times, headers, leader_epoch=epoch)

    def close(self) -> None:
        """Release the reader. Call it before the client is closed."""
        self._reader.close()


def _is_for_callback(topic: str | None, partition: int, text: str) -> bool:
    """Whether the library meant this for the client's error callback, which Penstock's consumers do not set: a topic or
    partition is gone, before the broker says so in a fetch. Such texts begin with the place."""
    return topic is not None and text.startswith(f"{topic} [{partition}]: ")


def _column(data: bytes | memoryview, ends: bytes, nulls: bytes | None) -> BytesColumn:
    mask = None if nulls is None else np.frombuffer(nulls, np.bool_)
    return BytesColumn(data, np.frombuffer(ends, np.int64), mask)
