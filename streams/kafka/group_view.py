"""A consumer group seen from outside: owners of partitions, committed positions, and the ends of partitions.

Nothing here joins the group or waits for its transactions, so calls may be frequent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    OffsetSpec,
)

from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import admin_config
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.coordinator_requests import COORDINATOR_TIMEOUT_S, CoordinatorClient
from penstock.streams.kafka.request_retries import answered

REQUEST_TIMEOUT_S = 20.0
_TIMEOUT_S = 60.0
T = TypeVar("T")


class GroupView:
    """One group. ``client``: librdkafka settings besides the address. Every call asks the brokers. If they cannot
    answer yet (a new topic or group), the call is repeated, and raises ``RetriableError`` after ``_TIMEOUT_S``. Close
    it after use."""

    def __init__(self, bootstrap_servers: str, group: str, client: Mapping[str, Any] | None = None) -> None:
        self._group = group
        config = admin_config(bootstrap_servers, client or {})
        self._admin = AdminClient(config, logger=client_logger())
        self._coordinators = CoordinatorClient(lambda: AdminClient(config, logger=client_logger()))
        # The admin client's own call for positions crashes the process while the group's coordinator moves. A consumer
        # that may see uncommitted records does not wait for open transactions.
        self._consumer = Consumer(
            {**config, "group.id": group, "isolation.level": "read_uncommitted"}, logger=client_logger()
        )

    def owners(self) -> dict[TopicPartition, str]:
        """Return the ``client.id`` of each assigned partition's member; empty during a rebalance."""

        def describe(client: AdminClient) -> dict[str, Future[Any]]:
            return client.describe_consumer_groups([self._group], request_timeout=COORDINATOR_TIMEOUT_S)

        def ask() -> dict[TopicPartition, str]:
            found = self._coordinators.ask(describe, REQUEST_TIMEOUT_S)[self._group]
            return {
                TopicPartition(part.topic, part.partition): member.client_id
                for member in found.members
                for part in member.assignment.topic_partitions
            }

        return _answered(ask, f"describing group {self._group}")

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return existing committed positions, without waiting for open transactions."""
        asked = [confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions]

        def ask() -> dict[TopicPartition, int]:
            found = self._consumer.committed(asked, timeout=REQUEST_TIMEOUT_S) if asked else []
            return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

        return _answered(ask, f"reading the positions of group {self._group}")

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition."""
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types there
        wanted = {confluent_kafka.TopicPartition(tp.topic, tp.partition): latest for tp in partitions}

        def ask() -> dict[TopicPartition, int]:
            if not wanted:
                return {}
            asked = self._admin.list_offsets(
                wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT_S
            )
            return {TopicPartition(p.topic, p.partition): f.result().offset for p, f in asked.items()}

        return _answered(ask, "asking for the ends of topics")

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()


def _answered(ask: Callable[[], T], doing: str) -> T:
    """Return the answer, repeating the request while the brokers cannot answer yet."""
    return answered(lambda _: ask(), doing, _TIMEOUT_S)
