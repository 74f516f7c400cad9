"""Transactions: what readers see, what fences, what a failure leaves."""

from __future__ import annotations

import pytest

from penstock.state.errors import TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import AbortableError, LogProducer, OffsetAndMetadata, ProducerRetiredError
from penstock.streams.testing.contracts.log_world import BROKER_MAX_BYTES, MESSAGE_MAX_BYTES, TOO_LARGE, World, topic
from penstock.streams.testing.contracts.reading import Membership, Read, poll_into, read_to_end, read_values, until

TIMEOUT_S = 60.0


def opened(world: World, transactional_id: str) -> LogProducer:
    """A producer that is ready for ``begin``."""
    producer = world.producer(transactional_id)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: LogProducer, name: str, *values: bytes) -> None:
    producer.send(name, [b"k"] * len(values), list(values), [1] * len(values), partition=0)


class LogTransactionsContract:
    """Transactions, to mix into a class of tests with the fixture ``world``."""

    def test_readers_see_committed_records_only(self, world: World) -> None:
        name = topic(world)
        tp = TopicPartition(name, 0)
        producer = opened(world, world.name("tx"))
        producer.begin()
        write(producer, name, b"a", b"b")
        assert producer.flush(TIMEOUT_S) == {tp: 2}
        producer.commit(TIMEOUT_S)
        producer.begin()
        write(producer, name, b"never")
        producer.flush(TIMEOUT_S)
        producer.abort(TIMEOUT_S)
        producer.begin()
        write(producer, name, b"c")
        producer.flush(TIMEOUT_S)
        producer.commit(TIMEOUT_S)
        read = read_to_end(world, name, end=7)
        assert read.values[tp] == [b"a", b"b", b"c"]
        # Each marker takes an offset, and the end lies past the last one.
        assert read.offsets[tp] == [0, 1, 5]

    def test_open_transaction_stops_readers_until_it_ends(self, world: World) -> None:
        name = topic(world)
        tp = TopicPartition(name, 0)
        producer, plain = opened(world, world.name("tx")), world.producer()
        producer.begin()
        write(producer, name, b"pending")
        producer.flush(TIMEOUT_S)
        write(plain, name, b"behind")
        plain.flush(TIMEOUT_S)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        assert (read.values, read.ends[tp], consumer.watermarks(tp)) == ({}, 0, (0, 0))
        producer.commit(TIMEOUT_S)
        until(lambda: read.ends[tp] == 3, lambda: poll_into(consumer, read))
        assert read.values[tp] == [b"pending", b"behind"]

    def test_end_past_an_aborted_tail(self, world: World) -> None:
        name = topic(world)
        producer = opened(world, world.name("tx"))
        producer.begin()
        write(producer, name, b"x", b"y")
        producer.flush(TIMEOUT_S)
        producer.abort(TIMEOUT_S)
        assert read_to_end(world, name, end=3).values == {}

    def test_empty_transactions_are_fine(self, world: World) -> None:
        producer = opened(world, world.name("tx"))
        producer.begin()
        assert producer.flush(TIMEOUT_S) == {}
        producer.commit(TIMEOUT_S)
        producer.begin()
        producer.abort(TIMEOUT_S)
        producer.abort(TIMEOUT_S)

    def test_positions_and_metadata_are_committed_with_the_records(self, world: World) -> None:
        name, group = topic(world, 2), world.name("group")
        a, b = (TopicPartition(name, p) for p in range(2))
        metadata = "v1|" + "é" * 100
        producer, consumer = opened(world, world.name("tx")), world.consumer(group)
        assert consumer.committed([a, b]) == {a: None, b: None}
        producer.begin()
        write(producer, name, b"x")
        producer.send_offsets({a: OffsetAndMetadata(7, metadata)}, group, TIMEOUT_S)
        producer.commit(TIMEOUT_S)
        assert consumer.committed([a, b]) == {a: OffsetAndMetadata(7, metadata), b: None}
        producer.begin()
        producer.send_offsets({a: OffsetAndMetadata(9, "never")}, group, TIMEOUT_S)
        producer.abort(TIMEOUT_S)
        assert consumer.committed([a]) == {a: OffsetAndMetadata(7, metadata)}

    def test_older_producer_of_the_same_id_is_fenced(self, world: World) -> None:
        name, transactional_id = topic(world), world.name("tx")
        old = opened(world, transactional_id)
        old.begin()
        write(old, name, b"old")
        old.flush(TIMEOUT_S)
        new = opened(world, transactional_id)
        new.begin()
        write(new, name, b"new")
        new.flush(TIMEOUT_S)
        new.commit(TIMEOUT_S)
        with pytest.raises(TaskMigratedError):
            write(old, name, b"late")
            old.flush(TIMEOUT_S)
            old.commit(TIMEOUT_S)
        assert read_to_end(world, name, end=4).values[TopicPartition(name, 0)] == [b"new"]

    def test_membership_of_before_a_rebalance_is_fenced(self, world: World) -> None:
        name, group = topic(world, 2), world.name("group")
        places = [TopicPartition(name, p) for p in range(2)]
        first = Membership(world.consumer(group), [name])
        until(lambda: first.mine == set(places), first.poll)
        stale = first.token
        second = Membership(world.consumer(group), [name])
        until(lambda: len(first.mine) == len(second.mine) == 1, first.poll, second.poll)
        producer = opened(world, world.name("tx"))
        producer.begin()
        write(producer, name, b"zombie")
        with pytest.raises(TaskMigratedError):
            producer.send_offsets({tp: OffsetAndMetadata(1, "") for tp in places}, stale, TIMEOUT_S)
            producer.commit(TIMEOUT_S)
        fresh = opened(world, world.name("tx"))
        fresh.begin()
        (mine,) = first.mine
        fresh.send_offsets({mine: OffsetAndMetadata(5, "")}, first.token, TIMEOUT_S)
        fresh.commit(TIMEOUT_S)
        assert first.consumer.committed([mine]) == {mine: OffsetAndMetadata(5, "")}

    @pytest.mark.parametrize(
        "refused", [b"x" * (MESSAGE_MAX_BYTES + 1), TOO_LARGE], ids=["refused by the client", "refused by the broker"]
    )
    def test_refused_record_in_the_middle_dooms_the_transaction(self, world: World, refused: bytes) -> None:
        name, transactional_id = topic(world, max_message_bytes=BROKER_MAX_BYTES), world.name("tx")
        producer = opened(world, transactional_id)
        producer.begin()
        with pytest.raises(AbortableError):
            write(producer, name, b"before")
            write(producer, name, refused)
            write(producer, name, b"after")
            producer.flush(TIMEOUT_S)
        with pytest.raises(AbortableError):
            producer.commit(TIMEOUT_S)
        producer.abort(TIMEOUT_S)
        with pytest.raises(ProducerRetiredError):
            producer.begin()
        again = opened(world, transactional_id)
        again.begin()
        write(again, name, b"after")
        again.flush(TIMEOUT_S)
        again.commit(TIMEOUT_S)
        assert read_values(world, name, 1) == [b"after"]

    def test_commit_knows_of_a_refused_record_without_a_flush(self, world: World) -> None:
        name = topic(world, max_message_bytes=BROKER_MAX_BYTES)
        producer = opened(world, world.name("tx"))
        producer.begin()
        write(producer, name, TOO_LARGE)
        with pytest.raises(AbortableError):
            producer.commit(TIMEOUT_S)

    def test_init_ends_the_transaction_of_a_closed_producer(self, world: World) -> None:
        name, transactional_id = topic(world), world.name("tx")
        crashed = opened(world, transactional_id)
        crashed.begin()
        write(crashed, name, b"lost")
        crashed.flush(TIMEOUT_S)
        crashed.close()
        opened(world, transactional_id)
        assert read_to_end(world, name, end=2).values == {}

    def test_closed_producer_refuses(self, world: World) -> None:
        producer = world.producer()
        producer.close()
        producer.close()
        with pytest.raises(ProducerRetiredError):
            producer.flush(1)
