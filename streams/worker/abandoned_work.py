"""``AbandonedTransactions`` on Kafka: how members are known, how positions are read while transactions are open, and how a
dead worker is fenced.

A worker's name is ``<its folder's id>-<slot>``. ``<application id>-<name>`` is its transactional id and, in the group, its
``client.id``. Where users set ``client.id`` themselves, or another host has the membership, nobody could see who is there:
such a worker has no name and fences nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.state.failpoints import failpoint
from penstock.state.log import TopicPartition
from penstock.streams.events.port import EventSink
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.abandoned_transactions import LIMIT_S, AbandonedTransactions
from penstock.streams.worker.settings import WorkerSettings

_CLIENT_ID = "client.id"


def owner_name(settings: WorkerSettings, process: str, *, member: bool) -> str:
    """The name that this worker notes with its commits; empty where it has none. ``process``: folder's id and slot;
    ``member``: it has a membership of its own."""
    named = _CLIENT_ID in settings.common or _CLIENT_ID in settings.consumer
    return process if member and settings.guarantee == "exactly_once" and not named else ""


def abandoned_transactions(
    settings: WorkerSettings,
    own: str,
    inputs: Sequence[TopicPartition],
    producer_config: Callable[[str], Mapping[str, Any]],
    clock_s: Callable[[], float],
    events: EventSink,
) -> AbandonedTransactions:
    """For the worker with this name. ``inputs``: all input partitions of the application; ``producer_config`` that of a
    transactional id. Each call has clients of its own: one that has lost its coordinator may not find it for a while."""
    prefix = f"{settings.application_id}-"

    def noted() -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        given = {**settings.common, **settings.consumer, "isolation.level": "read_uncommitted"}
        given.pop("group.protocol", None)  # it joins nothing
        config = consumer_config(settings.bootstrap_servers, settings.application_id, given, read_committed=False)
        consumer = KafkaConsumer(config, request_timeout_s=LIMIT_S, native="off")
        try:
            return consumer.committed(inputs)
        finally:
            consumer.close()

    def members() -> list[str]:
        admin = KafkaAdmin(admin_config(settings.bootstrap_servers, settings.common), request_timeout_s=LIMIT_S)
        return [c.removeprefix(prefix) for c in admin.group_clients(settings.application_id) if c.startswith(prefix)]

    def fence(name: str, limit_s: float) -> None:
        producer = KafkaProducer(producer_config(prefix + name), native="off")
        try:
            producer.init_transactions(limit_s)
            failpoint("fence.answered")
        finally:
            producer.close()

    return AbandonedTransactions(own, noted, members, fence, clock_s, events)
