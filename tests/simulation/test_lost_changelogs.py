"""Topics that are made again, and changelogs that lose their last records, under a running worker: it ends with the reason,
and commits nothing that a restore could not give again."""

from __future__ import annotations

import pytest

from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.topologies.examples import keyed_count
from tests.simulation.world import APP, POLL_INTERVAL_MS, TURN_MS, Disk, Node, World

GUARANTEES = ["exactly_once", "at_least_once"]
COUNT = 40
FOUND_MS = 35_000


def started(guarantee: str) -> tuple[World, Node]:
    world = World(keyed_count.build("in", "out"), guarantee, partitions=1, inputs=["in"], outputs=["out"])  # type: ignore[arg-type]  # one of them
    write(world)
    node = world.node("a")
    world.settle(node)
    return world, node


def write(world: World) -> None:
    world.write("in", [(b"k%d" % (i % 4), b"v", i) for i in range(COUNT)])


def changelog(world: World) -> TopicPartition:
    (name,) = (t for t in world.log.topics if t.endswith("-changelog"))
    return TopicPartition(name, 0)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_busy_worker_commits_nothing_after_its_changelog_lost_records(guarantee: str) -> None:
    world, node = started(guarantee)
    log = world.log.partition(changelog(world))
    log.truncate(log.end - 4)
    before = world.log.group(APP).offsets.copy()
    write(world)
    with pytest.raises(IncompatibleError, match="has lost records"):
        world.settle(node)
    assert world.log.group(APP).offsets[TopicPartition("in", 0)].offset == before[TopicPartition("in", 0)].offset


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_idle_worker_sees_that_its_changelog_lost_records(guarantee: str) -> None:
    world, node = started(guarantee)
    log = world.log.partition(changelog(world))
    log.truncate(log.end - 4)
    with pytest.raises(IncompatibleError, match="has lost records"):
        for _ in range(FOUND_MS // TURN_MS):
            node.turn()


@pytest.mark.parametrize("which", ["in", "out", "changelog"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_topic_that_is_made_again_ends_the_worker(guarantee: str, which: str) -> None:
    world, node = started(guarantee)
    world.log.make_again(changelog(world).topic if which == "changelog" else which)
    if which == "in":
        for _ in range(3):
            write(world)  # so that its offsets are there again
    with pytest.raises(IncompatibleError, match="made again"):
        for _ in range(FOUND_MS // TURN_MS):
            node.turn()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_topic_that_one_broker_does_not_know_for_a_moment_is_not_missed(guarantee: str) -> None:
    world, node = started(guarantee)
    topic = world.log.topics.pop("out")
    for _ in range(1_000 // TURN_MS + 2):
        node.turn()
    world.log.topics["out"] = topic
    write(world)
    world.settle(node)
    world.log.topics.pop("out")
    with pytest.raises(IncompatibleError, match="was deleted"):
        for _ in range(FOUND_MS // TURN_MS):
            node.turn()


def test_open_transaction_of_a_frozen_worker_is_not_taken_for_lost_records() -> None:
    """To readers of committed records the changelog ends where it began, until the brokers end it."""
    world = World(keyed_count.build("in", "out"), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    write(world)
    first = world.node("a")
    others: list[Node] = []

    def sleep(step: str) -> None:
        if step != "flushed" or others:
            return
        world.log.advance(POLL_INTERVAL_MS + 1)
        others.append(world.node("b", Disk()))
        while world.log.now_ms < FOUND_MS:
            others[0].turn()

    first.on_step = sleep
    while not others:
        first.turn()
    write(world)
    world.settle(first, others[0])
    assert set(world.rows("out").values()) == {1}
    assert sum(world.rows("out").values()) == 2 * COUNT
