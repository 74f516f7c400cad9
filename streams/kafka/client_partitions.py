"""The client's form of partitions, and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import confluent_kafka

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata

NO_OFFSET = -1001
"""librdkafka's "invalid": no position, nothing committed."""


def to_client(tp: TopicPartition, offset: int = NO_OFFSET, metadata: str = "") -> confluent_kafka.TopicPartition:
    """Return the client's form of a partition, with an offset where one is needed."""
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, offset, metadata)


def to_commit(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[confluent_kafka.TopicPartition]:
    """Return positions in the form in which the client commits them."""
    return [to_client(tp, c.offset, c.metadata) for tp, c in offsets.items()]


def from_client(partitions: Iterable[confluent_kafka.TopicPartition]) -> list[TopicPartition]:
    """Return partitions without their offsets."""
    return [TopicPartition(p.topic, p.partition) for p in partitions]
