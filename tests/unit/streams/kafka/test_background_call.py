"""One call at a time in the background, whose error is raised where it is waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.streams.kafka.background_call import BackgroundCall


def failing() -> None:
    raise KeyError("gone")


def test_a_call_goes_on_beside_its_caller() -> None:
    background, goes_on, ran = BackgroundCall("test-call"), threading.Event(), list[str]()

    def call() -> None:
        assert goes_on.wait(30)
        background.wait()  # itself: else it would wait for ever
        ran.append(threading.current_thread().name)

    background.start(call)
    assert not ran
    goes_on.set()
    background.finish()
    assert ran == ["test-call"]
    background.finish()
    background.close()


def test_an_error_is_raised_once_or_forgotten() -> None:
    background = BackgroundCall("test-call")
    background.start(failing)
    background.wait()
    with pytest.raises(KeyError, match="gone"):
        background.finish()
    background.finish()
    background.start(failing)
    background.forget()
    background.finish()
    background.close()


def test_what_no_except_catches_is_an_error_too() -> None:
    background = BackgroundCall("test-call")

    def fatal() -> None:
        error: Any = KafkaError(KafkaError._FATAL, "given up", fatal=True)
        raise error

    background.start(fatal)
    with pytest.raises(KafkaException, match="given up"):
        background.finish()
    background.start(lambda: None)
    background.finish()
    background.close()
