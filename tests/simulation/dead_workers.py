"""``AbandonedTransactions`` on the in-memory log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.state.log import TopicPartition
from penstock.streams.events.port import EventSink
from penstock.streams.runtime.abandoned_transactions import AbandonedTransactions
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import MemoryLog


def abandoned_transactions(
    log: MemoryLog,
    application_id: str,
    own: str,
    inputs: Sequence[TopicPartition],
    clock_s: Callable[[], float],
    events: EventSink,
) -> AbandonedTransactions:
    """For the worker with this name, whose transactional id begins with the application's."""

    def fence(name: str, limit_s: float) -> None:
        MemoryProducer(log, transactional_id=f"{application_id}-{name}").init_transactions(limit_s)

    return AbandonedTransactions(
        own,
        lambda: MemoryConsumer(log, application_id, stable_positions=False).committed(inputs),
        lambda: MemoryAdmin(log).group_clients(application_id),
        fence,
        clock_s,
        events,
    )
