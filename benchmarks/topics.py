"""The log as the harness sees it: input topics filled once, committed positions, and the records of an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from benchmarks import data
from benchmarks.workloads import Variant

TABLES = ("ads", "users")
DEFAULTS = Variant()
WAIT_S = 20.0


def topic_of(data_set: str, records: int, variant: Variant) -> str:
    """The input topic that holds the data set."""
    keys = f"-of-{variant.keys}" if data_set in data.KEYED else ""
    return f"{data_set}-{records}{keys}-in-{variant.partitions}"


def arrived(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """What is there as soon as something is, ``most`` and one more at most. Asked for more than one at once, the client
    waits for all of them or for the time to be over."""
    if messages := consumer.consume(1, timeout=timeout_s):
        messages += consumer.consume(most, timeout=0)
    return messages


class Progress(NamedTuple):
    """Input records whose processing is committed, and records of repartition topics that still wait."""

    committed: int
    waiting: int


class Log:
    """One broker. ``work`` keeps the time at which its data begins, because retention counts from records' times."""

    def __init__(self, bootstrap: str, work: Path, variant: Variant = DEFAULTS) -> None:
        self.bootstrap = bootstrap
        self.variant = variant
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        self._await_groups()
        cluster = self._admin.list_topics(timeout=WAIT_S).cluster_id
        path = work / f"begins-{cluster}.json"
        if not path.exists():
            path.write_text(json.dumps({"base_ms": int(time.time()) // 86_400 * 86_400_000}))
        self.base_ms: int = json.loads(path.read_text())["base_ms"]

    def _await_groups(self) -> None:
        """A broker that has just started makes the topic of committed positions when it is first asked for one. The
        consumer asks until there is an answer; of the admin client, asking again was seen to crash."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "benchmark-warm-up"})
        deadline = time.monotonic() + WAIT_S
        try:
            while True:
                try:
                    consumer.committed([TopicPartition("benchmark-warm-up", 0)], timeout=WAIT_S)
                    return
                except KafkaException:
                    # Its coordinator may still be about to take office.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
        finally:
            consumer.close()

    # -- topics ----------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Names of all topics."""
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def create(self, topic: str, config: Mapping[str, str] | None = None) -> None:
        """A new, empty topic; one of that name is deleted first."""
        self.delete([topic])
        settings = {"retention.ms": "-1", "compression.type": "producer", **(config or {})}
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._admin.create_topics([NewTopic(topic, self.variant.partitions, 1, config=settings)])[
                    topic
                ].result()
                return
            except KafkaException:
                # A topic that is being deleted still owns its name for a moment.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete those of them that exist."""
        doomed = sorted(self.topics().intersection(topics))
        if doomed:
            for done in self._admin.delete_topics(doomed).values():
                done.result()

    def load(self, data_set: str, records: int, topic: str | None = None) -> str:
        """Fill a topic with a data set unless it holds it already; its name. Keys are placed by murmur2, as Java's."""
        name = topic or topic_of(data_set, records, self.variant)
        partitions = [TopicPartition(name, p) for p in range(self.variant.partitions)]
        if name in self.topics() and sum(self.ends(partitions).values()) == records:
            return name
        self.create(name, {"cleanup.policy": "compact"} if data_set in TABLES else None)
        keyed = (self.variant.keys,) if data_set in data.KEYED else ()
        self.write(
            name,
            (
                row
                for block in data.DATA_SETS[data_set](records, self.base_ms, *keyed)
                for row in zip(block.keys or repeat(None), block.values, block.timestamps, strict=False)
            ),
        )
        written = sum(self.ends(partitions).values())
        if written != records:
            raise RuntimeError(f"topic {name} holds {written:,} of {records:,} records: look at the broker's log")
        return name

    def write(self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None, int]]) -> None:
        """Add these (key, value, timestamp) to a topic."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": "lz4",
                "linger.ms": 50,
                "batch.size": 262_144,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 1_000_000,
                "sticky.partitioning.linger.ms": 20,
            }
        )
        for number, (key, value, timestamp) in enumerate(rows):
            while True:
                try:
                    producer.produce(topic, value, key, timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % 10_000 == 0:
                producer.poll(0)
        producer.flush()

    def append(self, topic: str, keys: Iterable[bytes], timestamp_ms: int) -> None:
        """Add records with these keys."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        for key in keys:
            producer.produce(topic, b"{}", key, timestamp=timestamp_ms)
        producer.flush()

    # -- positions -------------------------------------------------------------------------------------------------

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[tuple[str, int], int]:
        """The next offset of each partition."""
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types there
        answers = self._admin.list_offsets(dict.fromkeys(partitions, latest))
        return {(p.topic, p.partition): answer.result().offset for p, answer in answers.items()}

    def internal_topics(self, application: str, kind: str) -> list[str]:
        """Topics that the application made for itself: ``kind`` is ``changelog`` or ``repartition``. A changelog may
        be named after a repartition topic, never the other way round."""
        own = [topic for topic in self.topics() if application in topic and kind in topic]
        return sorted(topic for topic in own if kind == "changelog" or "changelog" not in topic)

    def progress(self, application: str, topic: str | Collection[str]) -> Progress | None:
        """How far the application's group has committed in these topics; ``None`` while the broker cannot say."""
        inputs = {topic} if isinstance(topic, str) else topic
        try:
            request = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(application)])
            positions = request[application].result().topic_partitions or []
            offsets = {(p.topic, p.partition): p.offset for p in positions if p.offset >= 0}
            repartitions = self.internal_topics(application, "repartition")
            ends = self.ends([TopicPartition(t, p) for t in repartitions for p in range(self.variant.partitions)])
        except KafkaException:
            return None
        committed = sum(offset for (name, _), offset in offsets.items() if name in inputs)
        return Progress(committed, sum(end - offsets.get(place, 0) for place, end in ends.items()))

    def remove_application(self, application: str) -> None:
        """Delete all topics that carry the application's name, and its group if the broker lets it go."""
        self.delete(topic for topic in self.topics() if application in topic)
        try:
            self._admin.delete_consumer_groups([application])[application].result()
        except KafkaException:
            # Killed members stay until their session ends; the name is never used again.
            return

    # -- answers ---------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Every committed record, in the order of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "benchmark-oracle",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 2,
            }
        )
        try:
            waiting = set(range(self.variant.partitions))
            consumer.assign([TopicPartition(topic, p, 0) for p in waiting])
            while waiting:
                for message in consumer.consume(10_000, timeout=5):
                    if message.error():
                        waiting.discard(message.partition())
                    else:
                        yield message.key(), message.value()
        finally:
            consumer.close()

    def count(self, topic: str) -> int:
        """Records of a topic, transaction markers among them."""
        return sum(self.ends([TopicPartition(topic, p) for p in range(self.variant.partitions)]).values())
