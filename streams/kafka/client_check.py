"""Check the compiled reader and writer before they are used.

A few records go through the client library's built-in mock cluster of one broker, inside this process. The client reads
what the compiled writer sends, and the compiled reader reads what the client sends, with nulls, headers, a timestamp of
0 and the end of a partition. This finds a wrong layout of the library's structs, a wrong argument of one of its
functions, and mistakes in writing and reading that would cancel out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from penstock.state.errors import PenstockError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.columns import Gathered
from penstock.streams.kafka.native_reader import NativeReader
from penstock.streams.kafka.outgoing import Outgoing
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn

CLIENT_ID = "penstock-check"
TIMEOUT_S = 5.0
_TOPIC = "check"
_ReadRecord: TypeAlias = tuple[int, bytes | None, bytes | None, int, Headers]
"""Offset, key, value, timestamp, headers."""

_BY_WRITER, _BY_CLIENT = TopicPartition(_TOPIC, 0), TopicPartition(_TOPIC, 1)
_COMMON = {"client.id": CLIENT_ID, "log_level": 0, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10}

_KEYS: list[bytes | None] = [b"key", None, b"", b"\x00\xff" * 40, b"key"]
_VALUES: list[bytes | None] = [b"value", b"x" * 300, None, b"", b"other"]
_TIMES = [1_700_000_000_123, 0, 7, (1 << 41) + 1, 7]
_HEADERS: list[Headers] = [(("a", b"1"), ("b", None)), (), (("z", b""),), (), (("a", b"2"),)]


class Native(NamedTuple):
    """The compiled reader and writer, each built from a client."""

    reader: Callable[[Consumer], Any]
    writer: Callable[[Producer], Any]


def why_not_passing(native: Native) -> str | None:
    """Return what reader or writer get wrong; ``None`` if they are right."""
    try:
        found, ends = _passed(native)
    except (PenstockError, KafkaException, RuntimeError, TypeError, ValueError, BufferError, OSError) as exc:
        return f"its check against a mock broker failed: {type(exc).__name__}: {exc}"
    expected = _expected()
    for tp, doing in ((_BY_WRITER, "writing"), (_BY_CLIENT, "reading")):
        for got, row in zip_longest(found[tp], expected):
            if got != row:
                return f"the compiled part is wrong at {doing}: {got!r:.200}, not {row!r:.200}"
        if ends[tp] != len(expected):
            return f"the compiled part is wrong at {doing}: a partition ends at {ends[tp]}, not at {len(expected)}"
    return None


def _sent(partition: int) -> list[Outgoing]:
    """Return the records of a partition: lists with headers, and columns without, since the writer gets both."""
    keys, values = BytesColumn.of(_KEYS), CodedColumn(np.array([1, 0, 2, 1, 3], np.int32), [b"0", b"one", None, b""])
    places = [partition] * len(_KEYS)
    return [
        Outgoing(_TOPIC, _KEYS, _VALUES, _TIMES, _HEADERS, partition),
        Outgoing(_TOPIC, keys, values, np.array(_TIMES, np.int64), None, places),
    ]


def _expected() -> list[_ReadRecord]:
    """Return the records that both partitions must yield."""
    values: list[bytes | None] = [b"one", b"0", None, b"one", b""]
    nothing: list[Headers] = [()] * len(_KEYS)
    return list(zip(range(2 * len(_KEYS)), _KEYS * 2, _VALUES + values, _TIMES * 2, _HEADERS + nothing, strict=True))


def _rows(chunk: Chunk) -> list[_ReadRecord]:
    headers = chunk.headers or [()] * len(chunk)
    return list(zip(chunk.offsets, chunk.keys, chunk.values, chunk.timestamps, headers, strict=True))


def _passed(native: Native) -> tuple[dict[TopicPartition, list[_ReadRecord]], dict[TopicPartition, int]]:
    """Return records and ends of both partitions."""
    producer = Producer({**_COMMON, "test.mock.num.brokers": 1, "linger.ms": 0}, logger=client_logger())
    brokers = producer.list_topics(_TOPIC, timeout=TIMEOUT_S).brokers.values()
    writer = native.writer(producer)
    try:
        for records in _sent(_BY_WRITER.partition):
            taken = writer.send(_TOPIC, *records.columns(), 0, records.count)
            if taken != records.count:
                raise ValueError(f"the writer took {taken} of {records.count} records")
    finally:
        writer.close()
    for records in _sent(_BY_CLIENT.partition):
        for arguments in zip(*records.listed(0, records.count).arguments(_TOPIC, None), strict=False):
            producer.produce(*arguments)
    if left := producer.flush(TIMEOUT_S):
        raise ValueError(f"{left} records were not acknowledged in {TIMEOUT_S} s")
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    config = {"bootstrap.servers": servers, "group.id": CLIENT_ID, "enable.auto.commit": False}
    consumer = Consumer(
        {**_COMMON, **config, "enable.partition.eof": True, "fetch.wait.max.ms": 5}, logger=client_logger()
    )
    try:
        consumer.list_topics(_TOPIC, timeout=TIMEOUT_S)  # else it asks for the leaders only once a second
        reader = NativeReader(native.reader(consumer))
        try:
            return _read(consumer, reader)
        finally:
            reader.close()
    finally:
        consumer.close()


def _read(
    consumer: Consumer, reader: NativeReader
) -> tuple[dict[TopicPartition, list[_ReadRecord]], dict[TopicPartition, int]]:
    """Read one partition with the client and the other with the reader, both to their ends."""
    reader.follow([_BY_CLIENT])
    consumer.assign([confluent_kafka.TopicPartition(*tp, 0) for tp in (_BY_WRITER, _BY_CLIENT)])
    plain, ends = Gathered(), dict[TopicPartition, int]()
    rows: dict[TopicPartition, list[_ReadRecord]] = {_BY_WRITER: [], _BY_CLIENT: []}
    until = time.monotonic() + TIMEOUT_S
    while len(ends) < 2:
        if time.monotonic() > until:
            raise ValueError(f"the records did not come back in {TIMEOUT_S} s")
        for message in consumer.consume(100, 0.001):
            if (err := message.error()) is None:
                plain.add([message], True)
            elif err.code() == KafkaError._PARTITION_EOF:
                ends[TopicPartition(message.topic() or "", message.partition() or 0)] = message.offset() or 0
        drained = reader.drain(100, 0.001)
        for chunk in drained.chunks:
            rows.setdefault(TopicPartition(chunk.topic, chunk.partition), []).extend(_rows(chunk))
        ends.update((tp, at) for tp, at, err in drained.events if err.code() == KafkaError._PARTITION_EOF)
    for chunk in plain.chunks():
        rows[TopicPartition(chunk.topic, chunk.partition)] = _rows(chunk)
    return rows, ends
