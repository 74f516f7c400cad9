"""Topics that are made again, and changelogs that lose their last records, under a running worker: it ends with the reason,
and commits nothing that a restore could not give again."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.recovery.position import decode_position, encode_position
from penstock.state.stores.store import Puts, StoreWrites
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.testing.memory_log import LogEntry
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
    with pytest.raises(IncompatibleError, match="no longer holds what the last commit wrote"):
        for _ in range(FOUND_MS // TURN_MS):
            node.turn()


def rewrite(world: World) -> None:
    """A leader without the last records, and as many of transactions that were aborted since."""
    log = world.log.partition(changelog(world))
    end = log.end
    log.truncate(end - 4)
    while log.end < end + 4:
        log.append(LogEntry(None, None, 0, control=True))


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_lost_records_in_whose_place_others_stand_are_noticed(guarantee: str, idle: bool) -> None:
    world, node = started(guarantee)
    before = world.log.group(APP).offsets[TopicPartition("in", 0)].offset
    rewrite(world)
    if not idle:
        write(world)
    with pytest.raises(IncompatibleError, match="no longer holds what the last commit wrote"):
        for _ in range(FOUND_MS // TURN_MS):
            node.turn()
    assert world.log.group(APP).offsets[TopicPartition("in", 0)].offset == before


@pytest.mark.parametrize("disk", ["same", "fresh"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_restore_notices_that_others_stand_in_the_place_of_what_was_committed(guarantee: str, disk: str) -> None:
    world, node = started(guarantee)
    node.stop()
    rewrite(world)
    with pytest.raises(IncompatibleError, match="no longer holds what the last commit wrote"):
        world.settle(world.node("b", node.disk if disk == "same" else Disk()))


def test_store_that_has_read_what_the_log_lost_is_put_aside() -> None:
    """What was committed since then stands in the log: the store is restored, whatever its offset."""
    world, node = started("exactly_once")
    old = Disk()
    stale = world.node("b", old)
    node.stop()
    world.settle(stale)
    log = world.log.partition(changelog(world))
    (backend,) = old.backends.values()
    (name,) = (s.name for s in world.topology.stores)
    position = decode_position(backend.position(name) or b"")
    write(world)
    world.settle(stale)
    stale.crash()
    log.elect()
    ahead = encode_position(dataclasses.replace(position, changelog_offset=log.end + 2))
    for _ in range(4):
        log.append(LogEntry(None, None, 0, control=True))
    backend.commit([StoreWrites(name, Puts([b"k0"], [bytes(16)]), ahead)])
    node = world.node("c", old)
    write(world)
    world.settle(node)
    assert any("a later leader lacked records" in reason for reason in node.restoring.said)
    counts = {k: int.from_bytes(v[8:], "big") for s in world.stores(node).values() for k, v in s.items()}
    assert counts == Counter(e.key for _, _, e in world.log.read("in"))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_leader_that_has_everything_disturbs_nobody(guarantee: str) -> None:
    world, node = started(guarantee)
    for _ in range(3):
        world.log.partition(changelog(world)).elect()
        write(world)
        world.settle(node)
    node.stop()
    world.log.partition(changelog(world)).elect()
    node = world.node("b", Disk())
    write(world)
    world.settle(node)
    counts = {k: int.from_bytes(v[8:], "big") for s in world.stores(node).values() for k, v in s.items()}
    assert counts == Counter(e.key for _, _, e in world.log.read("in"))


def test_positions_of_earlier_releases_know_no_leader() -> None:
    """They are gone on from as before; the next commit notes one."""
    world, node = started("exactly_once")
    node.stop()
    group, tp = world.log.group(APP), TopicPartition("in", 0)
    noted = commit_metadata.decode(group.offsets[tp].metadata)
    assert noted.epochs
    noted.epochs, noted.topic_id = {}, ""
    group.offsets[tp] = OffsetAndMetadata(group.offsets[tp].offset, commit_metadata.encode(noted))
    world.log.partition(changelog(world)).elect()
    node = world.node("b", Disk())
    write(world)
    world.settle(node)
    assert commit_metadata.decode(group.offsets[tp].metadata).epochs == {world.topology.stores[0].name: 1}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_input_that_was_made_again_while_nothing_ran_is_refused(guarantee: str) -> None:
    world, node = started(guarantee)
    node.stop()
    world.log.make_again("in")
    for _ in range(3):
        write(world)
    refused = world.node("a", node.disk)
    with pytest.raises(IncompatibleError, match="topic in was deleted and recreated since the last commit"):
        world.settle(refused)
    refused.crash()
    world.log.group(APP).offsets.clear()
    world.log.make_again(changelog(world).topic)
    write(world)
    node = world.node("a")
    world.settle(node)
    assert commit_metadata.decode(world.log.group(APP).offsets[TopicPartition("in", 0)].metadata).topic_id


@pytest.mark.parametrize("which", ["in", "out", "changelog"])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_topic_that_is_made_again_ends_the_worker(guarantee: str, which: str) -> None:
    world, node = started(guarantee)
    world.log.make_again(changelog(world).topic if which == "changelog" else which)
    if which == "in":
        for _ in range(3):
            write(world)  # so that its offsets are there again
    with pytest.raises(IncompatibleError, match="recreated"):
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
