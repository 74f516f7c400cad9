"""The client's bare errors, which no ``except`` catches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import PenstockError
from penstock.streams.kafka.bounded_calls import BoundedCalls
from penstock.streams.kafka.catchable import CATCHABLE
from penstock.streams.kafka.reading_errors import translating


def fail() -> None:
    error: Any = KafkaError(KafkaError._FATAL, "given up", fatal=True)
    raise error


def test_bare_error_becomes_one_that_can_be_caught() -> None:
    with pytest.raises(KafkaException) as caught, CATCHABLE:
        fail()
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FATAL


def test_other_errors_and_none_pass() -> None:
    with CATCHABLE:
        pass
    with pytest.raises(ValueError, match="mine"), CATCHABLE:
        raise ValueError("mine")


def test_bare_error_of_a_bounded_call_reaches_the_caller() -> None:
    calls = BoundedCalls()
    with pytest.raises(KafkaException, match="given up"):
        calls.call(fail, limit_s=10.0)
    calls.close()


def test_bare_error_of_a_consumer_is_translated() -> None:
    with pytest.raises(PenstockError, match="polling"), translating("polling"):
        fail()


def test_without_it_no_clause_catches_the_error() -> None:
    """In a process of its own, since this would end the test's."""
    program = """
from confluent_kafka import KafkaError
try:
    raise KafkaError(KafkaError._FATAL, "given up")
except BaseException:
    print("caught")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, ""), "catchable.py is not needed any more"
