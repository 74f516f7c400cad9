"""A topic with records of one data set, and the clients that measure what the log can do with them."""

from __future__ import annotations

import time
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import data
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


def records_of(data_set: str, count: int) -> Made:
    """Key, value and timestamp of each."""
    blocks = data.DATA_SETS[data_set](count, int(time.time()) // 86_400 * 86_400_000)
    return [row for block in blocks for row in zip(block.keys or (), block.values, block.timestamps, strict=True)]


def size_of(made: Made) -> float:
    """Mean bytes of key and value."""
    return sum(len(key) + len(value) for key, value, _ in made) / len(made)


class CeilingTopic:
    """A topic to write to and to read from, and the records for it. Clients are connected before a clock starts."""

    def __init__(self, log: Log, data_set: str, count: int) -> None:
        self.log = log
        self.made = records_of(data_set, count)
        self.name = data_set
        self.topic = f"roofline-{data_set}"
        self.partitions = range(log.variant.partitions)

    def producer(self, topic: str | None = None) -> Producer:
        """A new producer, which knows its topic (its own, or another), created afresh: one record per partition is
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
