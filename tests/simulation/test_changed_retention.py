"""A user changes how long state is kept between two starts: what was kept is found again, warm or cold."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.runtime.topic_setup import fingerprint, prepare_topics
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, Disk, World

LEFT, RIGHT = TopicPartition("l", 0), TopicPartition("r", 0)


def joined(grace_ms: int) -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("l").join(
        builder.stream("r"), lambda a, b: f"{a}-{b}", within=60_000, grace=grace_ms, name="join"
    ).to("out")
    return builder.build()


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(("before_ms", "after_ms"), [(0, 0), (0, 600_000), (600_000, 0)])
def test_a_join_goes_on_with_another_grace(before_ms: int, after_ms: int, warm: bool) -> None:
    world = World(joined(before_ms), "exactly_once", partitions=1, inputs=["l", "r"], outputs=["out"])
    first, disk = fingerprint(world.topology, world.layout), Disk()
    node = world.node("a", disk)
    world.log.append(LEFT, LogEntry(b"k", b"A", 1_000_000))
    world.log.append(RIGHT, LogEntry(b"z", b"Z", 1_000_000))
    world.settle(node)
    node.stop()
    world.topology = joined(after_ms)
    world.layout = prepare_topics(world.topology, APP, MemoryAdmin(world.log))
    assert fingerprint(world.topology, world.layout) == first, "the folder is refused"
    node = world.node("a", disk if warm else Disk())
    world.log.append(RIGHT, LogEntry(b"k", b"B", 1_030_000))
    world.settle(node)
    assert list(world.rows("out").elements()) == [(b"k", b"A-B")]
