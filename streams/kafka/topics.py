"""Topic commands for users: create, list, describe, delete. For the worker's calls see ``admin``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.state.errors import EnvironmentFault, PenstockError, RetriableError, SettingsError, UserError
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.connection_causes import ConnectionCauses
from penstock.streams.kafka.errors import SILENT, error_of, refused_config, translated
from penstock.streams.kafka.request_retries import answered, has_code

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_SETTLE_STEP_S = 0.05
_BEHIND_S = 1.0


class TopicSummary(NamedTuple):
    """One line of a list."""

    name: str
    partitions: int
    replication_factor: int


class PartitionDescription(NamedTuple):
    """The brokers of one partition, and the offsets that it holds: ``[start_offset, end_offset)``."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start_offset: int
    end_offset: int


class TopicDescription(NamedTuple):
    """A topic. ``configs``: the settings that differ from the cluster's, by name."""

    name: str
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]


def parse_retention_ms(text: str) -> int:
    """Parse "1d", "90m", "500ms" or "2w" to milliseconds; "forever" is -1, as in Kafka.

    Raises ``SettingsError`` for anything else, including a number without a unit.
    """
    if text == "forever":
        return -1
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d|w)", text.strip())
    if match is None:
        raise SettingsError(f"invalid retention {text!r}; write a number and its unit (ms, s, m, h, d, w), or: forever")
    return int(match[1]) * _UNITS_MS[match[2]]


def unknown_topic(name: str) -> UserError:
    """Return the error to raise for a missing topic."""
    return UserError(f"there is no topic {name!r}. Create it with: penstock topics create {name} --partitions 1")


