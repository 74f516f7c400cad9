"""The consumer's poll on the compiled reader: chunks whose columns are arrays, with no Python object per record where there
are many.

Measured on one 2-core box beside its broker and busy with other work, 105-byte JSON values with keys, lz4, four
partitions, two or three times each, CPU of the whole process per record: the client's ``consume`` with lists made of its
messages 1.9–2.0 µs; this reader, 1,000 records out of the queue at a time, 0.56–0.74 µs, 0.30–0.41 of it its caller's
thread's, at three times the rate; all that the queue holds at a time 0.60–0.63 µs, at the same rate. In another run, for
comparison: a C loop over ``rd_kafka_consume_batch_queue`` on the client's queue 0.63 µs (no Python at all, but slow in
time, for it takes and gives the queue's lock with each record); a C loop over ``rd_kafka_queue_poll`` 1.1–1.2 µs.

Of large columns the bytes are handed over where they lie, as a ``memoryview``: one copy more cost the caller's thread a
fifth to a third, with records of 274 bytes.

The client's own queue has what its callbacks serve: group events, errors, log lines. Those are left to the client, whose
callbacks end the process when they are served outside of its own calls. So a poll first lets the client serve that queue
and then takes records from the reader's, where no callback ever is; while it waits for records it looks after the
client's queue every ``SERVE_INTERVAL_S``. A partition is forwarded to the reader's queue before it is started, so no
record of it ever comes by the other way; should one do so all the same, the partition is started anew where its reader
stands, and what came is dropped.

The reader's call looks at control records (the marks of transactions) before it looks whether they are outdated, and moves
the client's notion of how far the application has come past them, records in between included. The client uses it for
one thing only: where a paused partition goes on. So after each pause, by ``pause`` or by the client itself in the middle
of an incremental rebalance, the partition is sought to where its reader stands.
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
"""A poll of fewer records gives lists, in which a task runs them faster: the records of a stream that is joined with a
table took 32 CPU-us each from lists and 50 from columns where a batch had 9 of them, 6.8 and 9.0 at 100, 6.3 and 4.5 at
400."""


class ReaderEvent(NamedTuple):
    """The end of a partition, or an error."""

    tp: TopicPartition
    offset: int
    error: KafkaError


class Drained(NamedTuple):
    """What one look into the queue gave: chunks (at most one per partition), events, partitions whose records did not come
    in order, which is never so unless the client is broken, and where a record has a header whose name is not UTF-8: its
    offset, and no chunk reaches it."""

    chunks: list[Chunk]
    events: list[ReaderEvent]
    disordered: list[TopicPartition]
    unreadable: dict[TopicPartition, int]


class NativeReader:
    """What ``KafkaConsumer`` does with the compiled reader. Used by the consumer's thread."""

    def __init__(self, reader: penstock_native.Reader) -> None:
        self._reader = reader

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to be started (anew)."""
        for tp in partitions:
            self._reader.follow(tp.topic, tp.partition)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """These have been stopped."""
        for tp in partitions:
            self._reader.leave(tp.topic, tp.partition)

    def drain(self, max_records: int, timeout_s: float) -> Drained:
        """Up to ``max_records`` records and events, waiting for the first."""
        raw, told = self._reader.drain(max_records, int(timeout_s * 1000 + 0.999))
        out = Drained([], [], [], {})
        few = sum(len(chunk[5]) for chunk in raw) < 8 * FEWEST_IN_COLUMNS
        for chunk in raw:
            if chunk[-1]:
                out.chunks.append(_chunk(*chunk[:-1], few=few))
            else:
                out.disordered.append(TopicPartition(chunk[0], chunk[1]))
        for topic, partition, code, offset, text in told:
            if code == KafkaError._VALUE_DESERIALIZATION:
                out.unreadable[TopicPartition(topic or "", partition)] = offset
            elif not _is_for_callback(topic, partition, text):
                err = KafkaError(code, text) if text else KafkaError(code)
                out.events.append(ReaderEvent(TopicPartition(topic or "", partition), offset, err))
        return out

    def close(self) -> None:
        """Before the client is closed."""
        self._reader.close()


def _is_for_callback(topic: str | None, partition: int, text: str) -> bool:
    """Whether the library meant this for the client's error callback, which Penstock's consumers do not have: that a
    topic or partition is gone, before the broker says so to a fetch. The library begins such texts with the place."""
    return topic is not None and text.startswith(f"{topic} [{partition}]: ")


def _chunk(
    topic: str,
    partition: int,
    first: int,
    last: int,
    offsets: bytes | None,
    timestamps: bytes,
    keys: Any,
    values: Any,
    headers: Any,
    *,
    few: bool,
) -> Chunk:
    places = range(first, last + 1) if offsets is None else np.frombuffer(offsets, np.int64).tolist()
    key_column, value_column, times = _column(*keys), _column(*values), np.frombuffer(timestamps, np.int64)
    if few:
        return Chunk(topic, partition, places, key_column.to_list(), value_column.to_list(), times.tolist(), headers)
    return Chunk(topic, partition, places, key_column, value_column, times, headers)


def _column(data: bytes | memoryview, ends: bytes, nulls: bytes | None) -> BytesColumn:
    mask = None if nulls is None else np.frombuffer(nulls, np.bool_)
    return BytesColumn(data, np.frombuffer(ends, np.int64), mask)
