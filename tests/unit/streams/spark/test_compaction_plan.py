"""What a compaction decides, and what it leaves in the repository, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.repository import SnapshotRepository
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.spark.cluster import Cluster
from penstock.streams.spark.compact_executor import write_snapshot
from penstock.streams.spark.compaction import At, CompactPlan, plan_compaction, publish
from penstock.streams.spark.savepoint import SavepointRepository
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World

IN = TopicPartition("in", 0)
NOW_MS = 1_800_000_000_000


class Holds(ps.Processor):
    """Of every kind a store."""

    stores = (
        ps.key_value_store("key_value", key=str, value=str),
        ps.window_store("window", key=str, value=str, size_ms=10, retention_ms=1000),
        ps.key_window_store("key_window", key=str, value=str, size_ms=10, retention_ms=1000),
        ps.session_store("session", key=str, value=str, retention_ms=1000),
        StoreSpec("list", "list", ps.serde_of(bytes), ps.serde_of(bytes), retention_ms=1000),
    )

    def init(self, ctx: ps.ProcessorContext) -> None:
        self.windows = ctx.store("window")

    def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
        self.windows.put(record.key, record.value, record.timestamp_ms)


def holding() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").process(Holds).to("out")
    return builder.build()


def counted() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out")
    return builder.build()


def ran(topology: Topology, count: int) -> World:
    world = World(topology, "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    for i in range(count):
        world.log.append(IN, LogEntry(b"k", b"v", i))
    world.settle(world.node("a"))
    return world


def planned(world: World, topology: Topology, repository: Path, at: At, store: str | None = None) -> CompactPlan:
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    stores = None if store is None else [store]
    return plan_compaction(topology, APP, cluster, str(repository), now_ms=NOW_MS, stores=stores, at=at)


@pytest.mark.parametrize("kind", ["key_value", "window", "key_window", "session", "list"])
def test_a_changelog_that_its_retention_has_shortened_is_whole(kind: StoreKind, tmp_path: Path) -> None:
    world = ran(holding(), 10)
    log = TopicPartition(f"{APP}-{kind}-changelog", 0)
    for i in range(5):
        world.log.append(log, LogEntry(b"k", b"v", i))
    world.log.partition(log).delete_before(2)
    if kind == "key_value":
        with pytest.raises(IncompatibleError, match="begins at offset 2, so it no longer holds the whole store"):
            planned(world, holding(), tmp_path, "end", kind)
        return
    plan = planned(world, holding(), tmp_path, "end", kind)
    assert [t.start for t in plan.targets] == [2]
    assert plan.cautions == (
        f"{log.topic} partition 0 begins at offset 2: the snapshot of {kind} holds what the topic's retention has left, as "
        "a restore from the topic would",
    )


def test_the_snapshots_of_a_savepoint_stay_though_others_go_further(tmp_path: Path) -> None:
    world = ran(counted(), 10)
    for at in ("end", "committed"):
        plan = planned(world, counted(), tmp_path, at)  # type: ignore[arg-type]  # each is one of At
        repository = SnapshotRepository(tmp_path)
        written = {t.place: write_snapshot(repository, t, iter([]), 1 << 20) for t in plan.targets}
        publish(str(tmp_path), plan, written, keep=1)
    (target,) = plan.targets
    saved = SavepointRepository(str(tmp_path))
    newest = repository.newest(target.of)
    assert newest is not None and newest.changelog_offset > target.end
    kept = saved.manifest(saved.load(APP), target.of)
    assert kept.changelog_offset == target.end
    assert repository.fetch(kept, tmp_path / "fetched")
