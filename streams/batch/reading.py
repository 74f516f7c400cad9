"""Ranges of topic partitions, read by the executor itself: exact, committed records only, as columns where the compiled
part is there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import ClusterAddress, open_consumer, retried
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column

BATCH_ROWS = 20_000
_POLL_S = 1.0
_SILENCE_S = 120.0


def read_range(address: ClusterAddress, group: str, tp: TopicPartition, start: int, stop: int) -> Iterator[Chunk]:
    """The records of ``[start, stop)`` in offset order. ``group`` is only a name: it is never joined. Raises
    ``EnvironmentFault`` if records of the range are gone, or the brokers do not answer."""
    if start >= stop:
        return
    consumer = open_consumer(address, group)
    try:
        first, _ = retried(lambda: consumer.watermarks(tp))
        if first > start:
            raise EnvironmentFault(
                f"{tp.topic} partition {tp.partition} begins at offset {first}, but {start} was requested: records "
                "of the range are no longer in Kafka. Ask for a later begin, and keep the topic longer (retention.ms)"
            )
        consumer.assign_at({tp: start})
        silent_s = 0.0  # in polls: what is done with a chunk may take as long as it likes
        while True:
            asked_s = time.monotonic()
            fetched = consumer.poll(BATCH_ROWS, _POLL_S)
            silent_s = 0.0 if fetched.chunks else silent_s + time.monotonic() - asked_s
            for chunk in fetched.chunks:
                past = chunk.offsets[-1] >= stop - 1
                if not past:
                    yield chunk
                    continue
                if len(rest := chunk.before(stop)):
                    yield rest
                return
            if fetched.ends.get(tp, -1) >= stop:
                return
            if silent_s > _SILENCE_S:
                raise EnvironmentFault(
                    f"{tp.topic} partition {tp.partition} gave no record for {_SILENCE_S:.0f} s, before offset {stop}; see "
                    "whether the brokers are up, as seen from the executors"
                )
    finally:
        consumer.close()


def binary(rows: list[bytes | None] | Column) -> pa.Array:
    """Keys or values as they are; columns without a Python object for each."""
    if isinstance(rows, CodedColumn):
        return binary(rows.values).take(pa.array(rows.codes))
    if not isinstance(rows, BytesColumn):
        return pa.array(rows if isinstance(rows, list) else rows.to_list(), pa.binary())
    nulls = None if rows.nulls is None else pa.array(~rows.nulls).buffers()[1]
    ends = pa.py_buffer(np.ascontiguousarray(rows.offsets, np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [nulls, ends, pa.py_buffer(rows.data)]).cast(
        pa.binary()
    )


def bytes_column(array: pa.Array) -> BytesColumn:
    """Bytes of Arrow as a column, without a copy of them."""
    nulls, ends, data = array.buffers()
    offsets = np.frombuffer(ends or bytes(4), np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    mask = np.asarray(array.is_null()) if nulls is not None and array.null_count else None
    return BytesColumn(memoryview(b"" if data is None else data).cast("B"), offsets, mask)
