"""A topic that is so new that not every broker knows it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import RetriableError
from penstock.streams.kafka import admin
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.ports.log import TopicSpec
from penstock.streams.ports.log_errors import UnknownTopicError


def future(value: object) -> Future[Any]:
    out: Future[Any] = Future()
    if isinstance(value, Exception):
        out.set_exception(value)
    else:
        out.set_result(value)
    return out


class Brokers:
    """Brokers that know a topic from the request number ``known_from`` on. Another request is an ``AttributeError``."""

    def __init__(self, known_from: float) -> None:
        self.known_from, self.requests = known_from, 0

    def _answer(self, value: object) -> Future[Any]:
        self.requests += 1
        known = self.requests >= self.known_from
        return future(value if known else KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such topic")))

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        entries = {"retention.ms": SimpleNamespace(value="77"), "unset": SimpleNamespace(value=None)}
        return {resource: self._answer(entries) for resource in resources}

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: self._answer(SimpleNamespace(partitions=[0, 1])) for name in ["t"]}

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[Any]]:
        return {topic.topic: future(None) for topic in topics}


def asked(brokers: Brokers) -> KafkaAdmin:
    found = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=0.3)
    found._client = brokers  # type: ignore[assignment]  # the part of the client that is used here
    return found


def test_its_settings_are_asked_for_again() -> None:
    brokers = Brokers(known_from=3)
    assert asked(brokers).topic_config("t") == {"retention.ms": "77"}
    assert brokers.requests == 3, "and nothing else was asked"


def test_one_that_stays_unknown_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_NEW_TOPIC_S", 0.2)
    brokers = Brokers(known_from=float("inf"))
    with pytest.raises(UnknownTopicError, match="topic 't' is not known to the cluster: no such topic"):
        asked(brokers).topic_config("t")
    assert brokers.requests > 2


def test_creating_returns_when_it_can_be_described() -> None:
    brokers = Brokers(known_from=4)
    asked(brokers).create_topics([TopicSpec("t", 2)])
    assert brokers.requests == 4


def test_creating_names_the_topics_that_stay_unknown() -> None:
    with pytest.raises(RetriableError, match=r"topics \['t'\] were created but are not known after 0.3 s"):
        asked(Brokers(known_from=float("inf"))).create_topics([TopicSpec("t", 2)])
