"""The admin port on librdkafka. Every call asks the cluster; nothing is remembered."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.state.errors import IncompatibleError, RetriableError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.errors import error_of, translate, translated
from penstock.streams.log_errors import UnknownTopicError
from penstock.streams.ports import Committed, Deletion, TopicSpec

_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_BUSY = frozenset({KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH})
_SETTLE_STEP_S = 0.05
_NEWER = "message.timestamp.after.max.ms"


class KafkaAdmin:
    """``LogAdmin`` on a real cluster. ``config`` is what ``client_config.admin_config`` made; each request is bounded
    by ``request_timeout_s`` and ends in ``RetriableError`` when the brokers do not answer in it."""

    def __init__(self, config: Mapping[str, Any], *, request_timeout_s: float = 30.0) -> None:
        self._request_timeout_s = request_timeout_s
        try:
            self._client = AdminClient(dict(config), logger=client_logger())
        except (KafkaException, ValueError, TypeError) as exc:
            raise translated(exc, "opening an admin client") from exc

    def cluster_id(self) -> str:
        """See the port."""
        asked = self._client.describe_cluster(request_timeout=self._request_timeout_s)
        try:
            return str(asked.result().cluster_id)
        except KafkaException as exc:
            raise translated(exc, "asking for the cluster id") from exc

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """See the port."""
        return {name: len(found.partitions) for name, found in self._described(topics).items()}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """See the port."""
        return {name: str(found.topic_id) for name, found in self._described(topics).items()}

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        names = sorted(set(topics))
        if not names:
            return {}
        asked = self._client.describe_topics(TopicCollection(names), request_timeout=self._request_timeout_s)
        out: dict[str, Any] = {}
        for name, future in asked.items():
            try:
                out[name] = future.result()
            except KafkaException as exc:
                err = error_of(exc)
                if err is None or err.code() not in _ABSENT:
                    raise translated(exc, f"describing topic {name}") from exc
        return out

    def topic_config(self, topic: str) -> dict[str, str]:
        """See the port. Raises ``UnknownTopicError``."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        asked = self._client.describe_configs([resource], request_timeout=self._request_timeout_s)
        try:
            entries = asked[resource].result()
        except KafkaException as exc:
            err = error_of(exc)
            if err is not None and err.code() in _ABSENT:
                raise UnknownTopicError(topic, err.str()) from exc
            raise translated(exc, f"reading the settings of topic {topic}") from exc
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """See the port. Returns when the new topics can be described."""
        wanted = {spec.name: spec for spec in topics}
        there = self.partition_counts(list(wanted))
        missing = [spec for spec in topics if spec.name not in there]
        if missing:
            refused = self._create(missing, {KafkaError.INVALID_CONFIG})
            if refused:  # brokers before 3.6 do not know it, and take times of the future without it
                self._create([_without_newer_settings(s) for s in refused], set())
            there = self._settled(list(wanted))
        for name, spec in wanted.items():
            if there[name] != spec.partitions:
                raise IncompatibleError(
                    f"topic {name} has {there[name]} partitions, the topology needs {spec.partitions}; "
                    "delete the topic if it may go, or use another application_id"
                )

    def _create(self, specs: Sequence[TopicSpec], passing: set[int]) -> list[TopicSpec]:
        """Create topics; those that were refused for one of these reasons come back."""
        asked = self._client.create_topics(
            [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs],
            request_timeout=self._request_timeout_s,
            operation_timeout=self._request_timeout_s,
        )
        refused: list[TopicSpec] = []
        for spec in specs:
            try:
                asked[spec.name].result()
            except KafkaException as exc:
                err = error_of(exc)
                code = None if err is None else err.code()
                if code in passing and _NEWER in spec.config:
                    refused.append(spec)
                elif code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise translated(exc, f"creating topic {spec.name}") from exc
        return refused

    def _settled(self, names: Sequence[str]) -> dict[str, int]:
        """Partition counts once the brokers know every one of the topics."""
        until = time.monotonic() + self._request_timeout_s
        while True:
            there = self.partition_counts(names)
            missing = [name for name in names if name not in there]
            if not missing:
                return there
            if time.monotonic() > until:
                raise RetriableError(
                    f"topics {missing} were created but are not known after {self._request_timeout_s} s; try again"
                )
            time.sleep(_SETTLE_STEP_S)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        """See the port."""
        native = [confluent_kafka.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        try:
            asked = self._client.delete_records(native, request_timeout=self._request_timeout_s)
        except KafkaException as exc:
            said = str(translated(exc, "deleting records"))
            return lambda: dict.fromkeys(offsets, said)

        return lambda: self._deleted(asked)  # holds on to the client, without which nobody answers

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
        try:
            found = self._client.list_topics(timeout=self._request_timeout_s).topics
        except KafkaException as exc:
            raise translated(exc, "listing the topics") from exc
        return {name: len(topic.partitions) for name, topic in found.items() if name.startswith(prefix)}

    def groups(self, prefix: str) -> list[str]:
        """See the port."""
        asked = self._client.list_consumer_groups(request_timeout=self._request_timeout_s)
        try:
            found = asked.result()
        except KafkaException as exc:
            raise translated(exc, "listing the groups") from exc
        if found.errors:
            raise translated(found.errors[0], "listing the groups") from found.errors[0]
        return [group.group_id for group in found.valid if group.group_id.startswith(prefix)]

    def group_members(self, group: str) -> int:
        """See the port. A group that does not exist has none. A coordinator that is not ready yet, as right after the
        cluster was started, is asked again."""
        until = time.monotonic() + self._request_timeout_s
        while True:
            try:
                return self._members(group)
            except RetriableError:
                if time.monotonic() > until:
                    raise
                time.sleep(_SETTLE_STEP_S)

    def _members(self, group: str) -> int:
        asked = self._client.describe_consumer_groups([group], request_timeout=self._request_timeout_s)
        try:
            return len(asked[group].result().members)
        except KafkaException as exc:
            err = error_of(exc)
            if err is not None and err.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return 0
            raise translated(exc, f"describing group {group}") from exc

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """See the port. Raises ``UserError`` while the group has members."""
        if not offsets:
            return
        native = [
            confluent_kafka.TopicPartition(tp.topic, tp.partition, c.offset, c.metadata) for tp, c in offsets.items()
        ]
        asked = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, native)], request_timeout=self._request_timeout_s
        )
        doing = f"setting the committed positions of group {group}"
        try:
            done = asked[group].result()
        except KafkaException as exc:
            err = error_of(exc)
            if err is not None:
                self._refuse_busy(err, group, exc)
            raise translated(exc, doing) from exc
        for part in done.topic_partitions or ():
            if part.error is not None:
                self._refuse_busy(part.error, group, None)
                raise translate(part.error, f"{doing} at {part.topic} [{part.partition}]")

    def _refuse_busy(self, err: KafkaError, group: str, cause: BaseException | None) -> None:
        if err.code() in _BUSY:
            raise UserError(f"group {group} has members; stop its workers before its positions are set") from cause


def _without_newer_settings(spec: TopicSpec) -> TopicSpec:
    return TopicSpec(
        spec.name, spec.partitions, spec.replication_factor, {k: v for k, v in spec.config.items() if k != _NEWER}
    )
