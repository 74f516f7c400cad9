"""Which topics a topology writes, and where a job's folders are."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.output_topics import written_topics
from penstock.streams.batch.places import absolute
from penstock.streams.batch.replay_plan import plan_replay
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World


def chosen() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").to(lambda k, v: f"out-{len(v) % 2}", topics=["out-0", "out-1"])
    builder.stream("in").group_by_key().count(emission="per_commit").to_stream().to("held")
    return builder.build()


def test_every_topic_that_a_function_may_choose_is_written() -> None:
    assert written_topics(chosen(), APP) == {"out-0": False, "out-1": False, "held": True}


def test_a_replay_knows_the_partitions_of_every_topic_that_it_writes() -> None:
    world = World(chosen(), "exactly_once", partitions=3, inputs=["in"], outputs=["out-0", "out-1", "held"])
    world.write("in", [(b"k", b"v", 1)])
    world.settle(world.node("a"))
    counts = plan_replay(chosen(), APP, Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))).counts
    assert {t: counts[t] for t in ("out-0", "out-1", "held")} == {"out-0": 3, "out-1": 3, "held": 3}


def test_a_relative_folder_is_that_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("./made") == f"{tmp_path}/made"
    assert absolute("/else/where") == "/else/where"
    assert absolute("s3://bucket/made") == "s3://bucket/made"
    assert absolute(None) is None
