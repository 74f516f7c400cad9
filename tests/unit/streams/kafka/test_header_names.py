"""Header names that are not UTF-8, as clients of other languages may write them: both readers tell of such a record alike,
and neither writer hands such a name to the client, which it would end. A cluster pretended by the client's library."""

from __future__ import annotations

import contextlib
import ctypes
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, cimpl

from penstock.state import native
from penstock.state.errors import SerdeError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.outgoing import Outgoing
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.chunk import Chunk

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MODES = ["off", "require"] if native.compiled() is not None else ["off"]
LIMIT_S = 60.0
QUIET = {"log_level": 0, "client.id": "c"}
NOT_UTF8 = ["\udcff", "a\ud800b", "\udc80"]


class _Argument(ctypes.Structure):
    """``rd_kafka_vu_t``."""

    _fields_ = [("kind", ctypes.c_int), ("pad", ctypes.c_int), ("words", ctypes.c_uint64 * 8)]


class Cluster:
    """One pretended broker, and a producer that takes header names of any bytes."""

    def __init__(self) -> None:
        self.producer = Producer({**QUIET, "test.mock.num.brokers": 1})
        brokers = self.producer.list_topics("t", timeout=LIMIT_S).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def write(self, partition: int, value: bytes, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        """A record as the client writes it."""
        self.producer.produce("t", value, partition=partition, timestamp=7, headers=headers)
        assert self.producer.flush(LIMIT_S) == 0

    def write_named(self, partition: int, value: bytes, name: bytes) -> None:
        """A record with a header of this name."""
        library = ctypes.CDLL(cimpl.__file__)
        handle = ctypes.c_void_p.from_address(id(self.producer) + 16).value
        library.rd_kafka_headers_new.restype = ctypes.c_void_p
        headers = library.rd_kafka_headers_new(ctypes.c_size_t(1))
        one = ctypes.c_ssize_t
        library.rd_kafka_header_add(ctypes.c_void_p(headers), name, one(len(name)), b"1", one(1))
        topic, payload = ctypes.create_string_buffer(b"t"), ctypes.create_string_buffer(value)
        arguments = (_Argument * 5)()
        given: list[tuple[int, tuple[int, ...]]] = [
            (1, (ctypes.addressof(topic),)),
            (3, (partition,)),
            (4, (ctypes.addressof(payload), len(value))),
            (7, (2,)),
            (10, (headers,)),
        ]
        for argument, (kind, words) in zip(arguments, given, strict=True):
            argument.kind = kind
            for i, word in enumerate(words):
                argument.words[i] = word
        library.rd_kafka_produceva.restype = ctypes.c_void_p
        assert library.rd_kafka_produceva(ctypes.c_void_p(handle), arguments, ctypes.c_size_t(5)) is None
        assert self.producer.flush(LIMIT_S) == 0


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextlib.contextmanager
def reading(cluster: Cluster, mode: str) -> Iterator[KafkaConsumer]:
    config = {**QUIET, "bootstrap.servers": cluster.servers, "group.id": "g", "enable.auto.commit": False}
    consumer = KafkaConsumer({**config, "enable.partition.eof": True, "fetch.wait.max.ms": 5}, native=mode)
    assert consumer.is_native == (mode == "require")
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: KafkaConsumer, count: int) -> list[Chunk]:
    """So many records, or what comes before an error."""
    chunks: list[Chunk] = []
    until = time.monotonic() + LIMIT_S
    while sum(map(len, chunks)) < count and time.monotonic() < until:
        chunks += consumer.poll(100, 0.2).chunks
    return chunks


def values_of(chunks: list[Chunk], tp: TopicPartition) -> list[bytes | None]:
    return [value for c in chunks if (c.topic, c.partition) == tp for value in c.values]


