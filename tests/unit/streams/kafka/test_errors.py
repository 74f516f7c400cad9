"""Which of Penstock's errors a code of the client becomes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import EnvironmentFault, PenstockError, RetriableError, TaskMigratedError, UserError
from penstock.streams.kafka.errors import error_of, translate, translated
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, StaleEpochError

FATAL, RETRIABLE, ABORT = {"fatal": True}, {"retriable": True}, {"txn_requires_abort": True}


@pytest.mark.parametrize(
    ("code", "flags", "expected"),
    [
        (KafkaError._FENCED, FATAL, TaskMigratedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, ABORT, TaskMigratedError),
        (KafkaError.ILLEGAL_GENERATION, ABORT, StaleEpochError),
        (KafkaError.STALE_MEMBER_EPOCH, {}, StaleEpochError),
        (KafkaError.UNKNOWN_MEMBER_ID, {}, TaskMigratedError),
        (KafkaError.GROUP_ID_NOT_FOUND, {}, TaskMigratedError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ABORT, AbortableError),
        (KafkaError._GAPLESS_GUARANTEE, FATAL, AbortableError),
        (KafkaError._FATAL, {}, ProducerRetiredError),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, FATAL, ProducerRetiredError),
        (KafkaError._TIMED_OUT, {}, RetriableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, RETRIABLE, RetriableError),
        (KafkaError.UNKNOWN_LEADER_EPOCH, {}, RetriableError),
        (KafkaError.FENCED_LEADER_EPOCH, {}, RetriableError),
        (KafkaError.OFFSET_NOT_AVAILABLE, {}, RetriableError),
        (KafkaError._DESTROY_BROKER, {}, RetriableError),
        (KafkaError._UNKNOWN_BROKER, {}, RetriableError),
        (KafkaError._UNKNOWN_PARTITION, {}, RetriableError),
        (KafkaError._RESOLVE, {}, RetriableError),
        (KafkaError.BROKER_NOT_AVAILABLE, {}, RetriableError),
        (KafkaError.FENCED_INSTANCE_ID, FATAL, UserError),
        (KafkaError.FENCED_INSTANCE_ID, ABORT, UserError),
        (KafkaError.UNRELEASED_INSTANCE_ID, {}, RetriableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {}, UserError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ABORT, UserError),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, ABORT, UserError),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FATAL, UserError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, {}, UserError),
        (KafkaError.UNKNOWN, {}, EnvironmentFault),
    ],
)
def test_code_becomes(code: int, flags: dict[str, bool], expected: type[PenstockError]) -> None:
    error = translate(KafkaError(code, "seen", **flags), "doing this")
    assert type(error) is expected
    assert "doing this" in str(error)
    assert "seen" in str(error)


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("Unable to replicate the partition 1 time(s): All brokers are currently fenced", RetriableError),
        ("Unable to replicate the partition 3 time(s): only 1 broker(s) are registered", UserError),
    ],
)
def test_brokers_that_are_fenced_for_the_moment_are_waited_for(why: str, expected: type[PenstockError]) -> None:
    assert type(translate(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, why), "creating topics")) is expected


def test_a_consumer_that_was_fenced_by_its_twin_is_known_by_the_text() -> None:
    why = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
    error = translate(KafkaError(KafkaError._FATAL, f"Fatal error: {why}"), "reading")
    assert type(error) is UserError
    assert "group_instance_id" in str(error)


def test_a_consumer_whose_former_self_is_still_a_member_waits() -> None:
    """The client reports a fatal error; another client is let in when the broker has given up the former one."""
    why = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
    error = translate(KafkaError(KafkaError._FATAL, f"Fatal error: {why}"), "reading")
    assert type(error) is RetriableError
    assert "group_instance_id" in str(error)


def test_a_missing_right_that_made_a_client_unusable_is_known_by_the_text() -> None:
    why = f"unable to satisfy gap-less guarantee: {KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).str()} (broker 0)"
    error = translate(KafkaError(KafkaError._GAPLESS_GUARANTEE, why, fatal=True), "sending")
    assert type(error) is UserError
    assert "grant this principal the topic" in str(error)


def test_error_is_found_in_what_caused_the_exception() -> None:
    inner = KafkaException(KafkaError(KafkaError._GAPLESS_GUARANTEE, "refused", fatal=True))
    outer = SystemError("returned a result with an exception set")
    outer.__cause__ = inner
    found = error_of(outer)
    assert found is not None
    assert found.code() == KafkaError._GAPLESS_GUARANTEE
    assert type(translated(outer, "flushing")) is AbortableError


def test_exception_without_a_code_is_a_broken_client() -> None:
    assert error_of(RuntimeError("closed")) is None
    assert type(translated(RuntimeError("closed"), "flushing")) is ProducerRetiredError
