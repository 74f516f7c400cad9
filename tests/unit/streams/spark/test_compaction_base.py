"""Which snapshot a compaction builds upon."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.state.changelog import from_changelog_columns
from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.snapshot import SnapshotRepository
from penstock.streams.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.memory_log import Entry
from penstock.streams.spark.cluster import Cluster
from penstock.streams.spark.compact_executor import write_snapshot
from penstock.streams.spark.compaction import CompactPlan, plan_compaction, publish
from penstock.streams.spark.replay_plan import ReplayPlan, plan_replay
from penstock.topologies.graph import Topology
from tests.simulation.world import APP, World

NOW_MS = 1_000


def sessions(grace_ms: int) -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    windows = ps.session("1s", grace=grace_ms)
    builder.stream("in").group_by_key().windowed_by(windows).count(name="counts").to_stream().to("out")
    return builder.build()


def planned(world: World, repository: Path, grace_ms: int) -> CompactPlan:
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    return plan_compaction(sessions(grace_ms), APP, cluster, str(repository), now_ms=NOW_MS)


@pytest.mark.parametrize("grace_ms", [0, 60_000])
def test_a_snapshot_is_no_base_for_a_store_with_other_segments(tmp_path: Path, grace_ms: int) -> None:
    world = World(sessions(0), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    node = world.node("a")
    world.log.append(TopicPartition("in", 0), Entry(b"k", b"v", 1_000_000))
    world.settle(node)
    (target,) = planned(world, tmp_path, 0).targets
    found = [e for _, e in world.log.partition(target.log).committed(0)]
    entries = from_changelog_columns(
        target.form.spec(), [e.key for e in found], [e.value for e in found], [e.timestamp_ms for e in found]
    )
    repository = SnapshotRepository(tmp_path)
    manifest = write_snapshot(repository, target, ((k, v) for k, v in entries if v is not None), 1 << 20)
    repository.publish(manifest)
    if grace_ms == 0:
        assert planned(world, tmp_path, grace_ms).fresh == (manifest,)
        return
    assert [(t.base, t.start) for t in planned(world, tmp_path, grace_ms).targets] == [(None, 0)]
    world.log.partition(target.log).delete_before(1)  # it has expired
    assert [(t.base, t.start) for t in planned(world, tmp_path, grace_ms).targets] == [(None, 1)]


def test_a_table_of_versions_is_compacted_from_its_topics_begin(tmp_path: Path) -> None:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.table("rates", history="1s", name="rates").to("out")
    world = World(builder.build(), "exactly_once", partitions=1, inputs=["rates"], outputs=["out"])
    node = world.node("a")
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))

    def plan() -> CompactPlan:
        world.settle(node)
        return plan_compaction(world.topology, APP, cluster, str(tmp_path), now_ms=NOW_MS)

    world.log.append(TopicPartition("rates", 0), Entry(b"k", b"v", 1_000))
    repository = SnapshotRepository(tmp_path)
    manifest = write_snapshot(repository, plan().targets[0], iter([]), 1 << 20)
    repository.publish(manifest)
    assert plan().fresh == (manifest,)
    world.log.append(TopicPartition("rates", 0), Entry(b"k", b"w", 2_000))
    assert [(t.base, t.start) for t in plan().targets] == [(None, 0)]


@pytest.mark.parametrize("grace_ms", [0, 60_000])
def test_a_savepoint_is_no_begin_for_a_topology_with_other_segments(tmp_path: Path, grace_ms: int) -> None:
    world = World(sessions(0), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    node = world.node("a")
    world.log.append(TopicPartition("in", 0), Entry(b"k", b"v", 1_000_000))
    world.settle(node)
    plan = planned(world, tmp_path, 0)
    repository = SnapshotRepository(tmp_path)
    publish(str(tmp_path), plan, {t.place: write_snapshot(repository, t, iter([]), 1 << 20) for t in plan.targets}, 3)

    def replayed() -> ReplayPlan:
        cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
        return plan_replay(sessions(grace_ms), APP, cluster, from_="savepoint:latest", repository=str(tmp_path))

    if grace_ms == 0:
        assert list(replayed().bases) == [(TaskId(0, 0), "counts")]
        return
    with pytest.raises(IncompatibleError, match=r"app/counts/0 in segments of 1000 ms.*makes 31000 ms"):
        replayed()
