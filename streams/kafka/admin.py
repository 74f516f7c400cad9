"""The admin port on librdkafka. Every call asks the cluster; nothing is remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.state.errors import IncompatibleError, PenstockError, RetriableError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.client_partitions import to_client, to_commit
from penstock.streams.kafka.connection_causes import ConnectionCauses
from penstock.streams.kafka.coordinator_requests import COORDINATOR_TIMEOUT_S, CoordinatorClient
from penstock.streams.kafka.errors import SILENT, error_of, not_opened, translate, translated
from penstock.streams.kafka.request_retries import answered, answered_by_successor, has_code
from penstock.streams.ports.log import Asked, Deletion, OffsetAndMetadata, TopicSpec
from penstock.streams.ports.log_errors import UnknownTopicError

_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_BUSY = frozenset({KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH})
CONTACT_S = 5.0
"""How long the first request waits for an answer; it is sent twice."""
GROUP_ATTEMPT_S = 5.0
"""How long one attempt to describe a group waits: the client does not ask a coordinator again that was away when asked."""
_KNOWN_STEP_S = 0.05
_NEW_TOPIC_S = 5.0
"""So long a topic may be unknown to a broker that another one has told of it."""
T = TypeVar("T")
_NEWER = "message.timestamp.after.max.ms"


class KafkaAdmin:
    """``LogAdmin`` on a real cluster. ``config`` comes from ``client_config.admin_config``. While the brokers say that
    they may answer later, a request is repeated, for up to ``request_timeout_s`` in all, and then raises
    ``RetriableError``."""

    def __init__(self, config: Mapping[str, Any], *, request_timeout_s: float = 30.0) -> None:
        self._request_timeout_s = request_timeout_s
        self._servers = str(config.get("bootstrap.servers", ""))
        self._causes = ConnectionCauses()
        try:
            listening: dict[str, Any] = {**config, "error_cb": self._causes}
            self._open_client: Callable[[], AdminClient] = lambda: AdminClient(listening, logger=client_logger())
            self._client = self._open_client()
            self._coordinators = CoordinatorClient(self._open_client)
        except (KafkaException, ValueError, TypeError) as exc:
            raise not_opened(exc, "opening an admin client") from exc

    def require_answer(self) -> None:
        """Call it first if a user is waiting. Raises ``EnvironmentFault`` if no broker answers within twice
        ``CONTACT_S``, which is sooner than other requests give up, and ``UserError`` if one refuses the connection."""

        def explained(exc: KafkaException) -> PenstockError:
            self._client.poll(0)  # serves the client's log lines, which say why
            return self._causes.fault(self._servers) if has_code(exc, SILENT) else translated(exc, doing)

        doing = "looking for a broker"
        answered(lambda left_s: self._causes.metadata(self._client, self._servers, left_s), doing, CONTACT_S, explained)

    def _asked(self, ask: Callable[[float], T], doing: str) -> T:
        """The client sends most requests to the broker that it knows as the controller. It may wait for that one forever
        while the same broker answers other requests, so after a request in vain among brokers that answer, the next one goes
        through a new client."""
        brokers_answer = False

        def look(given_s: float) -> None:
            nonlocal brokers_answer
            brokers_answer = False
            self._client.list_topics(timeout=given_s)
            brokers_answer = True

        try:
            return answered_by_successor(ask, doing, self._request_timeout_s, look)
        except RetriableError:
            if brokers_answer:
                self._client = self._open_client()
            raise

    def cluster_id(self) -> str:
        """See the port."""

        def ask(left_s: float) -> str:
            return str(self._client.describe_cluster(request_timeout=left_s).result().cluster_id)

        return self._asked(ask, "asking for the cluster id")

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See the port."""
        return {name: len(found.partitions) for name, found in self._described(topics).items()}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See the port."""
        return {name: str(found.topic_id) for name, found in self._described(topics).items()}

    def ask_topic_ids(self, topics: Sequence[str]) -> Asked:
        """Request topic ids without waiting: see ``TopicWatch``."""
        try:
            asked = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=self._request_timeout_s)
        except (KafkaException, SystemError):
            return dict

        def answer() -> dict[str, str] | None:
            if not all(future.done() for future in asked.values()):
                return None
            out: dict[str, str] = {}
            for name, future in asked.items():
                try:
                    out[name] = str(future.result().topic_id)
                except KafkaException as exc:
                    if not has_code(exc, _ABSENT):
                        return {}
            return out

        return answer

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        names = sorted(set(topics))
        if not names:
            return {}

        def ask(left_s: float) -> dict[str, Any]:
            out: dict[str, Any] = {}
            for name, future in self._client.describe_topics(TopicCollection(names), request_timeout=left_s).items():
                try:
                    out[name] = future.result()
                except KafkaException as exc:
                    if not has_code(exc, _ABSENT):
                        raise
            return out

        return self._asked(ask, f"describing topics {', '.join(names)}")

    def topic_config(self, topic: str) -> dict[str, str]:
        """See the port. A topic that the brokers do not know may be new, so the request is repeated for some seconds. Raises
        ``UnknownTopicError``."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        seen = ""

        def ask(left_s: float) -> Any:
            nonlocal seen
            try:
                return self._client.describe_configs([resource], request_timeout=left_s)[resource].result()
            except KafkaException as exc:
                err = error_of(exc)
                if err is None or err.code() not in _ABSENT:
                    raise
                seen = err.str()
                return None

        entries = _once_known(lambda: self._asked(ask, f"reading the settings of topic {topic}"), _NEW_TOPIC_S)
        if entries is None:
            raise UnknownTopicError(topic, seen)
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """See the port."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)

        def ask(left_s: float) -> None:
            self._client.incremental_alter_configs([resource], request_timeout=left_s)[resource].result()

        doing = f"setting {', '.join(f'{name}={value}' for name, value in config.items())} of topic {topic}"
        self._asked(ask, doing)

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """See the port. Returns when the new topics can be described."""
        wanted = {spec.name: spec for spec in topics}
        there = self.partition_counts(list(wanted))
        missing = [spec for spec in topics if spec.name not in there]
        if missing:
            refused = self._create(missing, {KafkaError.INVALID_CONFIG})
            if refused:  # brokers before 3.6 do not know the setting, and accept future timestamps without it
                self._create([_without_newer_settings(s) for s in refused], set())
            there = self._settled(list(wanted))
        for name, spec in wanted.items():
            if there[name] != spec.partitions:
                raise IncompatibleError(
                    f"topic {name} has {there[name]} partitions, the topology needs {spec.partitions}; "
                    "delete the topic if it may go, or use another application_id"
                )

    def _create(self, specs: Sequence[TopicSpec], passing: set[int]) -> list[TopicSpec]:
        """Create topics. Returns those that were refused for one of the ``passing`` reasons."""
        new = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs]

        def ask(left_s: float) -> list[TopicSpec]:
            asked = self._client.create_topics(new, request_timeout=left_s, operation_timeout=left_s)
            refused: list[TopicSpec] = []
            for spec in specs:
                try:
                    asked[spec.name].result()
                except KafkaException as exc:
                    if has_code(exc, passing) and _NEWER in spec.config:
                        refused.append(spec)
                    elif not has_code(exc, {KafkaError.TOPIC_ALREADY_EXISTS}):
                        raise
            return refused

        return self._asked(ask, f"creating topics {', '.join(s.name for s in specs)}")

    def _settled(self, names: Sequence[str]) -> dict[str, int]:
        """Return partition counts once the brokers know all of the topics."""
        missing: list[str] = []

        def look() -> dict[str, int] | None:
            nonlocal missing
            there = self.partition_counts(names)
            missing = [name for name in names if name not in there]
            return None if missing else there

        there = _once_known(look, self._request_timeout_s)
        if there is None:
            raise RetriableError(
                f"topics {missing} were created but are not known after {self._request_timeout_s} s; try again"
            )
        return there

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        """See the port."""
        native = [to_client(tp, offset) for tp, offset in offsets.items()]
        try:
            asked = self._client.delete_records(native, request_timeout=self._request_timeout_s)
        except KafkaException as exc:
            said = str(translated(exc, "deleting records"))
            return lambda: dict.fromkeys(offsets, said)

        return lambda: self._deleted(asked)  # keeps the client alive, without which no answer comes

    def _deleted(self, asked: Mapping[Any, Future[Any]]) -> dict[TopicPartition, str] | None:
        if not all(future.done() for future in asked.values()):
            return None
        return {
            TopicPartition(part.topic, part.partition): str(exc)
            for part, future in asked.items()
            if (exc := future.exception()) is not None
        }

    def topics(self, prefix: str) -> dict[str, int]:
        """See the port."""

        def ask(left_s: float) -> Any:
            return self._client.list_topics(timeout=left_s).topics

        found = self._asked(ask, "listing the topics")
        return {name: len(topic.partitions) for name, topic in found.items() if name.startswith(prefix)}

    def groups(self, prefix: str) -> list[str]:
        """See the port."""

        def ask(left_s: float) -> Any:
            found = self._client.list_consumer_groups(request_timeout=left_s).result()
            if found.errors:
                raise found.errors[0]
            return found.valid

        found = self._asked(ask, "listing the groups")
        return [group.group_id for group in found if group.group_id.startswith(prefix)]

    def group_members(self, group: str) -> int:
        """See the port. A group that does not exist has none."""
        return len(self.group_clients(group))

    def group_clients(self, group: str) -> list[str]:
        """See the port."""
        return list(self.group_member_ids(group).values())

    def group_member_ids(self, group: str) -> dict[str, str]:
        """See the port."""

        def ask(left_s: float) -> dict[str, str]:
            def describe(client: AdminClient) -> dict[str, Future[Any]]:
                return client.describe_consumer_groups([group], request_timeout=COORDINATOR_TIMEOUT_S)

            try:
                found = self._coordinators.ask(describe, min(left_s, GROUP_ATTEMPT_S))[group]
            except KafkaException as exc:
                if has_code(exc, {KafkaError.GROUP_ID_NOT_FOUND}):
                    return {}
                raise
            return {member.member_id: member.client_id for member in found.members}

        return answered(ask, f"describing group {group}", self._request_timeout_s)

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See the port. Raises ``UserError`` while the group has members."""
        if not offsets:
            return
        native = to_commit(offsets)
        doing = f"setting the committed positions of group {group}"

        def ask(left_s: float) -> None:
            def alter(client: AdminClient) -> dict[str, Future[Any]]:
                wanted = [ConsumerGroupTopicPartitions(group, native)]
                return client.alter_consumer_group_offsets(wanted, request_timeout=COORDINATOR_TIMEOUT_S)

            try:
                done = self._coordinators.ask(alter, left_s)[group]
            except KafkaException as exc:
                if has_code(exc, _BUSY):
                    raise _busy(group) from exc
                raise
            for part in done.topic_partitions or ():
                if part.error is not None:
                    if part.error.code() in _BUSY:
                        raise _busy(group)
                    raise translate(part.error, f"{doing} at {part.topic} [{part.partition}]")

        answered(ask, doing, self._request_timeout_s)


def _busy(group: str) -> UserError:
    return UserError(f"group {group} has members; stop its workers before its positions are set")


def _once_known(look: Callable[[], T | None], limit_s: float) -> T | None:
    """Call ``look`` for a topic so new that not every broker knows it, until it finds something, or ``limit_s`` is
    over. The last call begins after that time, since a process may have been frozen."""
    until_s = time.monotonic() + limit_s
    while True:
        last = time.monotonic() >= until_s
        found = look()
        if found is not None or last:
            return found
        time.sleep(_KNOWN_STEP_S)


def _without_newer_settings(spec: TopicSpec) -> TopicSpec:
    return TopicSpec(
        spec.name, spec.partitions, spec.replication_factor, {k: v for k, v in spec.config.items() if k != _NEWER}
    )
