"""Inputs that lose their last records while others take their offsets, as after an unclean election: no worker goes on
behind them, since it would never read those. Elections that lose nothing disturb nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata, ReadUpTo
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import keyed_count
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, Disk, Node, World

COUNT = 40
IN = TopicPartition("in", 0)
LOST = r"in \[0\] no longer holds the records before offset 40 that were read while its leader had epoch 0"


def counted() -> Topology:
    return keyed_count.build("in", "out")


def stateless() -> Topology:
    builder = StreamsBuilder("copied", key="bytes", value="bytes")
    builder.stream("in").to("out")
    return builder.build()


EACH = pytest.mark.parametrize(
    ("guarantee", "build"), [(g, b) for g in ("exactly_once", "at_least_once") for b in (counted, stateless)]
)


def started(guarantee: str, build: Callable[[], Topology]) -> tuple[World, Node]:
    world = World(build(), guarantee, partitions=1, inputs=["in"], outputs=["out"])  # type: ignore[arg-type]  # one of them
    write(world, COUNT)
    node = world.node("a")
    world.settle(node)
    return world, node


def write(world: World, count: int) -> None:
    world.write("in", [(b"k%d" % (i % 4), b"v", i) for i in range(count)])


def committed(world: World) -> OffsetAndMetadata:
    return world.log.group(APP).offsets[IN]


def noted(world: World) -> CommitMetadata:
    return commit_metadata.decode(committed(world).metadata)


def is_whole(world: World) -> bool:
    """Whether each record of the input was processed once, by the counts, or by the outputs."""
    written = Counter(e.key for _, _, e in world.log.read("in"))
    out = [e for _, _, e in world.log.read("out")]
    last = {e.key: e.value for e in out}
    as_counts = {k: int.from_bytes(v, "big") if v != b"v" else 0 for k, v in last.items()}
    return as_counts == written or Counter(e.key for e in out) == written


@EACH
def test_the_epoch_of_what_was_read_is_committed(guarantee: str, build: Callable[[], Topology]) -> None:
    world, node = started(guarantee, build)
    assert noted(world).read_up_to == ReadUpTo(COUNT, 0)
    world.log.partition(IN).elect()
    write(world, 3)
    world.settle(node)
    assert noted(world).read_up_to == ReadUpTo(COUNT + 3, 1)


@pytest.mark.parametrize("stopped", [True, False])
@EACH
def test_records_in_the_place_of_lost_ones_are_not_passed_over(
    guarantee: str, build: Callable[[], Topology], stopped: bool
) -> None:
    world, node = started(guarantee, build)
    before = committed(world)
    if stopped:
        node.stop()
        before = committed(world)
    world.log.partition(IN).truncate(COUNT - 4)
    write(world, 9)
    if stopped:
        node = world.node("b", node.disk)
    with pytest.raises(IncompatibleError, match=LOST):
        world.settle(node)
    assert committed(world).offset == before.offset == COUNT


@EACH
def test_elections_that_lose_nothing_disturb_nobody(guarantee: str, build: Callable[[], Topology]) -> None:
    world, node = started(guarantee, build)
    log = world.log.partition(IN)
    for disk in (None, Disk(), None, Disk()):
        log.elect()
        log.append(LogEntry(None, None, 0, control=True))
        write(world, 5)
        log.elect()
        log.append(LogEntry(None, None, 0, control=True))  # behind the last record, of the next epoch
        world.settle(node)
        assert committed(world).offset == log.end
        if disk is not None:
            node.stop()
            log.elect()
            log.append(LogEntry(None, None, 0, control=True))
            node = world.node("b", disk)
    world.settle(node)
    assert is_whole(world)


@EACH
def test_what_retention_has_removed_is_not_compared(guarantee: str, build: Callable[[], Topology]) -> None:
    world, node = started(guarantee, build)
    log = world.log.partition(IN)
    node.stop()
    log.elect()
    write(world, 5)
    group = world.log.group(APP)
    metadata = noted(world)
    metadata.read_up_to = ReadUpTo(COUNT - 10, 0)
    group.offsets[IN] = OffsetAndMetadata(COUNT, commit_metadata.encode(metadata))
    log.delete_before(COUNT)
    world.settle(world.node("b", node.disk))
    assert committed(world).offset == log.end


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_an_input_of_which_nothing_comes_keeps_its_epoch(guarantee: str) -> None:
    builder = StreamsBuilder("merged", key="bytes", value="bytes")
    builder.stream("in").merge(builder.stream("other")).to("out")
    world = World(builder.build(), guarantee, partitions=1, inputs=["in", "other"], outputs=["out"])  # type: ignore[arg-type]  # one of them
    write(world, COUNT)
    world.write("other", [(b"k", b"v", 0)])
    node = world.node("a")
    world.settle(node)
    node.stop()
    world.log.partition(IN).elect()
    world.write("other", [(b"k", b"v", 1)])
    world.settle(world.node("b", node.disk))
    assert noted(world).read_up_to == ReadUpTo(COUNT, 0)


@EACH
def test_positions_without_an_epoch_are_gone_on_from(guarantee: str, build: Callable[[], Topology]) -> None:
    """As earlier releases committed them, and as tools do."""
    world, node = started(guarantee, build)
    node.stop()
    metadata = noted(world)
    metadata.read_up_to = None
    world.log.group(APP).offsets[IN] = OffsetAndMetadata(COUNT, commit_metadata.encode(metadata))
    world.log.partition(IN).elect()
    write(world, 5)
    world.settle(world.node("b", node.disk))
    assert noted(world).read_up_to == ReadUpTo(COUNT + 5, 1)
