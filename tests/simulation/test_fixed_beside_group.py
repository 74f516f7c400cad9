"""Workers with fixed partitions and others that want the same ones, from the group or fixed: the brokers refuse the commits
of all but one."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.state.errors import SettingsError, TaskMigratedError
from penstock.streams.ports.log import UnknownOutcomeError
from penstock.topologies.examples import keyed_count
from tests.simulation.world import POLL_INTERVAL_MS, Disk, Node, World

KEYS = 4
COUNT = 40
PARTITIONS = 2
GUARANTEES = ["exactly_once", "at_least_once"]


def a_world(guarantee: str, partitions: int = PARTITIONS) -> World:
    world = World(
        keyed_count.build("in", "out"),
        guarantee,  # type: ignore[arg-type]  # one of them
        partitions=partitions,
        inputs=["in"],
        outputs=["out"],
    )
    write(world, COUNT)
    return world


def write(world: World, count: int) -> None:
    world.write("in", [(b"k%d" % (i % KEYS), b"v", i) for i in range(count)])


def counts(world: World, *nodes: Node) -> dict[bytes, int]:
    return {k: int.from_bytes(v[8:], "big") for store in world.stores(*nodes).values() for k, v in store.items()}


def wanted(world: World) -> dict[bytes, int]:
    return dict(Counter(e.key for _, _, e in world.log.read("in") if e.key is not None))


def assert_right(world: World, node: Node) -> None:
    """Outputs at least once may be doubled, not so the state, since what is behind the last commit is not restored."""
    assert counts(world, node) == wanted(world)
    if world.guarantee == "exactly_once":
        assert set(world.rows("out").values()) == {1}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("idle", [True, False])
def test_fixed_worker_that_was_frozen_is_refused_once_the_group_has_its_partitions(guarantee: str, idle: bool) -> None:
    world = a_world(guarantee)
    fixed = world.node("a", fixed=(0, 1))
    for _ in range(6):
        fixed.turn()
    if idle:
        world.settle(fixed)
    world.log.advance(POLL_INTERVAL_MS + 1)
    member = world.node("b", Disk())
    write(world, COUNT)
    world.settle(member)
    write(world, COUNT)
    with pytest.raises(TaskMigratedError):
        world.settle(fixed)
    world.settle(member)
    assert_right(world, member)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_group_worker_that_was_frozen_is_refused_once_a_fixed_one_has_its_partitions(guarantee: str) -> None:
    world = a_world(guarantee)
    member = world.node("a")
    for _ in range(12):
        member.turn()
    world.log.advance(POLL_INTERVAL_MS + 1)
    fixed = world.node("b", Disk(), fixed=(0, 1))
    write(world, COUNT)
    world.settle(fixed)
    before = world.log.group("app").offsets.copy()
    seen = len(member.steps)
    member.turn()
    assert "committed" not in member.steps[seen:]
    assert world.log.group("app").offsets == before


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_older_of_two_workers_on_one_fixed_partition_ends(guarantee: str) -> None:
    world = a_world(guarantee)
    older = world.node("a", fixed=(0, 1))
    for _ in range(6):
        older.turn()
    newer = world.node("b", Disk(), fixed=(0, 1))
    write(world, COUNT)
    with pytest.raises(TaskMigratedError):
        for _ in range(400):
            newer.turn()
            older.turn()
    world.settle(newer)
    assert_right(world, newer)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_worker_that_opens_its_producer_again_sees_that_the_group_has_its_partitions(guarantee: str) -> None:
    """The new owner has committed nothing yet, so the positions are still the fixed worker's own."""
    world = a_world(guarantee, 1)
    fixed = world.node("a", fixed=(0,))
    for _ in range(6):
        fixed.turn()
    members: list[Node] = []
    last = "offsets_added" if guarantee == "exactly_once" else "flushed"

    def sleep(step: str) -> None:
        if step == last and not members:
            world.log.advance(POLL_INTERVAL_MS + 1)
            world.log.fault("commit_before", 1, UnknownOutcomeError("no answer"))
            members.append(world.node("b", Disk()))
            members[0].runtime.consumer.poll(0, 0)

    fixed.on_step = sleep
    write(world, COUNT)
    with pytest.raises((TaskMigratedError, SettingsError)):
        world.settle(fixed)
    world.settle(members[0])
    assert_right(world, members[0])


def test_fixed_worker_does_not_start_beside_the_group() -> None:
    world = a_world("at_least_once")
    member = world.node("a")
    member.turn()
    with pytest.raises(SettingsError, match="has 1 members"):
        world.node("b", Disk(), fixed=(0,))
