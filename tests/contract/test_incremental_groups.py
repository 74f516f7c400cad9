"""Groups under the broker's own protocol: each case on the model and, with ``group.protocol=consumer``, on Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata, StaleEpochError
from penstock.streams.testing.contracts.log_groups import filled
from penstock.streams.testing.contracts.log_world import World
from penstock.streams.testing.contracts.reading import Membership, poll_into, until
from tests.contract.worlds import NATIVE_MODES, KafkaWorld, MemoryWorld

_ON_KAFKA = [pytest.param(mode, marks=pytest.mark.integration, id=f"kafka-native-{mode}") for mode in NATIVE_MODES[:1]]
SILENT_S = 7.0
"""Longer than the broker's interval of heartbeats: by then every member has been told."""


@pytest.fixture(params=["memory", *_ON_KAFKA])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: MemoryWorld | KafkaWorld
    if request.param == "memory":
        made = MemoryWorld(protocol="consumer")
    else:
        servers = request.getfixturevalue("bootstrap_servers")
        made = KafkaWorld(servers, native=request.param, protocol="consumer")
    yield made
    made.close()


def a_while(world: World, *members: Membership) -> None:
    """Polls for so long that nothing that is under way is still to come."""
    memory = isinstance(world, MemoryWorld)
    polls, until_s = 20 if memory else 0, time.monotonic() + (0.0 if memory else SILENT_S)
    while polls > 0 or time.monotonic() < until_s:
        polls -= 1
        for member in members:
            member.poll()


def shared(world: World, name: str, group: str, *instances: str, partitions: int) -> list[Membership]:
    """Members that came one after the other and have shared the topic."""
    members: list[Membership] = []
    for instance in instances:
        members.append(Membership(world.consumer(group, instance_id=instance), [name]))
        until(lambda: all(m.mine for m in members) and _count(members) == partitions, *(m.poll for m in members))
    return members


def _count(members: Sequence[Membership]) -> int:
    return sum(len(m.mine) for m in members)


def commit_with(world: World, token: object, tp: TopicPartition, offset: int) -> None:
    """In a transaction that is fenced by this token."""
    producer = world.producer(world.name("tx"))
    producer.init_transactions(60)
    producer.begin()
    producer.send_offsets({tp: OffsetAndMetadata(offset, "")}, token, 60)
    producer.commit(60)


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    name = filled(world, 3)
    (member,) = shared(world, name, world.name("group"), "", partitions=3)
    assert member.told == [("assign", tuple(TopicPartition(name, p) for p in range(3)))]


def test_who_comes_takes_only_its_share_and_the_rest_is_read_on(world: World) -> None:
    name = filled(world, 4)
    group = world.name("group")
    (first,) = shared(world, name, group, "", partitions=4)
    until(lambda: len(first.read.ends) == 4, first.poll)
    before = {tp: list(offsets) for tp, offsets in first.read.offsets.items()}
    second = Membership(world.consumer(group), [name])
    until(lambda: len(second.mine) == 2, first.poll, second.poll)
    a_while(world, first, second)
    assert [(kind, len(places)) for kind, places in first.told] == [("assign", 4), ("revoke", 2), ("assign", 0)]
    assert [(kind, len(places)) for kind, places in second.told] == [("assign", 2)]
    assert first.mine | second.mine == {TopicPartition(name, p) for p in range(4)}
    assert first.mine.isdisjoint(second.mine)
    assert first.read.offsets == before
    producer = world.producer()
    for p in range(4):
        producer.send(name, [b"k"], [b"v"], [1], partition=p)
    producer.flush(60)
    until(lambda: all(first.read.offsets[tp][-1] == 20 for tp in first.mine), first.poll)
    assert all(first.read.offsets[tp] == list(range(21)) for tp in first.mine)
    assert all(first.read.offsets[tp] == before[tp] for tp in second.mine)


