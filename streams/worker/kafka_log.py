"""``Log`` on Kafka: the clients of a worker, from its settings.

This is the only place where a worker meets Kafka's clients.
"""

from __future__ import annotations

from typing import Any

from penstock.streams.events.port import EventSink
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import (
    admin_config,
    consumer_config,
    producer_config,
    uses_consumer_protocol,
)
from penstock.streams.kafka.consumer import REQUEST_TIMEOUT_S, KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.kafka.watched_consumer import WatchedConsumer
from penstock.streams.worker.settings import WorkerSettings

_CLIENT_ID = "client.id"


class KafkaLog:
    """The clients of a worker with these settings. The consumers and producers through which records pass use the
    compiled part as ``settings.native`` says."""

    def __init__(self, settings: WorkerSettings, events: EventSink) -> None:
        self._settings = settings
        self._events = events
        keys = {**settings.common, **settings.consumer}
        self.epochs_grow = uses_consumer_protocol(keys)
        self.names_members = _CLIENT_ID not in keys

    def admin(self, *, request_timeout_s: float | None = None) -> KafkaAdmin:
        """See the port."""
        s = self._settings
        config = admin_config(s.bootstrap_servers, s.common)
        return (
            KafkaAdmin(config) if request_timeout_s is None else KafkaAdmin(config, request_timeout_s=request_timeout_s)
        )

    def member(self, group: str, client_id: str | None = None) -> KafkaConsumer:
        """See the port. It waits longer for positions than a dead worker's transaction can keep them pending."""
        s = self._settings
        config = self._consumer_config(
            group,
            {_CLIENT_ID: client_id} if client_id else {},
            group_instance_id=s.group_instance_id,
            low_latency=s.latency == "low",
        )
        return WatchedConsumer(config, self._events, request_timeout_s=self._patience_s(), native=s.native)

    def reader(self, group: str) -> KafkaConsumer:
        """See the port."""
        config = self._consumer_config(group, {})
        return KafkaConsumer(config, request_timeout_s=self._patience_s(), native=self._settings.native)

    def position_reader(self, group: str, *, request_timeout_s: float) -> KafkaConsumer:
        """See the port."""
        s = self._settings
        keys = {**s.common, **s.consumer, "isolation.level": "read_uncommitted"}
        keys.pop("group.protocol", None)  # it joins nothing
        config = consumer_config(s.bootstrap_servers, group, keys, read_committed=False)
        return KafkaConsumer(config, request_timeout_s=request_timeout_s, native="off")

    def producer(self, transactional_id: str | None = None, *, bulk: bool = False) -> KafkaProducer:
        """See the port."""
        s = self._settings
        config = producer_config(
            s.bootstrap_servers,
            {**s.common, **s.producer},
            transactional_id=transactional_id,
            transaction_timeout_ms=s.transaction_timeout_ms,
            low_latency=s.latency == "low",
            queue_max_bytes=s.queues_bytes()[1],
        )
        return KafkaProducer(config, native=s.native if bulk else "off")

    def _patience_s(self) -> float:
        return max(REQUEST_TIMEOUT_S, self._settings.transaction_timeout_ms * 1.5 / 1000)

    def _consumer_config(self, group: str, keys: dict[str, Any], **more: Any) -> dict[str, Any]:
        s = self._settings
        return consumer_config(
            s.bootstrap_servers,
            group,
            {**s.common, **s.consumer, **keys},
            session_timeout_ms=s.session_timeout_ms,
            queue_max_bytes=s.queues_bytes()[0],
            **more,
        )
