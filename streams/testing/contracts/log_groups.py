"""Groups: assignment, revocation, loss, committed positions, and exceptions in callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from penstock.state.errors import IncompatibleError, PenstockError, TaskMigratedError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import OffsetAndMetadata, TopicSpec
from penstock.streams.testing.contracts.log_world import World, topic
from penstock.streams.testing.contracts.reading import Membership, Read, poll_into, until


def filled(world: World, partitions: int, count: int = 20) -> str:
    name = topic(world, partitions)
    producer = world.producer()
    for p in range(partitions):
        producer.send(name, [b"k"] * count, [b"v"] * count, [1] * count, partition=p)
    producer.flush(60)
    return name


def read_on(member: Membership, step: Callable[[], object]) -> None:
    """From offset 100 of its one partition to the end, without a gap or a record of before."""
    (tp,) = member.mine
    member.consumer.seek(tp, 100)
    member.read = Read()
    until(lambda: bool(member.read.ends), step)
    assert member.read.offsets[tp] == list(range(100, 300))


class LogGroupsContract:
    """Groups, to mix into a class of tests with the fixture ``world``."""

    def test_single_member_gets_everything(self, world: World) -> None:
        name = filled(world, 3)
        member = Membership(world.consumer(world.name("group")), [name])
        until(lambda: len(member.read.ends) == 3, member.poll)
        places = tuple(TopicPartition(name, p) for p in range(3))
        assert member.told == [("assign", places)]
        assert member.read.offsets == {tp: list(range(20)) for tp in places}

    def test_commit_and_take_over(self, world: World) -> None:
        name, group = filled(world, 1), world.name("group")
        tp = TopicPartition(name, 0)
        first = Membership(world.consumer(group), [name])
        until(lambda: tp in first.read.ends, first.poll)
        first.consumer.commit({tp: OffsetAndMetadata(12, "meta|data")})
        assert first.consumer.committed([tp]) == {tp: OffsetAndMetadata(12, "meta|data")}
        first.consumer.close()
        second = Membership(world.consumer(group), [name])
        until(lambda: tp in second.read.ends, second.poll)
        assert second.read.offsets[tp] == list(range(12, 20))

    def test_rebalance_revokes_then_assigns_and_range_keeps_partitions_together(self, world: World) -> None:
        a, b, group = filled(world, 4), filled(world, 4), world.name("group")
        first = Membership(world.consumer(group), [a, b])
        until(lambda: len(first.mine) == 8, first.poll)
        second = Membership(world.consumer(group), [a, b])
        until(lambda: len(first.mine) == 4 and len(second.mine) == 4, first.poll, second.poll)
        assert first.mine.isdisjoint(second.mine)
        for member in (first, second):
            per_topic = [{tp.partition for tp in member.mine if tp.topic == name} for name in (a, b)]
            assert per_topic[0] == per_topic[1]
        assert [kind for kind, _ in first.told] == ["assign", "revoke", "assign"]
        second.consumer.close()
        until(lambda: len(first.mine) == 8, first.poll)

    def test_closing_in_a_rebalance_that_nobody_served_calls_nothing_and_leaves(self, world: World) -> None:
        name, group = filled(world, 2), world.name("group")
        first = Membership(world.consumer(group), [name])
        until(lambda: len(first.mine) == 2, first.poll)
        second = Membership(world.consumer(group), [name])
        ends_s = time.monotonic() + 4  # by then a heartbeat has told the first that it is to give up its partitions
        until(lambda: time.monotonic() > ends_s, second.poll)
        told = list(first.told)
        first.consumer.close()
        assert first.told == told
        until(lambda: len(second.mine) == 2, second.poll)
        assert world.admin().group_members(group) == 1

    def test_records_of_before_a_rebalance_do_not_come_after_it(self, world: World) -> None:
        """Each time it is assigned, a partition is read from the position that was given, without a gap."""
        name, group = filled(world, 2, count=300), world.name("group")
        first = Membership(world.consumer(group), [name])
        until(lambda: len(first.mine) == 2, lambda: poll_into(first.consumer, first.read, 7))
        second = Membership(world.consumer(group), [name])

        def step(member: Membership) -> int:
            assignments = len(member.told)
            poll_into(member.consumer, member.read, 7)
            if len(member.told) != assignments:
                member.read.offsets.clear()
            return assignments

        until(lambda: len(first.mine) == len(second.mine) == 1, lambda: step(first), lambda: step(second))
        for member in (first, second):
            read_on(member, lambda: (step(first), step(second)))

    def test_commit_inside_revoke_is_accepted(self, world: World) -> None:
        name, group = filled(world, 2), world.name("group")
        consumer = world.consumer(group)
        revoked: list[TopicPartition] = []
        assigned: list[TopicPartition] = []

        def on_assign(partitions: Sequence[TopicPartition]) -> None:
            assigned[:] = partitions
            consumer.assign_at(dict.fromkeys(partitions, 0))

        def on_revoke(partitions: Sequence[TopicPartition]) -> None:
            consumer.commit({tp: OffsetAndMetadata(4, "last") for tp in partitions})
            revoked.extend(partitions)

        consumer.subscribe([name], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
        until(lambda: len(assigned) == 2, lambda: consumer.poll(5, 0.1))
        second = Membership(world.consumer(group), [name])
        until(lambda: len(revoked) == 2 and len(second.mine) == 1, lambda: consumer.poll(5, 0.1), second.poll)
        (taken,) = second.mine
        assert second.consumer.committed([taken]) == {taken: OffsetAndMetadata(4, "last")}

    def test_member_that_did_not_poll_loses_its_partitions(self, world: World) -> None:
        name, group = filled(world, 1), world.name("group")
        tp = TopicPartition(name, 0)
        member = Membership(world.consumer(group, hasty=True), [name])
        until(lambda: tp in member.read.ends, member.poll)
        world.stop_polling()
        with pytest.raises(TaskMigratedError):
            member.consumer.commit({tp: OffsetAndMetadata(20, "")})
        until(lambda: len(member.told) > 2 and bool(member.mine), member.poll)
        assert [kind for kind, _ in member.told][:3] == ["assign", "lost", "assign"]
        member.consumer.commit({tp: OffsetAndMetadata(20, "")})

    def test_twin_takes_the_place_of_a_static_member_and_fences_it(self, world: World) -> None:
        name, group = filled(world, 2), world.name("group")
        first = Membership(world.consumer(group, instance_id="one"), [name])
        until(lambda: len(first.mine) == 2, first.poll)
        second = Membership(world.consumer(group, instance_id="one"), [name])
        until(lambda: len(second.mine) == 2, second.poll)
        producer = world.producer(world.name("tx"))
        producer.init_transactions(60)
        producer.begin()
        position = {min(first.mine): OffsetAndMetadata(3, "")}
        with pytest.raises(UserError, match="same group_instance_id"):
            producer.send_offsets(position, first.token, 60)
        with pytest.raises(UserError, match="same group_instance_id"):
            until(lambda: False, first.poll)
        second.consumer.commit(position)
        assert second.consumer.committed(list(position)) == position

    def test_outsider_cannot_commit_while_there_are_members(self, world: World) -> None:
        name, group = filled(world, 1), world.name("group")
        tp = TopicPartition(name, 0)
        outsider = world.consumer(group)
        outsider.assign_at({tp: 0})
        outsider.commit({tp: OffsetAndMetadata(3, "alone")})
        member = Membership(world.consumer(group), [name])
        until(lambda: member.mine == {tp}, member.poll)
        with pytest.raises(TaskMigratedError):
            outsider.commit({tp: OffsetAndMetadata(4, "")})
        assert member.consumer.committed([tp]) == {tp: OffsetAndMetadata(3, "alone")}

    def test_partitions_start_paused_when_paused_in_the_callback(self, world: World) -> None:
        name = filled(world, 1)
        tp = TopicPartition(name, 0)
        consumer = world.consumer(world.name("group"))
        assigned: list[TopicPartition] = []

        def on_assign(partitions: Sequence[TopicPartition]) -> None:
            assigned.extend(partitions)
            consumer.assign_at(dict.fromkeys(partitions, 0))
            consumer.pause(partitions)

        def nothing(_: object) -> None: ...

        consumer.subscribe([name], on_assign=on_assign, on_revoke=nothing, on_lost=nothing)
        until(lambda: assigned == [tp], lambda: consumer.poll(10, 0.1))
        for _ in range(8):
            assert consumer.poll(10, 0.05).chunks == []
        consumer.resume([tp])
        chunks: list[Chunk] = []
        until(lambda: bool(chunks), lambda: chunks.extend(consumer.poll(100, 0.1).chunks))
        assert chunks[0].offsets[0] == 0

    @pytest.mark.parametrize("where", ["assign", "revoke"])
    def test_exception_in_a_callback_comes_out_of_poll(self, world: World, where: str) -> None:
        name, group = filled(world, 2), world.name("group")
        consumer = world.consumer(group)
        assigned: list[TopicPartition] = []

        def on_assign(partitions: Sequence[TopicPartition]) -> None:
            if where == "assign":
                raise LookupError("from assign")
            assigned.extend(partitions)
            consumer.assign_at(dict.fromkeys(partitions, 0))

        def on_revoke(partitions: Sequence[TopicPartition]) -> None:
            raise LookupError("from revoke")

        consumer.subscribe([name], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
        with pytest.raises(LookupError, match=f"from {where}"):
            if where == "revoke":
                until(lambda: len(assigned) == 2, lambda: consumer.poll(5, 0.1))
                second = Membership(world.consumer(group), [name])
                until(lambda: False, lambda: consumer.poll(5, 0.1), second.poll)
            until(lambda: False, lambda: consumer.poll(5, 0.1))

    def test_assignment_without_positions_is_an_error(self, world: World) -> None:
        consumer = world.consumer(world.name("group"))

        def nothing(_: object) -> None: ...

        consumer.subscribe([filled(world, 1)], on_assign=nothing, on_revoke=nothing, on_lost=nothing)
        with pytest.raises(PenstockError, match="assign_at"):
            until(lambda: False, lambda: consumer.poll(5, 0.1))

    def test_admin_sees_topics(self, world: World) -> None:
        admin, name, absent = world.admin(), world.name("topic"), world.name("absent")
        spec = TopicSpec(name, 3, config={"cleanup.policy": "compact"})
        assert admin.partition_counts([name]) == {}
        admin.create_topics([spec])
        admin.create_topics([spec])
        assert admin.partition_counts([name, absent]) == {name: 3}
        assert set(admin.topic_ids([name, absent])) == {name}
        assert admin.topic_config(name)["cleanup.policy"] == "compact"
        assert int(admin.topic_config(name)["delete.retention.ms"]) > 0
        assert admin.cluster_id() == admin.cluster_id() != ""
        with pytest.raises(IncompatibleError, match=name):
            admin.create_topics([TopicSpec(name, 4)])
        with pytest.raises(UserError, match=absent):
            admin.topic_config(absent)

    def test_admin_sets_positions_of_groups_without_members(self, world: World) -> None:
        admin, name, group = world.admin(), filled(world, 1), world.name("group")
        tp = TopicPartition(name, 0)
        assert admin.group_members(group) == 0
        admin.set_offsets(group, {tp: OffsetAndMetadata(8, "set|by hand")})
        member = Membership(world.consumer(group), [name])
        until(lambda: tp in member.read.ends, member.poll)
        assert member.read.offsets[tp] == list(range(8, 20))
        assert member.consumer.committed([tp]) == {tp: OffsetAndMetadata(8, "set|by hand")}
        assert admin.group_members(group) == 1
        first = admin.group_member_ids(group)
        assert list(first.values()) == admin.group_clients(group)
        with pytest.raises(UserError, match="members"):
            admin.set_offsets(group, {tp: OffsetAndMetadata(1, "")})
        member.consumer.close()
        until(lambda: admin.group_members(group) == 0)
        again = Membership(world.consumer(group), [name])
        until(lambda: admin.group_members(group) == 1, again.poll)
        assert first.keys().isdisjoint(admin.group_member_ids(group))
        again.consumer.close()

    def test_topics_and_groups_are_found_by_how_their_names_begin(self, world: World) -> None:
        prefix = world.name("named")
        admin = world.admin()
        admin.create_topics([TopicSpec(f"{prefix}-a", 1), TopicSpec(f"{prefix}-b", 3)])
        until(lambda: admin.topics(f"{prefix}-") == {f"{prefix}-a": 1, f"{prefix}-b": 3}, lambda: None)
        assert admin.groups(prefix) == []
        world.consumer(f"{prefix}-g").commit({TopicPartition(f"{prefix}-a", 0): OffsetAndMetadata(0, "")})
        assert admin.groups(prefix) == [f"{prefix}-g"]

    def test_settings_of_a_topic_are_changed_one_by_one(self, world: World) -> None:
        name = topic(world, max_message_bytes="5000")
        admin = world.admin()
        admin.set_topic_config(name, {"retention.ms": "77", "cleanup.policy": "compact,delete"})

        def changed() -> bool:
            config = admin.topic_config(name)
            return (config["retention.ms"], config["cleanup.policy"]) == ("77", "compact,delete")

        until(changed)
        admin.set_topic_config(name, {"retention.ms": "-1"})
        until(lambda: admin.topic_config(name)["retention.ms"] == "-1")
        config = admin.topic_config(name)
        assert (config["cleanup.policy"], config["max.message.bytes"]) == ("compact,delete", "5000")
