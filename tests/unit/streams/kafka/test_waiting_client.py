"""A client that waits in vain for the controller, while the same broker answers it, is replaced."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import RetriableError
from penstock.streams.kafka.admin import KafkaAdmin
from tests.unit.streams.kafka.test_new_topics import future

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller: Local: Timed out"))
NO_BROKER = KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure"))


class Waiting:
    """A client whose requests to the controller end in vain. ``metadata``: what asking a broker raises."""

    def __init__(self, metadata: Exception | None = None) -> None:
        self._metadata = metadata

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return dict.fromkeys(resources, future(TIMED_OUT))

    def list_topics(self, **_: Any) -> None:
        if self._metadata is not None:
            raise self._metadata


class Healthy:
    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return dict.fromkeys(resources, future({"retention.ms": SimpleNamespace(value="77")}))


def admin_of(client: Waiting) -> KafkaAdmin:
    found = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=0.3)
    found._client = client  # type: ignore[assignment]  # the part of the client that is used here
    found._open_client = Healthy  # type: ignore[assignment]  # as above
    return found


def test_the_next_request_goes_through_a_new_client() -> None:
    admin = admin_of(Waiting())
    with pytest.raises(RetriableError, match="waiting for controller"):
        admin.topic_config("t")
    assert admin.topic_config("t") == {"retention.ms": "77"}


def test_a_client_without_brokers_stays() -> None:
    client = Waiting(NO_BROKER)
    admin = admin_of(client)
    with pytest.raises(RetriableError):
        admin.topic_config("t")
    assert vars(admin)["_client"] is client
