"""A consumer that knows, without asking, how far its partitions reach and whether brokers answer.

Both come from the client's statistics, every few seconds. The client raises no error for an outage that a consumer would
be given: it goes on trying to connect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.state.failpoints import failpoint
from penstock.state.log import TopicPartition
from penstock.streams.events.facts import BrokersFound, WaitingForBrokers
from penstock.streams.events.port import EventSink
from penstock.streams.kafka.client_log import folded_lines
from penstock.streams.kafka.consumer import REQUEST_TIMEOUT_S, KafkaConsumer
from penstock.streams.ports.log import OnPartitions

STATISTICS_INTERVAL_MS = 2_000
AWAY_AFTER = 2
"""After this many statistics in a row without a connection no broker counts as reachable; one may be a reconnection."""


def _passing(name: str, callback: OnPartitions) -> OnPartitions:
    def passing(partitions: Sequence[TopicPartition]) -> None:
        failpoint(name)
        callback(partitions)

    return passing


class _Broker(msgspec.Struct):
    state: str
    nodeid: int


class _Partition(msgspec.Struct):
    ls_offset: int = -1


class _TopicStatistics(msgspec.Struct):
    partitions: dict[str, _Partition]


class _ClientStatistics(msgspec.Struct):
    """The part of the client's statistics that is read."""

    brokers: dict[str, _Broker]
    topics: dict[str, _TopicStatistics]


class BrokerWatch:
    """Reports once when no broker answers, and once when one does again."""

    def __init__(self, servers: str, events: EventSink, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._events = events
        self._monotonic_s = monotonic_s
        self._away_since_s: float | None = None
        self._away_times = 0

    def saw(self, *, connected: bool) -> None:
        """Whether the client has a connection to any broker now."""
        now_s = self._monotonic_s()
        if connected:
            if self._away_times >= AWAY_AFTER and self._away_since_s is not None:
                self._events.emit(BrokersFound(self._servers, now_s - self._away_since_s, folded_lines()))
            self._away_since_s, self._away_times = None, 0
            return
        self._away_since_s = now_s if self._away_since_s is None else self._away_since_s
        self._away_times += 1
        if self._away_times == AWAY_AFTER:
            self._events.emit(WaitingForBrokers(self._servers))


class WatchedConsumer(KafkaConsumer):
    """``KafkaConsumer`` that reports ``WaitingForBrokers`` and ``BrokersFound``, and gives ``known_ends``. A ``stats_cb`` of
    the user's is called too."""

    def __init__(
        self,
        config: Mapping[str, Any],
        events: EventSink,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        native: str = "auto",
    ) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._brokers = BrokerWatch(str(config["bootstrap.servers"]), events)
        self._users_callback: Callable[[str], None] | None = config.get("stats_cb")
        watched = {"statistics.interval.ms": STATISTICS_INTERVAL_MS, **config, "stats_cb": self._on_statistics}
        super().__init__(watched, request_timeout_s=request_timeout_s, native=native)

    def subscribe(
        self, topics: Sequence[str], *, on_assign: OnPartitions, on_revoke: OnPartitions, on_lost: OnPartitions
    ) -> None:
        """See the port."""
        super().subscribe(
            topics,
            on_assign=_passing("assign.begun", on_assign),
            on_revoke=_passing("revoke.begun", on_revoke),
            on_lost=_passing("lost.begun", on_lost),
        )

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """See the port."""
        return self._ends

    def _on_statistics(self, text: str) -> None:
        said = msgspec.json.decode(text, type=_ClientStatistics)
        self._ends = {
            TopicPartition(topic, int(number)): partition.ls_offset
            for topic, of in said.topics.items()
            for number, partition in of.partitions.items()
            if partition.ls_offset >= 0
        }
        self._brokers.saw(connected=any(b.state == "UP" and b.nodeid >= 0 for b in said.brokers.values()))
        if self._users_callback is not None:
            self._users_callback(text)
