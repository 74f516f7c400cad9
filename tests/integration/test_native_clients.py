"""The compiled reader and writer against the plain ones on a real broker: equal columns, whatever is read, written,
sought, paused, aborted or rebalanced. Collected where the native part was built (``conftest.py``)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from penstock.state.log import Headers, TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata, TopicSpec
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn

pytestmark = pytest.mark.integration

LIMIT_S = 300.0
PARTITIONS = 3
Row = tuple[int, bytes | None, bytes | None, int, Headers]
Rows = dict[int, list[Row]]
"""Offset, key, value, timestamp and headers of each record, by partition."""


class Clients:
    """Makes clients and closes them."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._opened: list[Any] = []

    def consumer(self, native: str, group: str, **keys: Any) -> KafkaConsumer:
        """Keys of the client in words joined by underscores."""
        user = {k.replace("_", "."): v for k, v in keys.items()}
        made = KafkaConsumer(consumer_config(self.servers, group, user, session_timeout_ms=30_000), native=native)
        assert made.is_native == (native == "require")
        self._opened.append(made)
        return made

    def producer(self, native: str, transactional_id: str | None = None) -> KafkaProducer:
        config = producer_config(
            self.servers,
            {"queue.buffering.max.messages": 500},
            transactional_id=transactional_id,
            transaction_timeout_ms=600_000,  # no stall of the machine ends a transaction
        )
        made = KafkaProducer(config, native=native)
        assert made.is_native == (native == "require")
        self._opened.append(made)
        if transactional_id is not None:
            made.init_transactions(60)
        return made

    def topic(self, stem: str, partitions: int = PARTITIONS) -> str:
        name = f"{stem}-{time.time_ns():x}"
        spec = TopicSpec(name, partitions, config={"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
        KafkaAdmin(admin_config(self.servers, {})).create_topics([spec])
        return name

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture
def clients(kafka: str) -> Iterator[Clients]:
    made = Clients(kafka)
    yield made
    made.close()


def until(condition: Callable[[], bool], *steps: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "the expected did not happen in time"
        for step in steps:
            step()


Columns = tuple[list[bytes | None], list[bytes | None], list[int], list[Headers] | None, list[int]]


def some_records(rng: random.Random, count: int) -> Columns:
    """Keys, values, timestamps, headers and partitions with every rare case; records without a key have an explicit
    partition, since any would do."""
    texts = [None, b"", b"a", b"\x00", bytes(range(256)), b"x" * 5_000]
    keys = [rng.choice(texts) if rng.random() < 0.2 else b"k%d" % rng.randrange(50) for _ in range(count)]
    values = [rng.choice(texts) if rng.random() < 0.2 else b'{"n":%d}' % i for i in range(count)]
    timestamps = [0 if rng.random() < 0.1 else rng.randrange(1, 1_700_000_000_000) for _ in range(count)]
    pairs: list[Headers] = [
        (),
        (("a", b"1"),),
        (("a", None), ("a", b""), ("é", b"\xff\x00")),
        (("penstock.ts", b"0"), ("b", b"2")),
        (("penstock.ts", b"5"),),
    ]
    headers = [rng.choice(pairs) for _ in range(count)] if rng.random() < 0.7 else None
    partitions = [rng.randrange(PARTITIONS) if k is None or rng.random() < 0.5 else -1 for k in keys]
    return keys, values, timestamps, headers, partitions


def add(rows: Rows, chunk: Chunk) -> None:
    """Take a chunk's records, whose columns must fit each other."""
    headers = chunk.headers if chunk.headers is not None else [()] * len(chunk)
    assert chunk.headers is None or any(chunk.headers)
    columns = (list(chunk.offsets), chunk.keys, chunk.values, chunk.timestamps, headers)
    rows.setdefault(chunk.partition, []).extend(zip(*columns, strict=True))


def read_on(consumer: KafkaConsumer, rows: Rows, ends: dict[int, int], sizes: Iterator[int]) -> None:
    """Read until each partition has been told to end where the goal says."""
    seen: dict[int, int] = {}

    def step() -> None:
        fetched = consumer.poll(next(sizes), 0.2)
        for chunk in fetched.chunks:
            add(rows, chunk)
            seen.pop(chunk.partition, None)
        seen.update({tp.partition: end for tp, end in fetched.ends.items()})

    until(lambda: all(seen.get(p) == end for p, end in ends.items()), step)


def sizes_of(seed: int) -> Iterator[int]:
    rng = random.Random(seed)
    while True:
        yield rng.choice([1, 2, 7, 100, 10_000])


def filled_topic(clients: Clients, rng: random.Random) -> tuple[str, dict[int, int]]:
    """A topic with plain records and with committed and aborted transactions, and its ends."""
    topic = clients.topic("mixed")
    writers = [clients.producer("off"), clients.producer("off", f"{topic}-tx")]
    for _ in range(12):
        writer = rng.choice(writers)
        keys, values, timestamps, headers, partitions = some_records(rng, rng.choice([1, 3, 200]))
        if writer is writers[1]:
            writer.begin()
        writer.send(topic, keys, values, timestamps, headers, partition=partitions)
        writer.flush(60)
        if writer is writers[1]:
            (writer.abort if rng.random() < 0.4 else writer.commit)(60)
    return topic, closed_by_a_transaction(writers[1], topic)


def closed_by_a_transaction(writer: KafkaProducer, topic: str) -> dict[int, int]:
    """Writes a last record into each partition; the ends that readers are told once its markers, which come after the
    answer to the commit, are there."""
    writer.begin()
    writer.send(topic, [b"k"] * PARTITIONS, [b"last"] * PARTITIONS, [1] * PARTITIONS, partition=list(range(PARTITIONS)))
    ends = {tp.partition: end + 1 for tp, end in writer.flush(60).items()}
    writer.commit(60)
    return ends


def played(clients: Clients, topic: str, ends: dict[int, int], native: str, seed: int) -> tuple[Rows, list[Rows]]:
    """All records, and what came after each of a series of seeks and pauses."""
    consumer = clients.consumer(native, f"{topic}-{native}")
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer.assign_at(dict.fromkeys(places, 0))
    sizes, rng = sizes_of(seed), random.Random(seed)
    rows: Rows = {}
    read_on(consumer, rows, ends, sizes)
    later: list[Rows] = []
    for _ in range(6):
        part: Rows = {}
        missing = ends
        chosen = rng.choice(places)
        move = rng.choice(["seek", "seek mid-way", "pause", "again"])
        if move == "pause":
            consumer.pause([chosen])
        for tp in places:
            consumer.seek(tp, rng.randrange(ends[tp.partition]))
        if move == "pause":
            read_on(consumer, part, {p: e for p, e in ends.items() if p != chosen.partition}, sizes)
            assert chosen.partition not in part
            consumer.resume([chosen])
            missing = {chosen.partition: ends[chosen.partition]}
        elif move == "seek mid-way":
            consumer.poll(3, 0.5)
            for tp in places:
                consumer.seek(tp, ends[tp.partition] // 3)
        elif move == "again":
            consumer.unassign([chosen])
            consumer.assign_at({chosen: 0})
        read_on(consumer, part, missing, sizes)
        later.append(part)
    consumer.close()
    return rows, later


@pytest.mark.parametrize("seed", range(3))
def test_both_readers_read_the_same(clients: Clients, seed: int) -> None:
    topic, ends = filled_topic(clients, random.Random(seed))
    plain, plain_later = played(clients, topic, ends, "off", seed)
    native, native_later = played(clients, topic, ends, "require", seed)
    assert native == plain
    assert native_later == plain_later
    assert sum(map(len, plain.values())) > 100
    assert all([r[0] for r in rows] == sorted({r[0] for r in rows}) for rows in plain.values())


def as_columns(rng: random.Random, column: list[bytes | None]) -> Any:
    kind = rng.choice(["list", "bytes", "slice", "coded"])
    if kind == "bytes":
        return BytesColumn.of(column)
    if kind == "slice":
        return BytesColumn.of([b"before", None, *column, b"after"]).slice(2, 2 + len(column))
    if kind == "coded":
        return CodedColumn.of(column).take(np.arange(len(column)))
    return column


def test_what_was_read_stays_as_it_is_while_more_is_read(clients: Clients) -> None:
    topic, count = clients.topic("kept", 1), 9_000
    values = [b"%d " % i * (i % 40) for i in range(count)]
    producer = clients.producer("off")
    producer.send(topic, [b"k%d" % i for i in range(count)], values, [1 + i for i in range(count)], partition=0)
    producer.flush(30)
    consumer = clients.consumer("require", topic)
    consumer.assign_at({TopicPartition(topic, 0): 0})
    chunks: list[Chunk] = []
    until(lambda: sum(map(len, chunks)) == count, lambda: chunks.extend(consumer.poll(1_000, 0.2).chunks))
    columns = [c.value_column for c in chunks]
    assert any(isinstance(c, BytesColumn) and type(c.data) is memoryview for c in columns), "all were copied"
    assert [value for chunk in chunks for value in chunk.values] == values
    assert [key for chunk in chunks for key in chunk.keys] == [b"k%d" % i for i in range(count)]


def test_both_writers_write_the_same(clients: Clients) -> None:
    """Through lists and columns of all kinds, in and outside of transactions; the ends that ``flush`` tells too."""
    told: dict[str, list[dict[int, int]]] = {"off": [], "require": []}
    read: dict[str, Rows] = {"off": {}, "require": {}}
    for native in told:
        topic, rng = clients.topic(f"written-{native}"), random.Random(5)
        in_transactions = clients.producer(native, f"{topic}-tx")
        for writer in (clients.producer(native), in_transactions):
            for run in range(15):
                keys, values, timestamps, headers, partitions = some_records(rng, rng.choice([0, 1, 2, 700]))
                partition: int | Sequence[int] | None = rng.choice([partitions, 1, None])
                if partition is None:
                    keys = [k or b"k" for k in keys]  # without a key any partition would do
                times = np.array(timestamps, np.int64) if rng.random() < 0.5 else timestamps
                columns = as_columns(rng, keys), as_columns(rng, values)
                if writer is in_transactions:
                    writer.begin()
                writer.send(topic, *columns, times, headers, partition=partition)
                told[native].append({tp.partition: end for tp, end in writer.flush(60).items()})
                if writer is in_transactions:
                    (writer.abort if run == 4 else writer.commit)(60)
        ends = closed_by_a_transaction(in_transactions, topic)
        consumer = clients.consumer("off", f"{topic}-reader")
        consumer.assign_at({TopicPartition(topic, p): 0 for p in range(PARTITIONS)})
        read_on(consumer, read[native], ends, sizes_of(1))
    assert read["require"] == read["off"]
    assert told["require"] == told["off"]
    assert sum(map(len, read["off"].values())) > 1_000


class Member:
    """Reads a group's partitions from their committed positions and commits what it has read when they are taken."""

    def __init__(self, consumer: KafkaConsumer, topic: str, log: dict[int, list[int]]) -> None:
        self.consumer = consumer
        self.next: dict[TopicPartition, int] = {}
        self._log = log
        consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def _assign(self, partitions: Sequence[TopicPartition]) -> None:
        found = self.consumer.committed(partitions)
        start = {tp: 0 if at is None else at.offset for tp, at in found.items()}
        self.consumer.assign_at(start)
        self.next.update(start)

    def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        self.consumer.commit({tp: OffsetAndMetadata(self.next.pop(tp), "") for tp in partitions if tp in self.next})

    def poll(self, size: int) -> None:
        """Write down the number in each record."""
        for chunk in self.consumer.poll(size, 0.02).chunks:
            self._log.setdefault(chunk.partition, []).extend(int(v or b"-1") for v in chunk.values)
            self.next[TopicPartition(chunk.topic, chunk.partition)] = chunk.offsets[-1] + 1

    def disturb(self, rng: random.Random) -> None:
        """Seek to where the member stands, pause, or resume."""
        if self.next:
            tp = rng.choice(sorted(self.next))
            move = rng.choice(["seek", "pause", "resume", "nothing"])
            if move == "seek":
                self.consumer.seek(tp, self.next[tp])
            elif move != "nothing":
                (self.consumer.pause if move == "pause" else self.consumer.resume)([tp])

    def leave(self) -> None:
        """Hand back everything, as a worker does that stops."""
        self._revoke(list(self.next))
        self.consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_lost_doubled_or_overtaken_while_members_come_and_go(clients: Clients, protocol: str) -> None:
    topic, partitions, rounds = clients.topic("moving", 4), 4, 60
    rng, sizes = random.Random(3), sizes_of(3)
    # Transactions leave control records, of which the client's own positions must not run ahead.
    writer = clients.producer("require", f"{topic}-tx")
    log: dict[int, list[int]] = {}

    def joined() -> Member:
        keys = {"group_protocol": protocol, "fetch_wait_max_ms": 10}
        return Member(clients.consumer("require", f"{topic}-group", **keys), topic, log)

    members = [joined()]
    written = 0
    for turn in range(rounds):
        writer.begin()
        for p in range(partitions):
            numbers = range(written, written + 100)
            writer.send(topic, [None] * 100, [b"%d" % n for n in numbers], [turn + 1] * 100, partition=p)
        writer.commit(60)
        written += 100
        if turn % 15 == 5:
            members.append(joined())
        elif turn % 15 == 12:
            members.pop(0).leave()
        for member in members:
            member.disturb(rng)
            member.poll(next(sizes))
    for member in members:
        member.consumer.resume(list(member.next))

    def all_read() -> bool:
        return sum(map(len, log.values())) >= written * partitions

    until(all_read, *((lambda m=m: m.poll(1_000)) for m in members))
    assert log == {p: list(range(written)) for p in range(partitions)}
