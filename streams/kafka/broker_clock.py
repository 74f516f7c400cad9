"""A broker's clock. It stamps records of topics that ask for it, so one record in a topic of its own shows the time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Producer

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka.client_config import producer_config
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.topics import Topics

_TIMEOUT_S = 30.0


class ClockDifference(NamedTuple):
    """How far the broker's clock is ahead of this machine's: between the two, since the request took time."""

    least_ms: int
    most_ms: int

    @property
    def certain_ms(self) -> int:
        """The difference that there is at least, 0 where the clocks may agree."""
        return 0 if self.least_ms <= 0 <= self.most_ms else min(abs(self.least_ms), abs(self.most_ms))


def clock_difference(servers: str, client: Mapping[str, Any]) -> ClockDifference:
    """Create a topic, write one record to it, and delete it. Raises ``EnvironmentFault`` if the record is not accepted."""
    topics, name = Topics(servers, client), f"penstock-doctor-{uuid.uuid4().hex[:12]}"
    topics.create(name, partitions=1, replication_factor=1, configs={"message.timestamp.type": "LogAppendTime"})
    try:
        return _measured(Producer(producer_config(servers, client), logger=client_logger()), name)
    finally:
        topics.delete(name)


def _measured(producer: Producer, topic: str) -> ClockDifference:
    stamps: list[int] = []
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            stamps.append(int(message.timestamp()[1]))
        else:
            failures.append(str(error))

    producer.produce(topic, b"connects", on_delivery=delivered)  # opens the connection, which takes longest
    producer.flush(_TIMEOUT_S)
    before_ms = time.time_ns() // 1_000_000
    producer.produce(topic, b"asks", on_delivery=delivered)
    producer.flush(_TIMEOUT_S)
    after_ms = -(-time.time_ns() // 1_000_000)
    if len(stamps) != 2:
        why = failures[0] if failures else f"no answer in {_TIMEOUT_S:g} s"
        raise EnvironmentFault(f"the broker did not take a record of topic {topic}: {why}; look at the brokers")
    return ClockDifference(stamps[-1] - after_ms, stamps[-1] - before_ms)
