"""The driver's view of the cluster before a job: ends, committed positions, and the identity of topics."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from penstock.state.errors import RetriableError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.by_time import offsets_since
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata

_DELETE_RETENTION_MS = 24 * 3600 * 1000
_RETRY_FOR_S = 30.0
_RETRY_EVERY_S = 0.5
_SETTLE_TURN_S = 0.05
Ends = dict[TopicPartition, tuple[int, int]]
"""The first offset still there and the last stable offset of each partition."""
T = TypeVar("T")


def now_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


def retried(call: Callable[[], T]) -> T:
    """Return the answer of ``call``, repeating it for a while if the cluster says that it may answer later."""
    stop_s = time.monotonic() + _RETRY_FOR_S
    while True:
        try:
            return call()
        except RetriableError:
            if time.monotonic() >= stop_s:
                raise
        time.sleep(_RETRY_EVERY_S)


@dataclasses.dataclass(frozen=True)
class ClusterAddress:
    """How to reach a cluster. ``client``: librdkafka settings. They may hold secrets and are never shown."""

    bootstrap_servers: str
    client: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True)
class CommittedInput:
    """A committed position of an input partition, decoded."""

    offset: int
    metadata: CommitMetadata


class Cluster:
    """The driver's view of one cluster and one application's group. ``uncommitted``: a consumer that sees the ends of open
    transactions too; without it there are none."""

    def __init__(self, consumer: LogConsumer, admin: LogAdmin, uncommitted: LogConsumer | None = None) -> None:
        self._consumer = consumer
        self._admin = admin
        self._uncommitted = uncommitted or consumer

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The number of partitions of each topic that exists."""
        return self._admin.partition_counts(sorted(set(topics)))

    def require_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Partition counts of topics that must exist. Raises ``SettingsError``."""
        wanted = sorted(set(topics))
        counts = self._admin.partition_counts(wanted)
        missing = [t for t in wanted if t not in counts]
        if missing:
            raise SettingsError(
                f"the cluster has no topic {', '.join(missing)}; check bootstrap_servers and the application id, and that "
                "the application has run"
            )
        return counts

    def ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        """First offset still there and last stable offset of each."""
        return {tp: retried(partial(self._consumer.watermarks, tp)) for tp in sorted(set(partitions))}

    def open_transactions(self, ends: Ends) -> bool:
        """Whether any of these partitions has records after the last stable offset in ``ends``."""
        return any(retried(partial(self._uncommitted.watermarks, tp))[1] > end for tp, (_, end) in sorted(ends.items()))

    def settled_ends(self, partitions: Iterable[TopicPartition], wait_s: float) -> tuple[Ends, bool]:
        """``ends`` when no transaction is open there, and whether that was so within ``wait_s``: a commit is answered before
        its markers are written everywhere, and a frozen process may leave its transaction open for longer."""
        asked, until_s = list(partitions), time.monotonic() + wait_s
        while True:
            ends = self.ends(asked)
            if not self.open_transactions(ends):
                return ends, True
            if time.monotonic() >= until_s:
                return ends, False
            time.sleep(_SETTLE_TURN_S)

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedInput]:
        """Stable committed positions; partitions without one are left out."""
        found = retried(lambda: self._consumer.committed(list(partitions)))
        return {
            tp: CommittedInput(c.offset, commit_metadata.decode(c.metadata)) for tp, c in found.items() if c is not None
        }

    def topic_config(self, topic: str) -> dict[str, str]:
        """The topic's effective settings."""
        return self._admin.topic_config(topic)

    def topic_id(self, topic: str) -> str:
        """The ids that distinguish a topic from a later one with the same name."""
        return self._admin.topic_ids([topic])[topic]

    def changelog_facts(self, topic: str, partitions: Sequence[int]) -> dict[int, ChangelogFacts]:
        """The facts that decide about snapshots of a changelog, by partition."""
        config = self._admin.topic_config(topic)
        topic_id = self._admin.topic_ids([topic])[topic]
        cluster_id = self._admin.cluster_id()
        ends = self.ends(TopicPartition(topic, p) for p in partitions)
        return {
            tp.partition: ChangelogFacts(
                topic=topic,
                topic_id=topic_id,
                cluster_id=cluster_id,
                begin_offset=begin,
                end_offset=end,
                compacted="compact" in config.get("cleanup.policy", "delete"),
                delete_retention_ms=int(config.get("delete.retention.ms", _DELETE_RETENTION_MS)),
            )
            for tp, (begin, end) in ends.items()
        }

    def close(self) -> None:
        """Release the clients."""
        self._consumer.close()
        if self._uncommitted is not self._consumer:
            self._uncommitted.close()


@contextmanager
def open_cluster(address: ClusterAddress, application_id: str) -> Iterator[Cluster]:
    """The cluster as the application's group sees it; the group is only asked, never joined."""
    servers, client = address.bootstrap_servers, address.client
    config = consumer_config(servers, application_id, client)
    uncommitted = KafkaConsumer({**config, "isolation.level": "read_uncommitted"})
    cluster = Cluster(KafkaConsumer(config), KafkaAdmin(admin_config(servers, client)), uncommitted)
    try:
        yield cluster
    finally:
        cluster.close()


def open_admin(address: ClusterAddress) -> LogAdmin:
    """An admin client."""
    return KafkaAdmin(admin_config(address.bootstrap_servers, address.client))


def open_consumer(
    address: ClusterAddress, group: str, *, session_timeout_ms: int = 45_000, client_id: str | None = None
) -> LogConsumer:
    """A consumer of a group, which it joins only if it subscribes. ``client_id``: the name that the group shows."""
    client = {**address.client, **({"client.id": client_id} if client_id else {})}
    return KafkaConsumer(
        consumer_config(address.bootstrap_servers, group, client, session_timeout_ms=session_timeout_ms)
    )


def open_transactional(
    address: ClusterAddress, transactional_id: str, *, timeout_ms: int, bulk: bool = False
) -> LogProducer:
    """A producer that becomes the owner of this id when it initializes its transactions. ``bulk``: for many records."""
    config = producer_config(
        address.bootstrap_servers,
        address.client,
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
    )
    return KafkaProducer(config, native="auto" if bulk else "off")


def offsets_at_time(
    address: ClusterAddress, group: str, partitions: Sequence[TopicPartition], at_ms: int
) -> dict[TopicPartition, int]:
    """The first offset of each partition from that time on; partitions without such a record are left out."""
    return offsets_since(consumer_config(address.bootstrap_servers, group, address.client), partitions, at_ms)
