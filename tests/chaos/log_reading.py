"""Read topics with a plain client, and make and fill them: nothing of the engine is used."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

PATIENCE_S = 60.0
_BEHIND = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""A new leader that does not know yet how far its records are committed. The client would go on at the end of the topic."""
SOCKET_TIMEOUT_MS = 8_000
"""A broker that is frozen is left for another one."""


class Read(NamedTuple):
    """One record as it was read."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


Topic = dict[int, list[Read]]
"""The records of each partition in the order of their offsets."""


class LogReader:
    """Reads what is committed. ``servers``: best the brokers' own, which no fault strikes."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.admin = AdminClient({"bootstrap.servers": servers, "socket.timeout.ms": SOCKET_TIMEOUT_MS})

    def create(self, topics: Iterable[str], partitions: int, replicas: int = 3, **config: str) -> None:
        """Create topics; dots in names of settings are written as underscores."""
        settings = {name.replace("_", "."): value for name, value in {"retention_ms": "-1", **config}.items()}
        asked = [NewTopic(topic, partitions, replicas, config=settings) for topic in topics]
        for done in self.admin.create_topics(asked).values():
            done.result()

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """The partitions of those of the topics that exist."""
        found = self.listed()
        return {topic: sorted(found[topic].partitions) for topic in topics if topic in found and not found[topic].error}

    def listed(self) -> dict[str, TopicMetadata]:
        """All topics. A broker that does not answer is left for another one."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.admin.list_topics(timeout=10).topics
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def read(self, topics: Sequence[str]) -> dict[str, Topic]:
        """All that is committed now. A transaction that is open hides what follows it, so this ends where the first one
        begins."""
        places = [(topic, p) for topic, numbers in self.partitions(topics).items() for p in numbers]
        out: dict[str, Topic] = {topic: {} for topic in topics}
        for topic, p in places:
            out[topic][p] = []
        if not places:
            return out
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for topic, p in places])
        left = set(places)
        following = dict.fromkeys(places, OFFSET_BEGINNING)
        deadline = time.monotonic() + PATIENCE_S
        try:
            while left:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{sorted(left)[:3]} and others could not be read to their ends")
                for message in consumer.consume(5_000, 0.2):
                    topic, p, error = message.topic(), message.partition(), message.error()
                    assert topic is not None
                    assert p is not None
                    if error is None:
                        following[topic, p] = (message.offset() or 0) + 1
                        out[topic][p].append(Read(message.key(), message.value(), message.timestamp()[1]))
                        left.add((topic, p))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard((topic, p))
                    elif error.code() in _BEHIND:
                        consumer.assign([TopicPartition(topic, p, offset) for (topic, p), offset in following.items()])
                        left = set(places)
                        break  # what is left of this batch comes again
        finally:
            consumer.close()
        return out

    def hidden(self, topics: Sequence[str]) -> dict[tuple[str, int], int]:
        """How many offsets at the end of each partition readers of committed records cannot reach yet."""
        out = {}
        committed, all_ = self._consumer(), self._consumer("read_uncommitted")
        try:
            for topic, numbers in self.partitions(topics).items():
                for p in numbers:
                    stable = committed.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1]
                    end = all_.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1]
                    if end > stable:
                        out[topic, p] = end - stable
        finally:
            committed.close()
            all_.close()
        return out

    def _consumer(self, isolation: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "chaos-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 10,
            }
        )


def by_key(topic: Mapping[int, Sequence[Read]]) -> dict[bytes, list[Read]]:
    """The records of each key in their order. A key that lies in two partitions is an error of the writer."""
    out: dict[bytes, list[Read]] = {}
    seen: dict[bytes, int] = {}
    for p, records in topic.items():
        for record in records:
            if record.key is None:
                continue
            if seen.setdefault(record.key, p) != p:
                raise ValueError(f"the key {record.key!r} lies in partitions {seen[record.key]} and {p}")
            out.setdefault(record.key, []).append(record)
    return out
