"""The operations that the brokers authorize this principal to do. Without an authorizer, these are all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from penstock.streams.kafka.client_config import admin_config
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.coordinator_requests import COORDINATOR_TIMEOUT_S, CoordinatorClient
from penstock.streams.kafka.request_retries import answered, has_code

_TIMEOUT_S = 30.0
_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})
_ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.GROUP_ID_NOT_FOUND})


class GrantedRights:
    """Asks the brokers for the operations of this principal. Rights to transactional ids, and to topics that do not exist,
    cannot be asked for."""

    def __init__(self, servers: str, client: Mapping[str, Any]) -> None:
        self._admin = self._open(servers, client)
        self._coordinators = CoordinatorClient(lambda: self._open(servers, client))

    @staticmethod
    def _open(servers: str, client: Mapping[str, Any]) -> AdminClient:
        return AdminClient(admin_config(servers, client), logger=client_logger())

    def topics(self, names: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """The operations on each topic, empty where it may not even be seen; ``None`` where it does not exist."""
        wanted = sorted(set(names))

        def ask(left_s: float) -> dict[str, frozenset[str] | None]:
            asked = self._admin.describe_topics(
                TopicCollection(wanted), request_timeout=left_s, include_authorized_operations=True
            )
            return {name: _operations(future.result) for name, future in asked.items()}

        return answered(ask, "asking for the rights to topics", _TIMEOUT_S) if wanted else {}

    def groups(self, names: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """As ``topics``, of consumer groups. One that does not exist yet is ``None``."""
        out: dict[str, frozenset[str] | None] = {}
        for name in sorted(set(names)):

            def ask(left_s: float, name: str = name) -> frozenset[str] | None:
                def describe(client: AdminClient) -> dict[str, Future[Any]]:
                    return client.describe_consumer_groups(
                        [name], request_timeout=COORDINATOR_TIMEOUT_S, include_authorized_operations=True
                    )

                return _operations(lambda: self._coordinators.ask(describe, left_s)[name])

            out[name] = answered(ask, f"asking for the rights to group {name}", _TIMEOUT_S)
        return out


def _operations(ask: Callable[[], Any]) -> frozenset[str] | None:
    try:
        found = ask()
    except KafkaException as exc:
        if has_code(exc, _REFUSED):
            return frozenset()
        if has_code(exc, _ABSENT):
            return None
        raise
    return frozenset(operation.name for operation in found.authorized_operations or ())
