"""Where a replay begins: where the application did, if that is still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.published import InputRange
from penstock.streams.batch.replay_plan import ReplayPlan, plan_replay
from penstock.streams.batch.savepoint import SavedInput, Savepoint, SavepointRepository
from penstock.streams.cli.replay import began
from penstock.streams.task import commit_metadata
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World

IN = TopicPartition("in", 0)


def counted() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out")
    return builder.build()


def world_that_began_at(first: int) -> World:
    """An application that has read what was left of its input when it was first started."""
    world = World(counted(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    write(world.log, 20)
    world.log.partition(IN).delete_before(first)
    return world


def write(log: MemoryLog, count: int) -> None:
    for i in range(count):
        log.append(IN, LogEntry(b"k", b"v", i))


def plan(log: MemoryLog, **how: Any) -> ReplayPlan:
    return plan_replay(counted(), APP, Cluster(MemoryConsumer(log, APP), MemoryAdmin(log)), **how)


@pytest.mark.parametrize("first", [0, 7])
def test_it_begins_where_the_application_began(first: int) -> None:
    world = world_that_began_at(first)
    node = world.node("a")
    world.settle(node)
    write(world.log, 5)
    world.settle(node)
    node.stop()
    again = world.node("b")
    write(world.log, 5)
    world.settle(again)
    assert plan(world.log).ranges[IN] == (first, 30)
    assert plan(world.log, to="end").ranges[IN] == (first, 30)


def test_what_has_vanished_since_is_refused(first: int = 7) -> None:
    world = world_that_began_at(first)
    world.settle(world.node("a"))
    world.log.partition(IN).delete_before(first + 2)
    with pytest.raises(
        IncompatibleError, match=r"begins at offset 9, and the replay would begin at 7.*savepoint from 9"
    ):
        plan(world.log)


def test_without_a_commit_it_begins_where_a_worker_would() -> None:
    assert plan(world_that_began_at(7).log, to="end").ranges[IN] == (7, 20)


def test_where_it_began_is_said() -> None:
    zero, later = InputRange("a", 0, 0, 9), InputRange("a", 1, 4, 9)
    assert began([zero]) == "all inputs at offset 0"
    assert began([zero, later]) == "a [1] at offset 4, all others at offset 0"
    assert began([later]) == "a [1] at offset 4"


def recounted() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").select_key(lambda k, v: v).group_by_key().count().to_stream().to("out")
    return builder.build()


def upper() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").map_values(str.upper).to("out")
    return builder.build()


@pytest.mark.parametrize("made", [recounted, upper])
def test_a_savepoint_has_no_records_in_flight_to_recompute_from(made: Any, tmp_path: Path) -> None:
    world = World(made(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    write(world.log, 20)
    world.settle(world.node("a"))
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    inputs = (SavedInput("in", 0, 20, commit_metadata.encode(cluster.committed([IN])[IN].metadata)),)
    saved = Savepoint(
        application_id=APP, cluster_id="memory", name="1800000000000-0123456789ab", inputs=inputs, stores=()
    )
    SavepointRepository(str(tmp_path)).publish(saved)
    how: dict[str, Any] = {"from_": "savepoint:latest", "repository": str(tmp_path), "recompute": True}
    if made is recounted:
        with pytest.raises(SettingsError, match=r"cannot recompute app-.*-repartition: .*Leave --recompute out"):
            plan_replay(made(), APP, cluster, **how)
    else:
        assert plan_replay(made(), APP, cluster, **how).ranges[IN] == (20, 20)
    assert plan_replay(made(), APP, cluster, recompute=True).ranges[IN] == (0, 20)
