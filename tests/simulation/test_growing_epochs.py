"""Groups whose epoch grows while nobody's partitions change, as the broker's own protocol had it before KIP-1251."""

from __future__ import annotations

import pytest

from penstock.streams.runtime.commit_protocol import Guarantee
from tests.simulation.programs import clicks_world
from tests.simulation.test_faults import OUTPUTS, undisturbed
from tests.simulation.world import APP, POLL_INTERVAL_MS


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("every", [1, 7])
def test_nobody_joins_again_because_others_come_and_go(guarantee: Guarantee, every: int) -> None:
    world = clicks_world(guarantee, epochs_grow=True)
    nodes = [world.node("a"), world.node("b")]
    turns = 0
    while turns < 400 or any(node.busy for node in nodes):
        turns += 1
        for node in nodes:
            node.turn()
        if turns % every == 0:
            world.log.group(APP).grow()
    assert [node.said for node in nodes] == [[], []]
    assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0]


def test_an_epoch_that_grows_in_the_middle_of_a_commit_costs_another_try() -> None:
    for nth in range(1, 6):
        world = clicks_world("exactly_once", epochs_grow=True)
        node = world.node("a")
        world.log.fault("send_offsets", nth, world.log.group(APP).grow)
        world.settle(node)
        assert node.said == [], nth
        assert {t: world.rows(t) for t in OUTPUTS} == undisturbed()[0], nth


def test_a_member_that_was_lost_commits_nothing() -> None:
    """It has not polled for too long, and another has its partitions; the token that it takes now is of no use."""
    world = clicks_world("exactly_once", epochs_grow=True)
    frozen, other = world.node("a"), None
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
