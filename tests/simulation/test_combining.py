"""Crashes of a worker that holds partial aggregates: what is held is in no store, and must come again, once."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any, get_args

import pytest

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.state.log import TaskId
from penstock.state.serdes.serde import INT
from penstock.streams.events.measurements import CommitStep
from tests.simulation.programs import REGIONS, clicks, combined_world, windowed_clicks
from tests.simulation.world import Disk, World

STEPS: tuple[CommitStep, ...] = get_args(CommitStep)
EACH = {region.encode(): str(sum(n % 3 == i for n in range(120))).encode() for i, region in enumerate(REGIONS)}


@cache
def undisturbed(guarantee: str) -> tuple[dict[tuple[TaskId, str], dict[bytes, bytes]], Counter[CommitStep]]:
    """Stores and steps of the run that nothing happens to."""
    world = combined_world(guarantee)
    node = world.node("a")
    world.settle(node)
    assert set(EACH.items()) <= set(world.rows("counted"))
    return world.stores(node), Counter(node.steps)


def crashed(guarantee: str, step: CommitStep, nth: int) -> tuple[World, Any]:
    world = combined_world(guarantee)
    node = world.node("a")
    node.crash_at(step, nth)
    node.run_until_crash()
    node.crash()
    after = world.node("a", node.disk) if nth % 2 else world.node("b", Disk())
    if not nth % 2:
        world.log.advance(10_001)  # the dead producer's transaction is ended by its time-out
    world.settle(after)
    return world, after


@pytest.mark.parametrize("step", STEPS)
def test_exactly_once_ends_as_the_undisturbed_run(step: CommitStep) -> None:
    stores, steps = undisturbed("exactly_once")
    assert steps[step] > 2
    for nth in range(1, steps[step] + 1):
        world, node = crashed("exactly_once", step, nth)
        assert world.stores(node) == stores, f"crash at {step} number {nth}"
        rows = world.rows("counted")
        for region, count in EACH.items():
            assert max(int(v) for k, v in rows if k == region and v is not None) == int(count), (step, nth)


@pytest.mark.parametrize("step", [s for s in STEPS if s not in ("begun", "offsets_added")])
def test_at_least_once_loses_nothing(step: CommitStep) -> None:
    _, steps = undisturbed("at_least_once")
    for nth in range(1, steps[step] + 1):
        world, node = crashed("at_least_once", step, nth)
        counted = {k: INT.deserialize(v[8:]) for s in world.stores(node).values() for k, v in s.items()}
        assert counted.keys() == EACH.keys()
        assert all(counted[k] >= int(n) for k, n in EACH.items()), f"crash at {step} number {nth}"


def test_partials_on_their_way_are_not_taken_for_those_of_other_windows() -> None:
    """A worker of a topology with other windows refuses them; once they are read, it goes on."""
    world = World(windowed_clicks("1m"), "exactly_once", inputs=["clicks"], outputs=["counted"])
    world.write("clicks", clicks(random.Random(1), 40)[1])
    node = world.node("a")
    world.settle(node)
    world.write("clicks", clicks(random.Random(2), 40)[1])
    while not node.busy:
        node.turn()
    node.stop()  # its last commit sends what it held to a topic that it reads no longer
    world.topology = windowed_clicks("5m")
    with pytest.raises(IncompatibleError, match="written for other windows"):
        world.settle(world.node("b"))
    world.topology = windowed_clicks("1m")
    again = world.node("a", node.disk)
    world.settle(again)
    again.stop()
    world.topology = windowed_clicks("5m")
    world.settle(world.node("b"))


@pytest.mark.parametrize("point", ["send", "flush"])
def test_partials_that_could_not_be_sent_at_once_are_sent_with_the_next_try(point: str) -> None:
    """They were emitted for a commit, and are nowhere but among the outputs of their task."""
    for nth in range(1, 12):
        world = combined_world("at_least_once")
        node = world.node("a")
        world.log.fault(point, nth, RetriableError("no answer"))
        world.settle(node)
        counts = {k: int.from_bytes(v[8:], "big") for store in world.stores(node).values() for k, v in store.items()}
        assert all(counts[region] >= int(count) for region, count in EACH.items()), (nth, counts)
