"""``AbandonedTransactions`` on a log: how members are known, how positions are read while transactions are open, and how a
dead worker is fenced.

A worker's name is ``<its folder's id>-<slot>``. ``<application id>-<name>`` is its transactional id and, in the group, its
``client.id``. Where users set ``client.id`` themselves, or another host has the membership, nobody could see who is there:
such a worker has no name and fences nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from socket import gethostname

from penstock.state.failpoints import failpoint
from penstock.state.log import TopicPartition
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import Log, OffsetAndMetadata
from penstock.streams.runtime.abandoned_transactions import LIMIT_S, AbandonedTransactions
from penstock.streams.runtime.commit_protocol import Guarantee


def owner_name(log: Log, guarantee: Guarantee, process: str, *, member: bool) -> str:
    """The name that this worker notes with its commits; empty where it has none. ``process``: folder's id and slot;
    ``member``: it has a membership of its own."""
    return process if member and guarantee == "exactly_once" and log.names_members else ""


def client_name(log: Log, application_id: str, *, member: bool) -> str | None:
    """The ``client.id`` of a worker without such a name, by which people know it from others; ``None`` if users set it."""
    return f"{application_id}-{gethostname()}-{os.getpid()}" if member and log.names_members else None


def abandoned_transactions(
    log: Log,
    application_id: str,
    own: str,
    inputs: Sequence[TopicPartition],
    clock_s: Callable[[], float],
    events: EventSink,
) -> AbandonedTransactions:
    """For the worker with this name. ``inputs``: all input partitions of the application. Each call has clients of its
    own: one that has lost its coordinator may not find it for a while."""
    prefix = f"{application_id}-"

    def noted() -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        consumer = log.position_reader(application_id, request_timeout_s=LIMIT_S)
        try:
            return consumer.committed(inputs)
        finally:
            consumer.close()

    def members() -> list[str]:
        admin = log.admin(request_timeout_s=LIMIT_S)
        return [c.removeprefix(prefix) for c in admin.group_clients(application_id) if c.startswith(prefix)]

    def fence(name: str, limit_s: float) -> None:
        producer = log.producer(prefix + name)
        try:
            producer.init_transactions(limit_s)
            failpoint("fence.answered")
        finally:
            producer.close()

    return AbandonedTransactions(own, noted, members, fence, clock_s, events)
