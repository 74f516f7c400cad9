"""Assigning, seeking, pausing, ends and watermarks."""

from __future__ import annotations

import pytest

from penstock.state.errors import PenstockError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import LogConsumer, LogProducer
from penstock.streams.testing.contracts.log_world import World, topic
from penstock.streams.testing.contracts.reading import Read, poll_into, until

COUNT = 40


def filled(world: World, partitions: int) -> tuple[str, LogProducer]:
    """A topic with ``COUNT`` records in each partition."""
    name = topic(world, partitions)
    producer = world.producer()
    for p in range(partitions):
        add(producer, name, p)
    producer.flush(60)
    return name, producer


def add(producer: LogProducer, name: str, partition: int) -> None:
    values: list[bytes | None] = [b"%d" % i for i in range(COUNT)]
    producer.send(name, values, values, [1] * COUNT, partition=partition)


def settle(consumer: LogConsumer, read: Read) -> None:
    """Some polls in which something forbidden could come."""
    for _ in range(8):
        poll_into(consumer, read, timeout_s=0.05)


class LogPositionsContract:
    """Positions in the log, to mix into a class of tests with the fixture ``world``."""

    def test_assign_at_adds_and_starts_where_told(self, world: World) -> None:
        name, _ = filled(world, 2)
        a, b = (TopicPartition(name, p) for p in range(2))
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({a: 30})
        until(lambda: a in read.ends, lambda: poll_into(consumer, read))
        consumer.assign_at({b: 35})
        until(lambda: b in read.ends, lambda: poll_into(consumer, read))
        assert read.offsets == {a: list(range(30, 40)), b: list(range(35, 40))}

    def test_assign_at_moves_what_is_read_already(self, world: World) -> None:
        name, _ = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 38})
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        consumer.assign_at({tp: 39})
        until(lambda: len(read.offsets[tp]) == 3, lambda: poll_into(consumer, read))
        assert read.offsets[tp] == [38, 39, 39]

    def test_unassigned_partition_is_silent(self, world: World) -> None:
        name, producer = filled(world, 2)
        a, b = (TopicPartition(name, p) for p in range(2))
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({a: 0, b: 0})
        until(lambda: len(read.ends) == 2, lambda: poll_into(consumer, read))
        consumer.unassign([a])
        consumer.unassign([a])
        add(producer, name, 0)
        add(producer, name, 1)
        producer.flush(60)
        until(lambda: read.ends[b] == 2 * COUNT, lambda: poll_into(consumer, read))
        settle(consumer, read)
        assert read.offsets == {a: list(range(COUNT)), b: list(range(2 * COUNT))}

    def test_paused_partition_is_silent_until_resumed(self, world: World) -> None:
        name, _ = filled(world, 2)
        a, b = (TopicPartition(name, p) for p in range(2))
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({a: 0, b: 0})
        until(lambda: bool(read.offsets.get(a)), lambda: poll_into(consumer, read, max_records=5))
        seen = len(read.offsets[a])
        consumer.pause([a])
        until(lambda: b in read.ends, lambda: poll_into(consumer, read))
        settle(consumer, read)
        assert len(read.offsets[a]) == seen
        consumer.resume([a])
        until(lambda: a in read.ends, lambda: poll_into(consumer, read))
        assert read.offsets == {a: list(range(COUNT)), b: list(range(COUNT))}

    def test_partition_that_was_let_go_while_paused_is_read_when_it_comes_back(self, world: World) -> None:
        name, _ = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        consumer.pause([tp])
        consumer.unassign([tp])
        consumer.assign_at({tp: 10})
        again = Read()
        until(lambda: tp in again.ends, lambda: poll_into(consumer, again))
        assert again.offsets[tp] == list(range(10, COUNT))

    def test_seek_forgets_what_was_fetched_ahead(self, world: World) -> None:
        name, _ = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        until(lambda: bool(read.offsets), lambda: poll_into(consumer, read, max_records=5))
        seen = read.offsets[tp][-1] + 1
        consumer.seek(tp, 2)
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read, max_records=5))
        assert read.offsets[tp] == [*range(seen), *range(2, COUNT)]

    def test_seek_right_after_assign(self, world: World) -> None:
        name, _ = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        consumer.seek(tp, 33)
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        assert read.offsets[tp] == list(range(33, COUNT))

    def test_seek_while_paused_stays_paused(self, world: World) -> None:
        name, _ = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        consumer.pause([tp])
        consumer.seek(tp, 10)
        settle(consumer, read)
        assert read.offsets == {}
        consumer.resume([tp])
        until(lambda: tp in read.ends, lambda: poll_into(consumer, read))
        assert read.offsets[tp] == list(range(10, COUNT))

    def test_seek_needs_an_assigned_partition(self, world: World) -> None:
        name, _ = filled(world, 1)
        with pytest.raises(PenstockError, match="not assigned"):
            world.consumer(world.name("g")).seek(TopicPartition(name, 0), 3)

    def test_end_is_told_again_when_it_has_moved(self, world: World) -> None:
        name, producer = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        until(lambda: read.ends.get(tp) == COUNT, lambda: poll_into(consumer, read))
        add(producer, name, 0)
        producer.flush(60)
        until(lambda: read.ends.get(tp) == 2 * COUNT, lambda: poll_into(consumer, read))
        assert read.offsets[tp] == list(range(2 * COUNT))

    def test_end_of_an_empty_partition_is_told(self, world: World) -> None:
        tp = TopicPartition(topic(world), 0)
        consumer, read = world.consumer(world.name("g")), Read()
        consumer.assign_at({tp: 0})
        until(lambda: read.ends == {tp: 0}, lambda: poll_into(consumer, read))
        assert consumer.watermarks(tp) == (0, 0)

    def test_closed_consumer_refuses(self, world: World) -> None:
        consumer = world.consumer(world.name("g"))
        consumer.close()
        consumer.close()
        with pytest.raises(PenstockError, match="closed"):
            consumer.poll(1, 0.0)

    def test_log_says_whether_it_holds_what_a_leader_had(self, world: World) -> None:
        name, producer = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer, read = world.consumer(world.name("g")), Read()
        epoch = consumer.leader_epochs([tp])[tp]
        consumer.assign_at({tp: 0})
        until(lambda: len(read.offsets.get(tp, ())) == COUNT, lambda: poll_into(consumer, read))
        assert set(read.epochs[tp]) == {epoch}
        assert consumer.holds(tp, COUNT, epoch)
        assert consumer.holds(tp, COUNT - 3, epoch)
        assert not consumer.holds(tp, COUNT + 3, epoch)
        assert not consumer.holds(tp, COUNT, epoch + 1)
        add(producer, name, 0)
        producer.flush(60)
        assert consumer.leader_epochs([tp]) == {tp: epoch}
        assert consumer.holds(tp, COUNT + 3, epoch)
