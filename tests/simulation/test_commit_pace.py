"""When a commit begins: as often as asked for, and at least-once, given patience, when nothing waits for the log."""

from __future__ import annotations

import itertools

import pytest

from penstock.streams.events.measurements import CommitStep
from tests.simulation.programs import clicks_world, stateless_world
from tests.simulation.test_crashes import OUTPUTS, undisturbed
from tests.simulation.world import TURN_MS, Node, World

INTERVAL_MS = 100


def begins(world: World, node: Node) -> list[tuple[int, int]]:
    """Of every commit of the run: when it began, and how many records were not acknowledged then."""
    found: list[tuple[int, int]] = []

    def look(step: CommitStep) -> None:
        if step == "prepared":
            found.append((world.log.now_ms, node.producers[-1].unacknowledged()))

    node.on_step = look
    world.settle(node)
    return found


def waits(found: list[tuple[int, int]]) -> list[int]:
    return [later - sooner for (sooner, _), (later, _) in itertools.pairwise(found)]


@pytest.mark.parametrize("took_ms", [0, 40])
def test_interval_counts_from_begin_to_begin(took_ms: int) -> None:
    world = stateless_world("at_least_once", count=240)
    for nth in range(1, 100):
        world.log.fault("flush", nth, lambda: world.log.advance(took_ms))
    between = waits(begins(world, world.node("a")))[1:-1]
    assert len(between) > 2
    assert max(between) <= INTERVAL_MS + TURN_MS


def test_slow_commits_leave_half_of_the_time_for_work() -> None:
    world = stateless_world("at_least_once", count=240)
    for nth in range(1, 100):
        world.log.fault("flush", nth, lambda: world.log.advance(400))
    between = waits(begins(world, world.node("a")))[1:-1]
    assert len(between) > 2
    assert min(between) >= 400 + INTERVAL_MS // 2


def test_patient_commit_begins_when_all_is_acknowledged() -> None:
    world = stateless_world("at_least_once", count=240, queue_max_records=50, commit_delay_max_ms=60)
    found = begins(world, world.node("a"))
    assert len(found) > 3
    assert [left for _, left in found] == [0] * len(found)
    assert max(waits(found)[1:-1]) <= INTERVAL_MS + 2 * TURN_MS


def test_patience_ends() -> None:
    """A log that is never done acknowledging does not keep commits from coming."""
    world = stateless_world("at_least_once", count=400, queue_max_records=50, commit_delay_max_ms=60)
    node = world.node("a")
    for producer in node.producers:
        producer.unacknowledged = lambda: 1  # type: ignore[method-assign]  # a log that is slow
    between = waits(begins(world, node))[1:-1]
    assert len(between) > 2
    assert INTERVAL_MS + 60 <= min(between) <= max(between) <= INTERVAL_MS + 60 + TURN_MS


def test_exactly_once_has_no_need_of_patience() -> None:
    world = stateless_world("exactly_once", count=240, queue_max_records=50, commit_delay_max_ms=60)
    found = begins(world, world.node("a"))
    assert any(left for _, left in found)
    assert max(waits(found)[1:-1]) <= INTERVAL_MS + TURN_MS


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_patience_changes_no_answer(guarantee: str) -> None:
    outputs, stores, _ = undisturbed(guarantee)
    world = clicks_world(guarantee, queue_max_records=30, commit_delay_max_ms=60)
    node = world.node("a")
    world.settle(node)
    assert {t: world.rows(t) for t in OUTPUTS} == outputs
    assert world.stores(node) == stores
