"""All consumer groups of a cluster, how far one has come, and their deletion. Nothing here joins a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.state.errors import UserError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import admin_config
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.coordinator_requests import COORDINATOR_TIMEOUT_S, CoordinatorClient
from penstock.streams.kafka.group_view import GroupView
from penstock.streams.kafka.request_retries import answered, has_code
from penstock.streams.kafka.topics import Topics

_TIMEOUT_S = 30.0


class GroupSummary(NamedTuple):
    """One line of a list. ``members``: the client ids of its consumers, sorted."""

    name: str
    state: str
    members: tuple[str, ...]


class PartitionLag(NamedTuple):
    """How far a group has come in one partition. ``position``: the committed offset, the next one to be read; ``None`` where
    none is committed. ``end``: the last stable offset. ``owner``: the client id of who reads it, or ``None``."""

    topic: str
    partition: int
    position: int | None
    end: int
    owner: str | None

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be read; transaction markers count, as they do for every consumer."""
        return None if self.position is None else max(self.end - self.position, 0)


def _admin_client(servers: str, client_config: Mapping[str, str]) -> AdminClient:
    return AdminClient(admin_config(servers, client_config), logger=client_logger())


def list_groups(servers: str, client_config: Mapping[str, str]) -> list[GroupSummary]:
    """All groups by name."""
    client = _admin_client(servers, client_config)
    coordinators = CoordinatorClient(lambda: _admin_client(servers, client_config))

    def ask(left_s: float) -> list[GroupSummary]:
        found = client.list_consumer_groups(request_timeout=left_s).result()
        if found.errors:
            raise found.errors[0]
        names = [group.group_id for group in found.valid]
        if not names:
            return []
        described = coordinators.ask(
            lambda c: c.describe_consumer_groups(names, request_timeout=COORDINATOR_TIMEOUT_S), left_s
        )
        return sorted(_summary(name, answer) for name, answer in described.items())

    groups: list[GroupSummary] = answered(ask, "listing the groups", _TIMEOUT_S)
    return groups


def _summary(name: str, found: Any) -> GroupSummary:
    state = str(found.state.name).lower().replace("_", " ")
    return GroupSummary(name, state, tuple(sorted(member.client_id for member in found.members)))


def lag_of(servers: str, client_config: Mapping[str, str], group: str) -> list[PartitionLag]:
    """Every partition of the topics in which the group has a position, by topic and partition; empty where it has none."""
    listed = Topics(servers, client_config).list()
    everywhere = [TopicPartition(topic.name, number) for topic in listed for number in range(topic.partitions)]
    view = GroupView(servers, group, client_config)
    try:
        positions = view.committed(everywhere)
        wanted = partitions_of_interest(everywhere, positions)
        ends = view.ends(wanted)
        owners = view.owners() if wanted else {}
    finally:
        view.close()
    return [PartitionLag(tp.topic, tp.partition, positions.get(tp), ends[tp], owners.get(tp)) for tp in wanted]


def partitions_of_interest(
    everywhere: Sequence[TopicPartition], positions: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """All partitions of the topics that have a position, sorted: one without a position there is one that nobody read."""
    topics = {tp.topic for tp in positions}
    return sorted(tp for tp in everywhere if tp.topic in topics)


def delete_groups(servers: str, client_config: Mapping[str, str], names: Sequence[str]) -> None:
    """Delete groups with their committed positions; those that do not exist are passed over. The brokers refuse one that has
    members, and this is a ``UserError`` then; groups before it in the list may be deleted."""
    coordinators = CoordinatorClient(lambda: _admin_client(servers, client_config))
    for name in names:

        def ask(left_s: float, name: str = name) -> None:
            try:
                coordinators.ask(
                    lambda c: c.delete_consumer_groups([name], request_timeout=COORDINATOR_TIMEOUT_S), left_s
                )
            except KafkaException as exc:
                if has_code(exc, {KafkaError.NON_EMPTY_GROUP}):
                    raise UserError(f"group {name} has members; stop its workers first, then run this again") from exc
                if not has_code(exc, {KafkaError.GROUP_ID_NOT_FOUND}):
                    raise

        answered(ask, f"deleting group {name}", _TIMEOUT_S)
