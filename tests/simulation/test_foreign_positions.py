"""A worker is held up inside its commit, another one takes over and commits on; then the held-up one goes on."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, UnknownOutcomeError
from penstock.topologies.examples import keyed_count
from tests.simulation.programs import clicks, combined_world
from tests.simulation.world import APP, POLL_INTERVAL_MS, Disk, Node, World

KEYS = 4
COUNT = 40
TRANSACTION_TIMEOUT_MS = 10_000


def a_world(guarantee: str = "exactly_once") -> World:
    world = World(keyed_count.build("in", "out"), guarantee, partitions=1, inputs=["in"], outputs=["out"])  # type: ignore[arg-type]  # one of them
    write(world, COUNT)
    return world


def write(world: World, count: int) -> None:
    world.write("in", [(b"k%d" % (i % KEYS), b"v", i) for i in range(count)])


def counts(world: World, node: Node) -> dict[bytes, int]:
    return {k: int.from_bytes(v[8:], "big") for store in world.stores(node).values() for k, v in store.items()}


def wanted(world: World) -> dict[bytes, int]:
    return dict(Counter(e.key for _, _, e in world.log.read("in") if e.key is not None))


def held_up(world: World, point: str, error: PenstockError, fixed: tuple[int, ...] | None) -> tuple[Node, Node]:
    """The first node stops in its commit until the second has committed much more; then ``error`` strikes it once. Returns
    both as soon as the second is there and the first has ended, or has gone on for a while."""
    first = world.node("a", fixed=fixed)
    for _ in range(12):
        first.turn()
    others: list[Node] = []

    def sleep(step: str) -> None:
        if step != "offsets_added" or others:
            return
        world.log.advance(max(TRANSACTION_TIMEOUT_MS, POLL_INTERVAL_MS) + 1)
        others.append(world.node("b", Disk(), fixed=fixed))
        for _ in range(40):
            others[0].turn()
        write(world, COUNT)
        for _ in range(60):
            others[0].turn()
        world.log.fault(point, 1, error)

    first.on_step = sleep
    write(world, 3)
    with suppress(TaskMigratedError):
        for _ in range(60):
            first.turn()
    return first, others[0]


ERRORS = [
    ("commit_before", UnknownOutcomeError("no answer")),
    ("commit_before", AbortableError("refused")),
    ("commit_before", RetriableError("no answer")),
    ("commit_before", ProducerRetiredError("of no more use")),
]


@pytest.mark.parametrize(("point", "error"), ERRORS, ids=lambda e: type(e).__name__)
def test_stores_without_the_other_owners_commits_are_restored_in_a_group(point: str, error: PenstockError) -> None:
    world = a_world()
    first, second = held_up(world, point, error, None)
    for _ in range(30):
        first.turn()
        second.turn()
    second.stop()
    write(world, COUNT)
    world.settle(first)
    assert counts(world, first) == wanted(world)
    assert set(world.rows("out").values()) == {1}


@pytest.mark.parametrize(("point", "error"), ERRORS, ids=lambda e: type(e).__name__)
def test_held_up_worker_of_a_fixed_partition_ends_and_the_newer_one_goes_on(point: str, error: PenstockError) -> None:
    world = a_world()
    first, second = held_up(world, point, error, (0,))
    with pytest.raises(TaskMigratedError):
        world.settle(first)
    write(world, COUNT)
    world.settle(second)
    assert counts(world, second) == wanted(world)
    assert set(world.rows("out").values()) == {1}


@pytest.mark.parametrize("fixed", [None, (0,)], ids=["group", "fixed"])
def test_commit_that_took_place_is_still_found_by_its_own_worker(fixed: tuple[int, ...] | None) -> None:
    world = a_world()
    node = world.node("a", fixed=fixed)
    world.log.fault("commit_after", 1, UnknownOutcomeError("no answer"))
    world.settle(node)
    assert world.log.passages["commit_after"] > 1
    assert counts(world, node) == wanted(world)
    assert set(world.rows("out").values()) == {1}


def test_worker_that_lost_its_producer_while_idle_sees_who_owns_the_fixed_partition() -> None:
    """The client gave the handle up after a commit; meanwhile another worker took the partition and stopped again."""
    world = a_world()
    first = world.node("a", fixed=(0,))
    world.settle(first)
    first.producers[-1].close()
    second = world.node("b", fixed=(0,))
    write(world, COUNT)
    world.settle(second)
    second.stop()
    write(world, COUNT)
    with pytest.raises(TaskMigratedError):
        world.settle(first)
    third = world.node("c", fixed=(0,))
    world.settle(third)
    assert counts(world, third) == wanted(world)
    assert world.log.group(APP).offsets[TopicPartition("in", 0)].offset == 3 * COUNT


def test_idle_tasks_of_a_fenced_producer_are_looked_at_too() -> None:
    """A fixed worker's commit of one task fails. Before its producer is open again another worker has committed for that
    task and for the next one, which was idle here."""
    world = combined_world("exactly_once", count=30, partitions=1)
    first = world.node("a", fixed=(0,))
    world.settle(first)
    others: list[Node] = []

    def sleep() -> None:
        world.log.advance(TRANSACTION_TIMEOUT_MS + 1)
        world.log.fault("init", 1, take_over)
        raise UnknownOutcomeError("no answer")

    def take_over() -> None:
        others.append(world.node("b", fixed=(0,)))
        world.settle(others[0])

    more = clicks(random.Random(2), 45)[1]
    world.write("clicks", more[:15])
    world.log.fault("commit_before", 1, sleep)
    world.settle(first)
    assert others
    world.write("clicks", more[15:])
    world.settle(first)
    assert sum(counts(world, first).values()) == 30 + 45
    assert set(world.rows("counted").values()) == {1}
