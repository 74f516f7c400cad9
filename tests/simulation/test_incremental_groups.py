"""Workers in a group under the broker's own protocol, whose changes come as differences."""

from __future__ import annotations

import pytest

from penstock.streams.runtime.commit_protocol import Guarantee
from tests.simulation.programs import clicks_world
from tests.simulation.test_faults import OUTPUTS, undisturbed
from tests.simulation.world import APP, POLL_INTERVAL_MS, Node


def turned(turns: int, *nodes: Node) -> None:
    for _ in range(turns):
        for node in nodes:
            node.turn()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("late_polls", [0, 3])
def test_tasks_move_while_the_others_go_on(guarantee: Guarantee, late_polls: int) -> None:
    world = clicks_world(guarantee, incremental=True, partitions=2, late_polls=late_polls)
    first = world.node("a")
    turned(12, first)
    stayed = dict(first.runtime.tasks)
    second = world.node("b")
    turned(20, first, second)
    kept = first.runtime.tasks
    assert kept
    assert second.runtime.tasks
    assert set(kept).isdisjoint(second.runtime.tasks)
    assert all(kept[task_id] is stayed[task_id] for task_id in kept), "they were not opened again"
    world.settle(first, second)
    assert [first.said, second.said] == [[], []]
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]


@pytest.mark.parametrize("strict_epochs", [False, True])
def test_nobody_joins_again_because_idle_ones_come_and_go(strict_epochs: bool) -> None:
    world = clicks_world("exactly_once", incremental=True)
    world.log.incremental_group(APP).strict_epochs = strict_epochs
    nodes = [world.node("a"), world.node("b")]
    turned(12, *nodes)
    for i in range(12):
        idle = world.node(f"z{i}")
        turned(8, *nodes, idle)
        idle.stop()
        turned(8, *nodes)
    world.settle(*nodes)
    assert [node.said for node in nodes] == [[], []]
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]


def test_an_epoch_that_grows_in_the_middle_of_a_commit_costs_another_try_at_most() -> None:
    for strict in (False, True):
        for nth in range(1, 6):
            world = clicks_world("exactly_once", incremental=True)
            group = world.log.incremental_group(APP)
            group.strict_epochs = strict
            node = world.node("a")
            world.log.fault("send_offsets", nth, group.grow)
            world.settle(node)
            assert node.said == [], nth
            assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0], nth


def test_a_worker_that_was_held_up_loses_what_others_have_taken_over() -> None:
    world = clicks_world("exactly_once", incremental=True)
    frozen = world.node("a")
    while not any(t.uncommitted_records for t in frozen.runtime.tasks.values()):
        frozen.turn()
    world.log.advance(POLL_INTERVAL_MS + 1)
    other = world.node("b")
    while not other.runtime.tasks:
        other.turn()
    before = dict(world.log.group(APP).offsets)
    frozen.runtime._commit_all()
    assert dict(world.log.group(APP).offsets) == before
    world.settle(frozen, other)
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]