def test_a_partition_comes_only_after_its_owner_has_given_it_up(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    (first,) = shared(world, name, group, "", partitions=2)
    second = Membership(world.consumer(group), [name])
    a_while(world, second)  # the first does not poll, so it cannot give up anything
    assert second.told == []
    assert len(first.mine) == 2
    until(lambda: len(second.mine) == 1, first.poll, second.poll)
    assert first.mine.isdisjoint(second.mine)


def test_an_owner_commits_while_it_gives_up_and_the_next_begins_there(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    consumer = world.consumer(group)
    has: set[TopicPartition] = set()

    def on_assign(partitions: Sequence[TopicPartition]) -> None:
        has.update(partitions)
        consumer.assign_at(dict.fromkeys(partitions, 0))

    def on_revoke(partitions: Sequence[TopicPartition]) -> None:
        consumer.commit({tp: OffsetAndMetadata(4, "last") for tp in has})
        has.difference_update(partitions)

    consumer.subscribe([name], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    until(lambda: len(has) == 2, lambda: consumer.poll(5, 0.1))
    second = Membership(world.consumer(group), [name])
    until(lambda: len(second.mine) == 1, lambda: consumer.poll(5, 0.1), second.poll)
    until(lambda: bool(second.read.ends), second.poll)
    (taken,) = second.mine
    assert has == {TopicPartition(name, p) for p in range(2)} - {taken}
    assert second.read.offsets[taken] == list(range(4, 20))


def test_what_a_member_leaves_comes_to_the_others_without_a_revocation(world: World) -> None:
    name = filled(world, 4)
    first, second = shared(world, name, world.name("group"), "", "", partitions=4)
    kept, told = set(first.mine), list(first.told)
    second.consumer.close()
    until(lambda: len(first.mine) == 4, first.poll)
    added = tuple(sorted(first.mine - kept))
    assert first.told[len(told) :] == [("assign", added)]


def test_a_member_that_leaves_before_it_gave_up_frees_its_partitions(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    (first,) = shared(world, name, group, "", partitions=2)
    second = Membership(world.consumer(group), [name])
    a_while(world, second)
    told = list(first.told)
    first.consumer.close()
    assert first.told == told
    until(lambda: len(second.mine) == 2, second.poll)
    assert world.admin().group_members(group) == 1


def test_who_does_not_poll_in_time_is_removed_and_joins_again_with_nothing(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    member = Membership(world.consumer(group, hasty=True), [name])
    until(lambda: len(member.mine) == 2, member.poll)
    tp, token = min(member.mine), member.token
    world.stop_polling()
    other = Membership(world.consumer(group), [name])
    until(lambda: len(other.mine) == 2, other.poll)
    with pytest.raises(TaskMigratedError):
        member.consumer.commit({tp: OffsetAndMetadata(20, "")})
    with pytest.raises(TaskMigratedError):
        commit_with(world, token, tp, 20)
    assert other.consumer.committed([tp]) == {tp: None}
    until(lambda: len(member.mine) == 1 and len(other.mine) == 1, member.poll, other.poll)
    assert [kind for kind, _ in member.told] == ["assign", "lost", "assign"]
    assert [kind for kind, _ in other.told][:2] == ["assign", "revoke"]
    (mine,) = member.mine
    commit_with(world, member.token, mine, 20)


def test_an_epoch_of_before_does_not_commit_what_was_given_up(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    (first,) = shared(world, name, group, "", partitions=2)
    before = first.token
    second = Membership(world.consumer(group), [name])
    until(lambda: len(second.mine) == 1, first.poll, second.poll)
    (taken,) = second.mine
    with pytest.raises(StaleEpochError):
        commit_with(world, before, taken, 20)
    assert second.consumer.committed([taken]) == {taken: None}


def test_an_epoch_of_before_commits_what_has_stayed(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    (first,) = shared(world, name, group, "", partitions=2)
    before = first.token
    second = Membership(world.consumer(group), [name])
    until(lambda: len(first.mine) == len(second.mine) == 1, first.poll, second.poll)
    (kept,) = first.mine
    commit_with(world, before, kept, 7)
    assert first.consumer.committed([kept]) == {kept: OffsetAndMetadata(7, "")}


def test_a_member_for_which_nothing_is_left_changes_nothing_for_the_others(world: World) -> None:
    name, group = filled(world, 1), world.name("group")
    (first,) = shared(world, name, group, "", partitions=1)
    told = list(first.told)
    idle = Membership(world.consumer(group), [name])
    a_while(world, first, idle)
    one, other = (first, idle) if first.mine else (idle, first)
    assert (len(one.mine), len(other.mine)) == (1, 0)
    if one is first:
        assert first.told == told
    commit_with(world, one.consumer.group_metadata(), min(one.mine), 3)


def test_a_static_member_that_closes_leaves_and_gets_its_partitions_back(world: World) -> None:
    name, group = filled(world, 4), world.name("group")
    first, second = shared(world, name, group, "one", "two", partitions=4)
    had = set(first.mine)
    first.consumer.close()
    until(lambda: len(second.mine) == 4, second.poll)
    assert world.admin().group_members(group) == 1
    again = Membership(world.consumer(group, instance_id="one"), [name])
    until(lambda: len(again.mine) == 2, again.poll, second.poll)
    assert again.mine == had
    commit_with(world, again.token, min(had), 5)
    with pytest.raises(TaskMigratedError):
        commit_with(world, first.token, min(had), 6)


def test_a_twin_of_a_static_member_waits_while_that_one_lives(world: World) -> None:
    name, group = filled(world, 2), world.name("group")
    (first,) = shared(world, name, group, "one", partitions=2)
    twin = Membership(world.consumer(group, instance_id="one"), [name])
    with pytest.raises(RetriableError, match="group_instance_id"):
        until(lambda: False, twin.poll)
    twin.consumer.close()
    a_while(world, first)
    assert [kind for kind, _ in first.told] == ["assign"]
    commit_with(world, first.consumer.group_metadata(), min(first.mine), 3)
    first.consumer.close()
    later = Membership(world.consumer(group, instance_id="one"), [name])
    until(lambda: len(later.mine) == 2, later.poll)


def test_three_that_come_at_once_share_everything(world: World) -> None:
    name, group = filled(world, 6), world.name("group")
    members = [Membership(world.consumer(group), [name]) for _ in range(3)]
    until(lambda: [len(m.mine) for m in members] == [2, 2, 2], *(m.poll for m in members))
    a_while(world, *members)
    assert {tp for m in members for tp in m.mine} == {TopicPartition(name, p) for p in range(6)}


def test_an_outsider_cannot_commit_while_there_are_members(world: World) -> None:
    name, group = filled(world, 1), world.name("group")
    outsider = world.consumer(group)
    tp = TopicPartition(name, 0)
    outsider.assign_at({tp: 0})
    outsider.commit({tp: OffsetAndMetadata(3, "alone")})
    (member,) = shared(world, name, group, "", partitions=1)
    with pytest.raises(TaskMigratedError):
        outsider.commit({tp: OffsetAndMetadata(4, "")})
    assert member.consumer.committed([tp]) == {tp: OffsetAndMetadata(3, "alone")}


def test_nothing_of_a_partition_comes_after_it_was_given_up(world: World) -> None:
    name, group = filled(world, 2, count=300), world.name("group")
    (first,) = shared(world, name, group, "", partitions=2)
    second = Membership(world.consumer(group), [name])
    late: list[TopicPartition] = []

    def step() -> None:
        before = {tp: len(offsets) for tp, offsets in first.read.offsets.items()}
        poll_into(first.consumer, first.read, 7)
        late.extend(tp for tp, o in first.read.offsets.items() if len(o) > before.get(tp, 0) and tp not in first.mine)

    until(lambda: len(second.mine) == 1, step, second.poll)
    (kept,) = first.mine
    until(lambda: kept in first.read.ends, step)
    assert late == []
    assert first.read.offsets[kept] == list(range(300))
