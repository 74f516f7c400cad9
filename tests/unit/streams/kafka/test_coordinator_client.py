"""Requests to coordinators: which client they go through."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.streams.kafka.coordinator_requests import CoordinatorClient


class Opened:
    """Numbers the clients that are opened."""

    def __init__(self) -> None:
        self.clients = 0

    def __call__(self) -> Any:
        self.clients += 1
        return self.clients


def answered(value: object = None, code: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if code is None:
        future.set_result(value)
    else:
        future.set_exception(KafkaException(KafkaError(code)))
    return future


def test_one_client_serves_while_the_coordinator_is_found() -> None:
    opened = Opened()
    coordinators = CoordinatorClient(opened)
    assert opened.clients == 0
    for _ in range(3):
        assert coordinators.ask(lambda c: {"g": answered(c)}, 1.0) == {"g": 1}
    with pytest.raises(KafkaException):
        coordinators.ask(lambda _: {"g": answered(code=KafkaError.GROUP_ID_NOT_FOUND)}, 1.0)
    assert coordinators.ask(lambda c: {"g": answered(c)}, 1.0) == {"g": 1}


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, None])
def test_a_client_that_looks_in_the_wrong_place_is_replaced(code: int | None) -> None:
    coordinators = CoordinatorClient(Opened())
    with pytest.raises(KafkaException):
        coordinators.ask(lambda _: {"g": Future() if code is None else answered(code=code)}, 0.01)
    assert coordinators.ask(lambda c: {"g": answered(c)}, 1.0) == {"g": 2}
