"""Ranges of topic partitions, read by the executor itself: exact, committed records only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.state.errors import EnvironmentFault
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.columns import BytesColumn

BATCH_ROWS = 20_000
_POLL_S = 1.0
_SILENCE_S = 120.0


def read_range(
    bootstrap_servers: str, client: Mapping[str, str], group: str, tp: TopicPartition, start: int, stop: int
) -> Iterator[Chunk]:
    """The records of ``[start, stop)`` in offset order. ``group`` is only a name: it is never joined. Raises
    ``EnvironmentFault`` if records of the range are gone, or the brokers do not answer."""
    if start >= stop:
        return
    consumer = KafkaConsumer(consumer_config(bootstrap_servers, group, client))
    try:
        first, _ = consumer.watermarks(tp)
        if first > start:
            raise EnvironmentFault(
                f"{tp.topic} partition {tp.partition} begins at offset {first}, but {start} was requested: records "
                "of the range are no longer in Kafka. Ask for a later begin, and keep the topic longer (retention.ms)"
            )
        consumer.assign_at({tp: start})
        received_s = time.monotonic()
        while True:
            fetched = consumer.poll(BATCH_ROWS, _POLL_S)
            for chunk in fetched.chunks:
                received_s = time.monotonic()
                past = chunk.offsets[-1] >= stop - 1
                if not past:
                    yield chunk
                    continue
                if len(rest := until(chunk, stop)):
                    yield rest
                return
            if fetched.ends.get(tp, -1) >= stop:
                return
            if time.monotonic() - received_s > _SILENCE_S:
                raise EnvironmentFault(
                    f"{tp.topic} partition {tp.partition} gave no record for {_SILENCE_S:.0f} s, before offset {stop}; see "
                    "whether the brokers are up, as seen from the executors"
                )
    finally:
        consumer.close()


def until(chunk: Chunk, stop: int) -> Chunk:
    """The chunk's records before an offset."""
    count = int(np.searchsorted(np.asarray(chunk.offsets), stop))
    headers = None if chunk.headers is None else chunk.headers[:count]
    return Chunk(
        chunk.topic,
        chunk.partition,
        chunk.offsets[:count],
        chunk.keys[:count],
        chunk.values[:count],
        chunk.timestamps[:count],
        headers,
    )


def binary(rows: list[bytes | None] | BytesColumn) -> pa.Array:
    """A chunk's keys or values as they are; those of a native reader without a copy of each."""
    if not isinstance(rows, BytesColumn):
        return pa.array(rows, pa.binary())
    nulls = None if rows.nulls is None else pa.array(~rows.nulls).buffers()[1]
    ends = pa.py_buffer(np.ascontiguousarray(rows.offsets, np.int64))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(rows), [nulls, ends, pa.py_buffer(rows.data)]).cast(
        pa.binary()
    )
