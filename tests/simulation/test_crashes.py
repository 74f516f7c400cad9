"""A crash at every step of every commit, and a restart: what readers of committed records and the stores then hold."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, get_args

import pytest

from penstock.state.log import TaskId
from penstock.streams.events.measurements import CommitStep
from tests.simulation.programs import clicks_world, stateless_world
from tests.simulation.world import Disk, Node, World

OUTPUTS = ("joined", "counted")
STEPS: tuple[CommitStep, ...] = get_args(CommitStep)
Stores = dict[tuple[TaskId, str], dict[bytes, bytes]]


@cache
def undisturbed(guarantee: str) -> tuple[dict[str, Counter[Any]], Stores, Counter[CommitStep]]:
    """Outputs, stores and steps of the run that nothing happens to."""
    world = clicks_world(guarantee)
    node = world.node("a")
    world.settle(node)
    return {t: world.rows(t) for t in OUTPUTS}, world.stores(node), Counter(node.steps)


def crashed(guarantee: str, step: CommitStep, nth: int, *, lose_unflushed: bool, other: bool) -> tuple[World, Node]:
    """Run to the nth passage of the step, be gone, and let this worker or another one run to the end."""
    world = clicks_world(guarantee)
    node = world.node("a")
    node.crash_at(step, nth)
    node.run_until_crash()
    node.crash(lose_unflushed=lose_unflushed)
    after = world.node("b", Disk()) if other else world.node("a", node.disk)
    if other:
        world.log.advance(10_001)  # the dead producer's transaction is ended by its time-out
    world.settle(after)
    return world, after


@pytest.mark.parametrize("how", ["same worker", "power cut", "another worker"])
@pytest.mark.parametrize("step", STEPS)
def test_exactly_once_equals_the_undisturbed_run(step: CommitStep, how: str) -> None:
    outputs, stores, steps = undisturbed("exactly_once")
    assert steps[step] > 3
    for nth in range(1, steps[step] + 1):
        world, node = crashed(
            "exactly_once", step, nth, lose_unflushed=how == "power cut", other=how == "another worker"
        )
        assert {t: world.rows(t) for t in OUTPUTS} == outputs, f"crash at {step} number {nth}"
        assert world.stores(node) == stores, f"crash at {step} number {nth}"


@pytest.mark.parametrize("how", ["same worker", "power cut", "another worker"])
@pytest.mark.parametrize("step", [s for s in STEPS if s not in ("begun", "offsets_added")])
def test_at_least_once_loses_nothing(step: CommitStep, how: str) -> None:
    outputs, _, steps = undisturbed("at_least_once")
    assert steps[step] > 3
    for nth in range(1, steps[step] + 1):
        world, node = crashed(
            "at_least_once", step, nth, lose_unflushed=how == "power cut", other=how == "another worker"
        )
        where = f"crash at {step} number {nth}"
        assert not outputs["joined"] - world.rows("joined"), where
        reached: dict[bytes | None, int] = {}
        for key, value in world.rows("counted"):
            assert value is not None
            reached[key] = max(reached.get(key, 0), int(value))
        wanted = {k: sum(n for (key, _), n in outputs["counted"].items() if key == k) for k, _ in outputs["counted"]}
        assert all(reached[k] >= n for k, n in wanted.items()), where
        counted = {k: v for (_, name), s in world.stores(node).items() if name == "counts" for k, v in s.items()}
        assert counted.keys() == {k for k in wanted if k is not None}, where


@pytest.mark.parametrize("turns", range(1, 14))
def test_at_most_once_does_nothing_twice(turns: int) -> None:
    world = stateless_world("at_most_once")
    node = world.node("a")
    for _ in range(turns):
        node.turn()
    node.crash()
    after = world.node("a", node.disk)
    world.settle(after)
    rows = world.rows("out")
    assert max(rows.values()) == 1
    assert len(rows) <= 60


@pytest.mark.parametrize("point", ["send", "flush", "consumer_commit_before", "consumer_commit_after"])
def test_at_most_once_does_nothing_twice_when_a_call_ends_the_process(point: str) -> None:
    from tests.simulation.world import Crash

    world = stateless_world("at_most_once")
    node = world.node("a")
    world.log.fault(point, 2, Crash())
    node.run_until_crash()
    node.crash()
    after = world.node("a", node.disk)
    world.settle(after)
    assert max(world.rows("out").values()) == 1


def test_at_most_once_loses_nothing_at_a_clean_stop() -> None:
    world = stateless_world("at_most_once")
    node = world.node("a")
    for _ in range(3):
        node.turn()
    assert 0 < len(world.rows("out")) < 60
    node.stop()
    after = world.node("a", node.disk)
    world.settle(after)
    assert set(world.rows("out").values()) == {1}
    assert len(world.rows("out")) == 60


def test_clean_stop_leaves_nothing_to_restore() -> None:
    world = clicks_world("exactly_once")
    node = world.node("a")
    for _ in range(12):
        node.turn()
    node.stop()
    after = world.node("a", node.disk)
    world.settle(after)
    assert after.restoring.replayed == 0
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed("exactly_once")[0]
