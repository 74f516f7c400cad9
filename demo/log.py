"""The demo's way to the cluster: topics made, filled, and read as a user would read them, committed records only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from demo.records import Rows
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import TopicSpec

_FLUSH_S = 60.0


class DemoLog:
    """One cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = KafkaAdmin(admin_config(bootstrap_servers, {}))

    def create(self, partitions: int, topics: Mapping[str, Mapping[str, str]]) -> None:
        """New topics by name, with their settings and one copy each."""
        self.admin.create_topics([TopicSpec(name, partitions, 1, config) for name, config in topics.items()])

    def fill(self, rows: Iterable[Rows]) -> int:
        """Write the records, each in the partition of its key; how many they were."""
        producer = KafkaProducer(producer_config(self.bootstrap_servers, {}))
        count = 0
        try:
            for topic, keys, values, timestamps in rows:
                producer.send(topic, keys, values, timestamps)
                count += len(keys)
            producer.flush(_FLUSH_S)
        finally:
            producer.close()
        return count

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Of topics that exist."""
        counts = self.admin.partition_counts(sorted(set(topics)))
        return [TopicPartition(t, p) for t, n in sorted(counts.items()) for p in range(n)]

    def read(self, topic: str) -> Iterator[Chunk]:
        """Every committed record of a topic, each partition in its order."""
        consumer = KafkaConsumer(consumer_config(self.bootstrap_servers, "demo-reader", {}))
        try:
            left = {tp: consumer.watermarks(tp)[1] for tp in self.partitions([topic])}
            consumer.assign_at(dict.fromkeys(left, 0))
            left = {tp: end for tp, end in left.items() if end}
            while left:
                fetched = consumer.poll(50_000, 1.0)
                yield from fetched.chunks
                for tp, end in fetched.ends.items():
                    if end >= left.get(tp, end + 1):
                        del left[tp]
        finally:
            consumer.close()
