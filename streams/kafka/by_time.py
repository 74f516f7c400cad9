"""Offsets by time: find where records of a given time or later begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka

from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import translate
from penstock.streams.kafka.reading_errors import translating

_TIMEOUT_S = 60.0


def offsets_since(
    config: Mapping[str, Any], partitions: Sequence[TopicPartition], at_ms: int
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition whose record has this timestamp or a later one, without partitions that
    have no such record. ``config`` comes from ``client_config.consumer_config``. Raises ``RetriableError`` if the
    brokers do not answer."""
    client = confluent_kafka.Consumer(dict(config), logger=client_logger())
    try:
        asked = [confluent_kafka.TopicPartition(tp.topic, tp.partition, at_ms) for tp in partitions]
        with translating(f"looking up the offsets of {at_ms} ms"):
            found = client.offsets_for_times(asked, timeout=_TIMEOUT_S) if asked else []
    finally:
        client.close()
    out: dict[TopicPartition, int] = {}
    for part in found:
        if part.error is not None:
            raise translate(part.error, f"looking up the offset of {at_ms} ms in {part.topic} [{part.partition}]")
        if part.offset >= 0:
            out[TopicPartition(part.topic, part.partition)] = part.offset
    return out
