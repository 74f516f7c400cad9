"""Ceilings of the log, with the broker on the same machine: producing, fetching, committing transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import ceilings_native, data
from benchmarks.measured import Ceiling, best, measure
from benchmarks.topics import Log

Made = list[tuple[bytes, bytes, int]]
PRODUCER: dict[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "enable.idempotence": True,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}
CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "queued.min.messages": 200_000,
    "fetch.queue.backoff.ms": 2,
    "auto.offset.reset": "earliest",
}
COUNTS = 10_000
TIMES = 3


def records_of(data_set: str, count: int) -> Made:
    """Key, value and timestamp of each."""
    blocks = data.DATA_SETS[data_set](count, int(time.time()) // 86_400 * 86_400_000)
    return [row for block in blocks for row in zip(block.keys or (), block.values, block.timestamps, strict=True)]


def size_of(made: Made) -> float:
    """Mean bytes of key and value."""
    return sum(len(key) + len(value) for key, value, _ in made) / len(made)


class Bench:
    """A topic to write to and to read from, and the records for it. Clients are connected before a clock starts."""

    def __init__(self, log: Log, data_set: str, count: int) -> None:
        self.log = log
        self.made = records_of(data_set, count)
        self.name = data_set
        self.topic = f"roofline-{data_set}"
        self.partitions = range(log.variant.partitions)

    def producer(self, topic: str | None = None) -> Producer:
        """A new producer, which knows its topic (the bench's own, or another), made anew: one record per partition is
        written."""
        topic = topic or self.topic
        self.log.create(topic)
        producer = Producer({"bootstrap.servers": self.log.bootstrap, **PRODUCER})
        for partition in self.partitions:
            producer.produce(topic, b"value", b"key", partition)
        producer.flush()
        return producer

    def consumer(self, *, start: bool = True) -> Consumer:
        """A new consumer, if ``start`` at the topic's beginning."""
        found = Consumer({"bootstrap.servers": self.log.bootstrap, "group.id": f"roofline-{uuid.uuid4()}", **CONSUMER})
        if start:
            found.assign([TopicPartition(self.topic, partition, 0) for partition in self.partitions])
        return found

    def one_by_one(self, producer: Producer) -> float:
        """``produce()`` with partition and timestamp."""
        produce, topic, count = producer.produce, self.topic, len(self.partitions)
        for place, (key, value, timestamp) in enumerate(self.made):
            produce(topic, value, key, place % count, timestamp=timestamp)
            if not place % COUNTS:
                producer.poll(0)
        producer.flush()
        return len(self.made)

    def by_batches(self, producer: Producer) -> float:
        """``produce_batch()``, a partition after the other; the making of the dictionaries is counted."""
        count = len(self.partitions)
        for start in range(0, len(self.made), COUNTS):
            some = [{"key": key, "value": value} for key, value, _ in self.made[start : start + COUNTS]]
            producer.produce_batch(self.topic, some, partition=start // COUNTS % count)
            producer.poll(0)
        producer.flush()
        return len(self.made)

    def bare(self, consumer: Consumer) -> float:
        """``consume()``, nothing looked at."""
        seen = 0
        while seen < len(self.made):
            seen += len(consumer.consume(COUNTS, 1.0))
        return seen

    def read(self, consumer: Consumer) -> float:
        """``consume()`` and key, value, offset and timestamp of each."""
        seen = 0
        while seen < len(self.made):
            messages = consumer.consume(COUNTS, 1.0)
            seen += len([(m.key(), m.value(), m.offset(), m.timestamp()[1]) for m in messages])
        return seen


def log_ceilings(log: Log, count: int) -> Iterator[Ceiling]:
    """Fetch and produce for small records (clicks) and larger ones (events). Times include connecting."""
    for data_set in ("clicks", "events"):
        yield from _of_data_set(Bench(log, data_set, count))


def _of_data_set(bench: Bench) -> Iterator[Ceiling]:
    size = size_of(bench.made)

    def produced(name: str, work: Callable[[Producer], float]) -> Ceiling:
        producer = bench.producer()
        return measure("produce", f"{bench.name}: {name}", "records", lambda: work(producer), bytes=size)

    def fetched(name: str, work: Callable[[Consumer], float]) -> Ceiling:
        consumer = bench.consumer()
        try:
            while not consumer.consume(1, 1.0):
                pass
            return measure("fetch", f"{bench.name}: {name}", "records", lambda: work(consumer), bytes=size)
        finally:
            consumer.close()

    bench.one_by_one(bench.producer())  # a broker that has just started compiles itself first
    yield best(TIMES, lambda: produced("produce_batch, no timestamps", bench.by_batches))
    yield best(TIMES, lambda: produced("produce with timestamp", bench.one_by_one))
    yield best(TIMES, lambda: fetched("consume, nothing read", bench.bare))
    yield best(TIMES, lambda: fetched("consume, fields read", bench.read))
    yield from ceilings_native.of_log(bench, size)
    bench.log.delete([bench.topic])


def transactions(log: Log, count: int) -> Iterator[Ceiling]:
    """Commits of one record per partition and the group's positions: without a transaction, in one, and in one whose
    client asks again after 10 ms instead of 100 when the coordinator still ends the one before."""
    topic = "roofline-transactions"
    log.create(topic)
    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": topic, **CONSUMER})
    metadata = consumer.consumer_group_metadata()
    config = {"bootstrap.servers": log.bootstrap, "linger.ms": 0, "enable.idempotence": True}

    def write(producer: Producer, turn: int) -> list[TopicPartition]:
        for partition in range(log.variant.partitions):
            producer.produce(topic, b"value", b"key", partition)
        return [TopicPartition(topic, partition, turn) for partition in range(log.variant.partitions)]

    def flush(producer: Producer) -> float:
        for turn in range(count):
            positions = write(producer, turn)
            producer.flush()
            consumer.commit(offsets=positions, asynchronous=False)
        return count

    def commit(producer: Producer) -> float:
        for turn in range(count):
            producer.begin_transaction()
            positions = write(producer, turn)
            producer.send_offsets_to_transaction(positions, metadata)
            producer.commit_transaction()
        return count

    try:
        plain = Producer(config)
        without = measure("commit", "flush and commit of positions", "commits", lambda: flush(plain))
        yield without
        for name, more in (("transaction", {}), ("transaction, retry.backoff.ms=10", {"retry.backoff.ms": 10})):
            producer = Producer({**config, **more, "transactional.id": f"{topic}-{name}"})
            producer.init_transactions()
            found = measure("commit", name, "commits", partial(commit, producer))
            extra_ms = (1 / found.per_s - 1 / without.per_s) * 1e3
            yield found._replace(note=f"{extra_ms:+.1f} ms against the one without")
    finally:
        consumer.close()
        log.delete([topic])
