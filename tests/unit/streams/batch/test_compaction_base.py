"""Which snapshot a compaction builds upon."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import from_changelog_columns
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.compact_executor import write_snapshot
from penstock.streams.batch.compaction_plan import CompactPlan, plan_compaction
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
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
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"v", 1_000_000))
    world.settle(node)
    (target,) = planned(world, tmp_path, 0).targets
    found = [e for _, e in world.log.partition(target.log).committed(0)]
    entries = from_changelog_columns(
        target.form.spec(), [e.key for e in found], [e.value for e in found], [e.timestamp_ms for e in found]
    )
    repository = open_repository(tmp_path)
    manifest = write_snapshot(repository, target, ((k, v) for k, v in entries if v is not None), 1 << 20)
    repository.publish(manifest)
    if grace_ms == 0:
        assert planned(world, tmp_path, grace_ms).fresh == (manifest,)
        return
    assert [(t.base, t.start) for t in planned(world, tmp_path, grace_ms).targets] == [(None, 0)]
    world.log.partition(target.log).delete_before(1)  # it has expired
    assert [(t.base, t.start) for t in planned(world, tmp_path, grace_ms).targets] == [(None, 1)]


def test_a_snapshot_that_holds_all_that_was_committed_is_kept_when_the_log_has_expired(tmp_path: Path) -> None:
    """What would be made of the log now would hold less."""
    world = World(sessions(0), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    node = world.node("a")
    world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"v", 1_000_000))
    world.settle(node)
    (target,) = planned(world, tmp_path, 0).targets
    repository = open_repository(tmp_path)
    manifest = write_snapshot(repository, target, iter([]), 1 << 20)
    repository.publish(manifest)
    log = world.log.partition(target.log)
    log.delete_before(log.last_stable)
    assert planned(world, tmp_path, 0).fresh == (manifest,)


def test_a_store_whose_entries_expire_is_read_anew_once_its_changelog_is_not_much_longer(tmp_path: Path) -> None:
    """The snapshot still has what workers have deleted from the changelog since."""
    world = World(sessions(0), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    node = world.node("a")
    for i in range(8):
        world.log.append(TopicPartition("in", 0), LogEntry(b"k%d" % i, b"v", 1_000_000))
    world.settle(node)
    (target,) = planned(world, tmp_path, 0).targets
    found = [e for _, e in world.log.partition(target.log).committed(0)]
    entries = from_changelog_columns(
        target.form.spec(), [e.key for e in found], [e.value for e in found], [e.timestamp_ms for e in found]
    )
    repository = open_repository(tmp_path)
    manifest = write_snapshot(repository, target, ((k, v) for k, v in sorted(entries) if v is not None), 1 << 20)
    repository.publish(manifest)
    for i in range(40):
        world.log.append(TopicPartition("in", 0), LogEntry(b"m%d" % i, b"v", 1_000_000))
    world.settle(node)
    assert [(t.base, t.start) for t in planned(world, tmp_path, 0).targets] == [(manifest, manifest.changelog_offset)]
    log = world.log.partition(target.log)
    log.delete_before(log.last_stable - 15)
    assert [(t.base, t.start) for t in planned(world, tmp_path, 0).targets] == [(None, log.last_stable - 15)]
