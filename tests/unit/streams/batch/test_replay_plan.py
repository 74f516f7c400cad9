"""Where a replay begins: where the application did, if that is still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.audit import Audit
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.published import InputRange
from penstock.streams.batch.replay_plan import ReplayPlan, plan_replay
from penstock.streams.batch.savepoint import SavedInput, SavedOutput, Savepoint, SavepointRepository
from penstock.streams.batch.verify_plan import Sample, plan_verification
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


def saved_at(world: World, repository: Path, name: str = "1800000000000-0123456789ab", **how: Any) -> Savepoint:
    """A savepoint of what is committed now, published."""
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    committed = cluster.committed([IN])[IN]
    inputs = (SavedInput("in", 0, committed.offset, commit_metadata.encode(committed.metadata)),)
    saved = Savepoint(application_id=APP, cluster_id="memory", name=name, inputs=inputs, stores=(), **how)
    SavepointRepository(str(repository)).publish(saved)
    return saved


def test_it_ends_at_a_savepoint_whatever_was_committed_since(tmp_path: Path) -> None:
    world = world_that_began_at(0)
    node = world.node("a")
    world.settle(node)
    saved = saved_at(world, tmp_path)
    write(world.log, 5)
    world.settle(node)
    found = plan(world.log, to="savepoint:latest", repository=str(tmp_path))
    assert found.ranges[IN] == (0, 20) and found.until == saved and found.ends == saved.committed()
    assert plan(world.log).ranges[IN] == (0, 25)
    with pytest.raises(SettingsError, match="needs the repository"):
        plan(world.log, to="savepoint:latest")
    with pytest.raises(SettingsError, match="cannot end at 'yesterday'"):
        plan(world.log, to="yesterday")


def test_it_begins_at_offsets_of_the_users_choice_and_says_that_stores_began_empty() -> None:
    world = world_that_began_at(7)
    found = plan(world.log, from_={IN: 12}, to="end")
    assert (
        found.ranges[IN] == (12, 20) and found.started_from == "offsets" and any("empty" in c for c in found.cautions)
    )
    assert plan(world.log, from_={IN: 3}, to="end").ranges[IN] == (7, 20)
    assert plan(world.log, from_={}, to="end").ranges[IN] == (20, 20)


def test_repartition_topics_that_are_computed_need_not_exist() -> None:
    world = World(recounted(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    write(world.log, 20)
    for topic in [t for t in world.log.topics if t.endswith("-repartition")]:
        del world.log.topics[topic]
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    assert plan_replay(recounted(), APP, cluster, from_={IN: 5}, to={IN: 20}, recompute=True).ranges == {IN: (5, 20)}


@pytest.mark.parametrize("exact", [True, False])
def test_a_verification_up_to_a_savepoint_knows_where_its_outputs_end(exact: bool, tmp_path: Path) -> None:
    world = world_that_began_at(0)
    node = world.node("a")
    world.settle(node)
    out = TopicPartition("out", 0)
    end = world.log.partition(out).last_stable
    saved_at(world, tmp_path, outputs=(SavedOutput("out", 0, end),), outputs_exact=exact)
    write(world.log, 5)
    world.settle(node)
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    up_to = plan(world.log, to="savepoint:latest", repository=str(tmp_path))
    verified = plan_verification(up_to, cluster, True, 0)
    assert verified.outputs[out] == (0, end if exact else world.log.partition(out).last_stable)
    assert verified.topics["out"].slack.stream_after is not exact
    sampled = plan_verification(up_to, cluster, True, 0, Sample(2, 1))
    assert verified.stores and not sampled.stores
    loss = plan_verification(up_to, cluster, False, 0)
    assert loss.topics["out"].loss and loss.loss and any("only what is missing counts" in c for c in loss.cautions)


def test_an_audit_goes_on_where_the_last_one_passed_and_keeps_that_savepoint(tmp_path: Path) -> None:
    world = world_that_began_at(0)
    world.settle(world.node("a"))
    repository, audit = SavepointRepository(str(tmp_path)), Audit(str(tmp_path), APP)
    names = [saved_at(world, tmp_path, f"180000000000{i}-0123456789ab").name for i in range(4)]
    assert audit.begin() == "start"
    audit.passed(names[0])
    audit.passed(names[0])
    assert audit.begin() == f"savepoint:{names[0]}" and repository.pinned(APP) == {names[0]}
    repository.pin(APP, names[1])
    audit.passed(names[1])
    assert repository.pinned(APP) == {names[1]}
    audit.passed(names[2])
    assert repository.pinned(APP) == {names[1], names[2]}, "what a user pinned stays pinned"
    repository.pin(APP, names[2], pinned=False)
    repository.prune(APP, keep=1)
    assert audit.begin() == "start", "the savepoint is gone"
