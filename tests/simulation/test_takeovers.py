"""A worker dies with a transaction open, or was only frozen: the next owner ends it itself."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.streams.events.facts import DeadWorkerFenced, Rejoining
from penstock.streams.events.measurements import CommitStep
from penstock.streams.ports.log import UnknownOutcomeError
from penstock.topologies.examples import keyed_count
from tests.simulation.world import POLL_INTERVAL_MS, TURN_MS, Disk, Node, World

KEYS = 4
COUNT = 200
PROMPT_MS = 1_500
"""Far less than a transaction's time-out, of which the session has taken a part already."""
OPEN: tuple[CommitStep, ...] = ("begun", "prepared", "sent", "flushed", "offsets_added")
"""After these steps of a commit its transaction is open."""


def a_world(*, named: bool = True) -> World:
    world = World(keyed_count.build("in", "out"), "exactly_once", partitions=2, inputs=["in"], outputs=["out"])
    world.named = named
    write(world)
    return world


def write(world: World) -> None:
    world.write("in", [(b"k%d" % (i % KEYS), b"v", i) for i in range(COUNT)])


def exact(world: World) -> bool:
    """Whether each update was written once, as readers of committed records see it."""
    seen = Counter(e.key for _, _, e in world.log.read("in"))
    return world.rows("out") == Counter(
        (key, n.to_bytes(8, "big")) for key, most in seen.items() for n in range(1, most + 1)
    )


def crashed(world: World, step: CommitStep) -> Node:
    """A worker that was killed after this step of its third commit, and that the group has removed since."""
    dead = world.node("dead")
    dead.crash_at(step, 3)
    dead.run_until_crash()
    dead.crash()
    return dead


def took_ms(world: World, *nodes: Node) -> int:
    """How long these take until readers see all answers."""
    begun_ms = world.log.now_ms
    while not exact(world):
        assert world.log.now_ms - begun_ms < 60_000
        for node in nodes:
            node.turn()
    return world.log.now_ms - begun_ms


def fenced(*nodes: Node) -> list[str]:
    return [fact.worker for node in nodes for fact in node.recorder.of(DeadWorkerFenced)]


@pytest.mark.parametrize("step", OPEN)
def test_next_owner_does_not_wait_for_what_a_dead_worker_left_open(step: CommitStep) -> None:
    world = a_world()
    dead = crashed(world, step)
    heir = world.node("heir", dead.disk)
    assert took_ms(world, heir) < PROMPT_MS
    assert fenced(heir) == ["dead"]


@pytest.mark.parametrize("step", OPEN[1:])  # after the first one nothing was sent yet
def test_without_names_it_waits_for_the_time_out(step: CommitStep) -> None:
    """What the tests here would miss if nothing was held up."""
    world = a_world(named=False)
    dead = crashed(world, step)
    heir = world.node("heir", dead.disk)
    assert took_ms(world, heir) > PROMPT_MS
    assert not fenced(heir)


@pytest.mark.parametrize("step", OPEN)
def test_two_heirs_at_once(step: CommitStep) -> None:
    world = a_world()
    crashed(world, step)
    heirs = world.node("b", Disk()), world.node("c", Disk())
    assert took_ms(world, *heirs) < PROMPT_MS
    assert set(fenced(*heirs)) == {"dead"}
    write(world)
    world.settle(*heirs)
    assert exact(world)
    assert not [fact for heir in heirs for fact in heir.recorder.of(Rejoining)]


@pytest.mark.parametrize("step", OPEN)
def test_frozen_worker_that_was_taken_for_dead_is_refused_and_joins_again_once(step: CommitStep) -> None:
    world = a_world()
    first = world.node("first")
    others: list[Node] = []

    def sleep(done: CommitStep) -> None:
        if done == step and not others and first.steps.count(step) == 3:
            world.log.advance(POLL_INTERVAL_MS + TURN_MS)
            others.append(world.node("other", Disk()))
            took_ms(world, *others)
            write(world)
            world.settle(*others)

    first.on_step = sleep
    while not others:
        first.turn()
    assert fenced(*others) == ["first"]
    write(world)
    world.settle(first, *others)
    assert exact(world)
    assert len(first.recorder.of(Rejoining)) == 1
    assert first.runtime.tasks
    assert fenced(*others) == ["first"]
    assert fenced(first) == []


@pytest.mark.parametrize("step", ["flushed", "offsets_added"])
def test_commit_that_the_coordinator_has_already_stays_a_commit(step: CommitStep) -> None:
    """The answer was lost, the worker died, and the next one fences it: nothing is done twice."""
    world = a_world()
    dead = world.node("dead")
    for _ in range(8):
        dead.turn()
    world.log.fault("commit_after", 1, UnknownOutcomeError("the answer is lost"))
    dead.crash_at(step, 2)
    dead.run_until_crash()
    dead.crash()
    heir = world.node("heir", dead.disk)
    world.settle(heir)
    assert exact(world)


def test_members_that_come_and_go_are_not_fenced() -> None:
    world = a_world()
    first = world.node("first")
    for _ in range(10):
        first.turn()
    second = world.node("second")
    write(world)
    world.settle(first, second)
    third = world.node("third")
    write(world)
    world.settle(first, second, third)
    second.stop()
    write(world)
    world.settle(first, third)
    again = world.node("second", second.disk)
    write(world)
    world.settle(first, third, again)
    assert exact(world)
    assert not fenced(first, second, third, again)


def test_idle_worker_that_dies_is_fenced_by_who_takes_its_tasks_and_only_once() -> None:
    world = a_world()
    dead = world.node("dead")
    world.settle(dead)
    dead.crash()
    heir = world.node("heir", Disk())
    world.settle(heir)
    late = world.node("late")
    world.settle(heir, late)
    late.stop()
    world.settle(heir)
    assert fenced(heir) == ["dead"]