@pytest.mark.parametrize("mode", MODES)
def test_the_record_is_named_whenever_it_is_met(cluster: Cluster, mode: str) -> None:
    """What stands before it and in other partitions is handed out, and so is what stands behind it, to who goes there."""
    cluster.write(0, b"before", [("a", b"1")])
    cluster.write_named(0, b"bad", b"\xff\xfe")
    cluster.write(0, b"behind", [("é", b"2")])
    for value in (b"one", b"two"):
        cluster.write(1, value)
    named = r"topic t, partition 0, offset 1 .* offset 2 of this partition"
    with reading(cluster, mode) as consumer:
        consumer.assign_at({TP: 0, OTHER: 0})
        chunks: list[Chunk] = []
        errors: list[str] = []
        until = time.monotonic() + LIMIT_S
        while (sum(map(len, chunks)) < 3 or len(errors) < 3) and time.monotonic() < until:
            try:  # the error may come before the other partition's records
                chunks += consumer.poll(100, 0.2).chunks
            except SerdeError as exc:
                errors.append(str(exc))
        assert (values_of(chunks, TP), values_of(chunks, OTHER)) == ([b"before"], [b"one", b"two"])
        assert len(errors) >= 3
        assert all(re.search(named, error) for error in errors)
        with pytest.raises(SerdeError, match=named):
            read(consumer, 1)
        consumer.seek(TP, 2)
        chunks = read(consumer, 1)
        assert [(c.offsets[0], c.values, c.headers) for c in chunks] == [(2, [b"behind"], [(("é", b"2"),)])]


@pytest.mark.parametrize("mode", MODES)
def test_a_partition_that_begins_with_it(cluster: Cluster, mode: str) -> None:
    cluster.write_named(0, b"bad", b"a\x80")
    cluster.write(0, b"behind")
    with reading(cluster, mode) as consumer:
        consumer.assign_at({TP: 0})
        for _ in range(2):
            with pytest.raises(SerdeError, match="partition 0, offset 0"):
                read(consumer, 1)
        consumer.unassign([TP])
        consumer.assign_at({TP: 1})
        assert values_of(read(consumer, 1), TP) == [b"behind"]


@pytest.mark.parametrize("mode", MODES)
def test_values_may_be_any_bytes_or_none(cluster: Cluster, mode: str) -> None:
    headers: list[Headers] = [(("a", b"\xff\x00\xfe"), ("b", None), ("", b""), ("é", b"x" * 1000)), (), (("z", b"0"),)]
    producer = KafkaProducer({**QUIET, "bootstrap.servers": cluster.servers, "client.id": "w"}, native=mode)
    producer.send("t", [b"k"] * 3, [b"v"] * 3, [1, 2, 3], headers, partition=0)
    producer.flush(LIMIT_S)
    producer.close()
    with reading(cluster, mode) as consumer:
        consumer.assign_at({TP: 0})
        found = [own for chunk in read(consumer, 3) for own in chunk.headers or [()] * len(chunk)]
    assert found == headers


@pytest.mark.parametrize("name", NOT_UTF8)
def test_the_client_is_not_asked_for_what_ends_it(name: str) -> None:
    records = Outgoing("t", [b"k"] * 3, [b"v"] * 3, [1, 0, 3], [(), (("a", b"1"),), (("b", None), (name, b"1"))], 0)
    assert records.listed(0, 2).headers == [None, [("a", b"1"), ("penstock.ts", b"0")], None][:2]
    with pytest.raises(SerdeError, match="record 2 of 3 sent to t has the header"):
        records.listed(1, 3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("header", [*((name, b"1") for name in NOT_UTF8), ("a", "\udcff")])
def test_such_a_name_is_not_sent(cluster: Cluster, mode: str, header: Any) -> None:
    """And is not forgotten: nobody is told that all is well."""
    producer = KafkaProducer({**QUIET, "bootstrap.servers": cluster.servers, "client.id": "w"}, native=mode)
    assert producer.is_native == (mode == "require")
    for step in (
        lambda: producer.send("t", [b"k"] * 2, [b"v"] * 2, [1, 2], [(), (header,)], partition=0),
        lambda: producer.flush(LIMIT_S),
    ):
        with pytest.raises(SerdeError, match="cannot be written in UTF-8"):
            step()
    producer.close()