class Topics:
    """The topics of one cluster. ``client_config``: any librdkafka keys (security and such). Every call raises
    ``EnvironmentFault`` if no broker answers within ``timeout_s``."""

    def __init__(self, servers: str, client_config: Mapping[str, str], *, timeout_s: float = 30.0) -> None:
        self._servers = servers
        self._causes = ConnectionCauses()
        self._timeout_s = timeout_s
        config: dict[str, Any] = {
            "log_level": 2,
            **client_config,
            "error_cb": self._causes,
            "bootstrap.servers": servers,
        }
        try:
            self._client = AdminClient(config, logger=client_logger())
        except (KafkaException, ValueError, TypeError) as exc:
            raise refused_config(exc) from exc

    def create(self, name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> None:
        """Create a topic; return when the cluster knows it. Raises ``UserError`` if it exists, or Kafka refuses it."""
        if partitions < 1 or replication_factor < 1:
            raise SettingsError(
                f"cannot create a topic with {partitions} partitions and replication factor {replication_factor}; "
                "give at least 1 for each"
            )
        self._metadata()
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs))

        def ask(left_s: float) -> None:
            self._client.create_topics([topic], request_timeout=left_s, operation_timeout=left_s)[name].result()

        there = UserError(f"topic {name} exists already; see: penstock topics describe {name}")
        self._change(ask, f"creating topic {name}", {KafkaError.TOPIC_ALREADY_EXISTS}, there)
        self._settle(name, lambda topic: topic is not None, f"topic {name} was created")

    def list(self, *, internal: bool = False) -> list[TopicSummary]:
        """List all topics by name; Kafka's own (``__consumer_offsets`` and such) only if ``internal``."""
        found = self._metadata().topics.values()
        return sorted(
            TopicSummary(topic.topic, len(topic.partitions), len(topic.partitions[0].replicas))
            for topic in found
            if topic.partitions and (internal or not topic.topic.startswith("__"))
        )

    def describe(self, name: str) -> TopicDescription:
        """Return partitions, offsets and settings. Raises ``UserError`` if the topic does not exist."""
        topic = self._find(name)
        starts = self._offsets(name, topic.partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # untyped in the client
        ends = self._offsets(name, topic.partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # untyped in the client
        partitions = tuple(
            PartitionDescription(p.id, p.leader, tuple(p.replicas), tuple(p.isrs), starts[p.id], ends[p.id])
            for p in sorted(topic.partitions.values(), key=lambda p: p.id)
        )
        resource = ConfigResource(ResourceType.TOPIC, name)

        def ask(left_s: float) -> Any:
            return self._client.describe_configs([resource], request_timeout=left_s)[resource].result()

        entries = self._answered(ask, f"reading the settings of topic {name}", exists=True)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        configs = {key: str(entry.value) for key, entry in sorted(entries.items()) if entry.source == own}
        return TopicDescription(name, partitions, configs)

    def alter(self, name: str, *, configs: Mapping[str, str], partitions: int | None = None) -> None:
        """Change these settings and no others, and give the topic more partitions. Raises ``UserError`` if it is absent,
        has as many already, or Kafka refuses a setting. Partitions come last; returns when the brokers show them."""
        there = self.require(name)
        if partitions is not None and partitions <= there:
            raise UserError(
                f"topic {name} has {there} partitions, and cannot have fewer or the same again; give more than {there}, or "
                "make another topic"
            )
        if configs:
            entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in configs.items()]
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)

            def ask(left_s: float) -> None:
                self._client.incremental_alter_configs([resource], request_timeout=left_s)[resource].result()

            self._change(ask, f"altering topic {name}", ())
        if partitions is not None:
            wanted = NewPartitions(name, partitions)

            def grow(left_s: float) -> None:
                self._client.create_partitions([wanted], request_timeout=left_s, operation_timeout=left_s)[
                    name
                ].result()

            self._change(grow, f"giving topic {name} {partitions} partitions", {KafkaError.INVALID_PARTITIONS})
            given = f"topic {name} was given {partitions} partitions"
            self._settle(name, lambda topic: topic is not None and len(topic.partitions) >= partitions, given)

    def delete(self, name: str) -> None:
        """Delete a topic and its records; return when the cluster no longer knows it.

        Raises ``UserError`` if the topic does not exist.
        """
        self._find(name)

        def ask(left_s: float) -> None:
            self._client.delete_topics([name], request_timeout=left_s, operation_timeout=left_s)[name].result()

        self._change(ask, f"deleting topic {name}", _ABSENT)
        self._settle(name, lambda topic: topic is None, f"topic {name} was deleted")

    def require(self, name: str) -> int:
        """Return a topic's number of partitions. Raises ``UserError`` if the topic does not exist."""
        return len(self._find(name).partitions)

    def _find(self, name: str) -> Any:
        """Return a topic's metadata. Asks for a while before it gives up, longer with more brokers: the broker that
        answers may not know yet about a topic that another has just created."""
        began = time.monotonic()
        while True:
            found = self._metadata()
            topic = found.topics.get(name)
            if topic is not None and topic.partitions:
                return topic
            if time.monotonic() - began > _BEHIND_S * max(len(found.brokers), 1):
                raise unknown_topic(name)
            time.sleep(_SETTLE_STEP_S)

    def _metadata(self) -> Any:
        # All topics, not one by name: asking for one by name would create it where the cluster allows that.
        return self._answered(
            lambda left_s: self._causes.metadata(self._client, self._servers, left_s), "asking for the topics"
        )

    def _offsets(self, name: str, partitions: Mapping[int, Any], spec: Any) -> dict[int, int]:
        """Offsets by partition."""
        wanted = {TopicPartition(name, partition): spec for partition in partitions}

        def ask(left_s: float) -> dict[int, int]:
            asked = self._client.list_offsets(wanted, request_timeout=left_s)
            return {tp.partition: found.result().offset for tp, found in asked.items()}

        found: dict[int, int] = self._answered(ask, f"reading the offsets of {name}", exists=True)
        return found

    def _settle(self, name: str, shows: Callable[[Any], bool], done: str) -> None:
        """Wait until the brokers' metadata of the topic, ``None`` while it is absent, ``shows`` what was ``done``."""
        until = time.monotonic() + self._timeout_s
        while not shows(self._metadata().topics.get(name)):
            if time.monotonic() > until:
                raise EnvironmentFault(
                    f"{done}, which the brokers do not show after {self._timeout_s:g} s. See: penstock topics list, and the "
                    "brokers' logs"
                )
            time.sleep(_SETTLE_STEP_S)

    def _change(
        self, ask: Callable[[float], None], doing: str, done: Collection[int], refusal: PenstockError | None = None
    ) -> None:
        """Make a change. If an earlier attempt got no answer, an error that says it is ``done`` means that the earlier
        attempt did it. Otherwise it is an error, ``refusal`` if given."""
        attempts = 0

        def attempt(left_s: float) -> None:
            nonlocal attempts
            attempts += 1
            try:
                ask(left_s)
            except KafkaException as exc:
                if attempts > 1 and has_code(exc, done):
                    return
                if refusal is not None and has_code(exc, done):
                    raise refusal from exc
                raise

        self._answered(attempt, doing)

    def _answered(self, ask: Callable[[float], Any], doing: str, *, exists: bool = False) -> Any:
        """See ``asking.answered``. ``exists``: the topic is known to exist, so a broker that does not know it is only
        behind."""

        def waiting(left_s: float) -> Any:
            try:
                return ask(left_s)
            except KafkaException as exc:
                if exists and has_code(exc, _ABSENT):
                    raise RetriableError(f"{translated(exc, doing)}, or try again if it was made just now") from exc
                raise

        return answered(waiting, doing, self._timeout_s, lambda exc: self._translated(exc, doing))

    def _translated(self, exc: KafkaException, doing: str) -> PenstockError:
        err = error_of(exc)
        if err is not None and err.code() in SILENT:
            self._client.poll(0)
            return self._causes.fault(self._servers)
        return translated(exc, doing)


def ignore_connection_error(error: object) -> None:
    """Ignore connection errors: the calls that need the connection raise them."""
