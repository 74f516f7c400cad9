"""What the in-memory log has beyond the ports: faults, passing time, retention, pending positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import (
    AbortableError,
    OffsetAndMetadata,
    ProducerRetiredError,
    TopicSpec,
    UnknownOutcomeError,
)
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import POINTS, LogEntry, MemoryLog

TP = TopicPartition("t", 0)


def made() -> MemoryLog:
    log = MemoryLog()
    MemoryAdmin(log).create_topics([TopicSpec("t", 1)])
    return log


def transactional(log: MemoryLog, name: str = "tx") -> MemoryProducer:
    producer = MemoryProducer(log, transactional_id=name)
    producer.init_transactions(1)
    return producer


def commit_one(producer: MemoryProducer, value: bytes) -> None:
    producer.begin()
    producer.send("t", [b"k"], [value], [1], partition=0)
    producer.flush(1)
    producer.send_offsets({TP: OffsetAndMetadata(1, "")}, "g", 1)
    producer.commit(1)


def values(log: MemoryLog) -> list[bytes | None]:
    return [entry.value for _, _, entry in log.read("t")]


def test_lost_answer_of_a_commit_that_happened() -> None:
    log = made()
    producer = transactional(log)
    log.fault("commit_after", 2, UnknownOutcomeError("the answer did not come"))
    commit_one(producer, b"1")
    with pytest.raises(UnknownOutcomeError):
        commit_one(producer, b"2")
    with pytest.raises(ProducerRetiredError):
        producer.begin()
    assert values(log) == [b"1", b"2"]


def test_lost_request_of_a_commit_that_did_not_happen() -> None:
    log = made()
    log.fault("commit_before", 1, UnknownOutcomeError("the answer did not come"))
    with pytest.raises(UnknownOutcomeError):
        commit_one(transactional(log), b"1")
    assert values(log) == []
    commit_one(transactional(log), b"2")
    assert values(log) == [b"2"]
    # Record, abort marker, record, commit marker.
    assert log.partition(TP).end == 4


@pytest.mark.parametrize("point", ["begin", "send", "flush", "send_offsets", "commit_before"])
def test_abortable_fault_leaves_nothing_and_retires_the_handle(point: str) -> None:
    log = made()
    producer = transactional(log)
    log.fault(point, 1, AbortableError("refused"))
    with pytest.raises(AbortableError):
        commit_one(producer, b"1")
    producer.abort(1)
    with pytest.raises(ProducerRetiredError):
        producer.begin()
    assert values(log) == []
    assert log.group("g").offsets == {}


def test_fault_may_be_any_action_and_strikes_once() -> None:
    log = made()
    struck: list[int] = []
    log.fault("send", 2, lambda: struck.append(log.passages["send"]))
    producer = MemoryProducer(log)
    for _ in range(4):
        producer.send("t", [b"k"], [b"v"], [1])
    assert struck == [2]
    assert log.passages["send"] == 4


def test_fault_that_cannot_strike_is_refused() -> None:
    log = made()
    for point, nth in (("no such point", 1), ("send", 0)):
        with pytest.raises(ValueError, match="point"):
            log.fault(point, nth, RuntimeError())


def test_every_point_is_passed() -> None:
    log = made()
    producer = transactional(log)
    commit_one(producer, b"1")
    producer.begin()
    producer.abort(1)
    consumer = MemoryConsumer(log, "g")
    consumer.poll(1, 0)
    consumer.committed([TP])
    consumer.commit({TP: OffsetAndMetadata(1, "")})
    assert set(log.passages) == POINTS


def test_old_transaction_is_aborted_and_its_producer_fenced() -> None:
    log = made()
    producer = transactional(log)
    producer.begin()
    producer.send("t", [b"k"], [b"v"], [1], partition=0)
    log.advance(10_000)
    assert log.partition(TP).last_stable == 0
    log.advance(1)
    assert log.partition(TP).last_stable == 2
    assert values(log) == []
    with pytest.raises(TaskMigratedError):
        producer.commit(1)


def test_pending_positions_cannot_be_read() -> None:
    log = made()
    producer = transactional(log)
    producer.begin()
    producer.send_offsets({TP: OffsetAndMetadata(5, "m")}, "g", 1)
    consumer = MemoryConsumer(log, "g")
    with pytest.raises(RetriableError, match="still open"):
        consumer.committed([TP])
    producer.commit(1)
    assert consumer.committed([TP]) == {TP: OffsetAndMetadata(5, "m")}


def test_queue_is_written_out_when_it_is_full_and_dropped_at_close() -> None:
    log = made()
    producer = MemoryProducer(log, queue_max_records=3)
    producer.send("t", [None] * 3, [b"1", b"2", b"3"], [1] * 3)
    assert values(log) == []
    producer.send("t", [None], [b"4"], [1])
    assert len(values(log)) == 4
    producer.send("t", [None], [b"5"], [1])
    producer.close()
    assert len(values(log)) == 4


@pytest.mark.parametrize(
    "act",
    [
        lambda p: p.send("t", [b"k"], [b"v"], [1]),
        lambda p: p.send_offsets({TP: OffsetAndMetadata(1, "")}, "g", 1),
        lambda p: p.commit(1),
    ],
)
def test_nothing_goes_without_begin(act: Callable[[MemoryProducer], None]) -> None:
    with pytest.raises(Exception, match="begin"):
        act(transactional(made()))


def test_member_that_takes_too_long_to_give_up_what_it_has_is_not_part_of_the_round() -> None:
    """Nobody else is given partitions without having given up its own."""
    log = made()
    given: list[str] = []

    def member(name: str, give_up: Callable[[], object] = lambda: None) -> MemoryConsumer:
        consumer = MemoryConsumer(log, "g", poll_interval_max_ms=100)

        def take(partitions: Sequence[TopicPartition]) -> None:
            given.append(name)
            consumer.assign_at(dict.fromkeys(partitions, 0))

        consumer.subscribe(["t"], on_assign=take, on_revoke=lambda _: give_up(), on_lost=lambda _: None)
        return consumer

    def hold_up() -> None:
        for _ in range(3):
            log.advance(60)
            second.poll(1, 0)

    first = member("first", hold_up)
    first.poll(1, 0)
    second = member("second")
    first.poll(1, 0)
    assert given == ["first", "second"]
    second.poll(1, 0)
    assert given == ["first", "second"]


def test_retention_by_time_ends_at_the_first_young_record_and_at_an_open_transaction() -> None:
    log = made()
    partition = log.partition(TP)
    for at in (1, 5, 3):
        log.append(TP, LogEntry(b"k", b"v", at))
    assert [partition.old_until(oldest) for oldest in (1, 2, 5, 6)] == [0, 1, 1, 3]
    transaction = log.transaction("tx", 0, 1_000)
    log.append(TP, LogEntry(b"k", b"v", 2, transaction=transaction))
    assert partition.old_until(6) == 3
