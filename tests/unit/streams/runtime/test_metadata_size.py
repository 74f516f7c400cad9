"""Commits that would not fit are refused before the first one."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.metadata_size import check_metadata_size, worst_metadata
from penstock.streams.runtime.topic_setup import TopicLayout, prepare_topics
from penstock.streams.task import commit_metadata
from penstock.streams.testing.memory_clients import MemoryAdmin
from penstock.streams.testing.memory_log import MemoryLog
from penstock.topologies.graph.topology import Topology
from tests.simulation.programs import clicks_world
from tests.simulation.world import APP


def counts(number: int) -> Topology:
    """So many windowed counts of one stream."""
    builder = ps.StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    for n in range(number):
        grouped.windowed_by(ps.tumbling("1h", grace=0)).count(name=f"counted-{n:04d}-by-an-operator").to_stream().to(
            "out"
        )
    return builder.build()


def rekeyed() -> Topology:
    """A windowed count behind a repartition, by a watermark."""
    builder = ps.StreamsBuilder("t", key=str, value=str)
    stream = builder.stream("in", watermark=ps.bounded_out_of_orderness("1s"))
    grouped = stream.select_key(lambda key, value: value).group_by_key()
    grouped.windowed_by(ps.tumbling("1h", grace=0)).count(name="counts").to_stream().to("out")
    return builder.build()


def layout_of(topology: Topology, partitions: int) -> TopicLayout:
    log = MemoryLog()
    for name in ("in", "out"):
        log.create(TopicSpec(name, partitions))
    return prepare_topics(topology, "app", MemoryAdmin(log))


def test_few_operators_pass_and_many_are_refused_with_what_to_do() -> None:
    for number in (1, 20):
        check_metadata_size(counts(number), "app", layout_of(counts(number), 2))
    topology = counts(300)
    with pytest.raises(TopologyError, match=r"300 stores .* Shorten their names.*split the topology"):
        check_metadata_size(topology, "app", layout_of(topology, 2))


def test_many_tasks_before_a_sub_topology_count_too() -> None:
    check_metadata_size(rekeyed(), "app", layout_of(rekeyed(), 100))
    with pytest.raises(TopologyError, match=r"2000 tasks before it.*fewer partitions upstream"):
        check_metadata_size(rekeyed(), "app", layout_of(rekeyed(), 2_000))


def test_nothing_that_is_committed_is_larger_than_was_reckoned() -> None:
    world = clicks_world("exactly_once")
    node = world.node("a")
    world.settle(node)
    seen = world.log.group(APP).offsets
    assert seen
    reckoned = [
        len(commit_metadata.packed(worst_metadata(world.topology, s, APP, world.layout)))
        for s in world.topology.subtopologies
    ]
    for tp, committed in seen.items():
        assert len(committed.metadata) <= max(reckoned) + len(commit_metadata.decode(committed.metadata).form) + 8, tp
