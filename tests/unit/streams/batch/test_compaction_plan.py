"""What a compaction decides, and what it leaves in the repository, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.state.errors import IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.compact_executor import write_snapshot
from penstock.streams.batch.compaction_plan import At, CompactPlan, _without_savepoint, plan_compaction, publish
from penstock.streams.batch.savepoint import SavepointRepository
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
        repository = open_repository(tmp_path)
        written = {t.place: write_snapshot(repository, t, iter([]), 1 << 20) for t in plan.targets}
        publish(str(tmp_path), plan, written, keep=1)
    (target,) = plan.targets
    saved = SavepointRepository(str(tmp_path))
    newest = repository.newest(target.of)
    assert newest is not None and newest.changelog_offset > target.end
    kept = saved.manifest(saved.load(APP), target.of)
    assert kept.changelog_offset == target.end
    assert repository.fetch(kept, tmp_path / "fetched")


def test_where_no_savepoint_comes_about_the_plan_says_why(tmp_path: Path) -> None:
    world = ran(counted(), 10)
    plan = planned(world, counted(), tmp_path, "committed")
    assert plan.savepoint is not None and plan.no_savepoint is None
    for at, store, said in (
        ("end", None, "stand at the changelogs' ends"),
        ("committed", "counts", "holds all stores"),
    ):
        plan = planned(world, counted(), tmp_path, at, store)  # type: ignore[arg-type]  # each is one of At
        assert plan.savepoint is None and said in (plan.no_savepoint or "")
    kept = [s for s in unlogged().stores if s.changelog]
    assert "forgotten has no changelog" in (_without_savepoint(unlogged(), kept, None, "committed", []) or "")


def unlogged() -> Topology:
    class Keeps(ps.Processor):
        stores = (
            ps.key_value_store("kept", key=str, value=str),
            ps.key_value_store("forgotten", key=str, value=str, changelog=False),
        )

        def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:
            ctx.store("kept").put(record.key, record.value, record.timestamp_ms)

    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").process(Keeps).to("out")
    return builder.build()


class Uncommitted(MemoryConsumer):
    """Sees one record more in every partition: of a transaction that is open."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        first, end = super().watermarks(partition)
        return first, end + 1


class Lagging(MemoryConsumer):
    """Sees nothing of the changelog at first: the markers of the last transaction are not there yet."""

    looks = 0

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        first, end = super().watermarks(partition)
        if partition.topic.endswith("-changelog"):
            self.looks += 1
            return (first, 0) if self.looks <= 4 else (first, end)
        return first, end


def test_a_commit_whose_markers_are_not_in_the_changelog_yet_is_waited_for(tmp_path: Path) -> None:
    world = ran(counted(), 10)
    seen = Lagging(world.log, APP)
    cluster = Cluster(seen, MemoryAdmin(world.log), MemoryConsumer(world.log, APP))
    plan = plan_compaction(counted(), APP, cluster, str(tmp_path), now_ms=NOW_MS)
    assert plan.savepoint is not None and all(0 < t.end <= t.facts.end_offset for t in plan.targets)
    assert seen.looks == 6

    # A changelog that is shorter for good is refused at once.
    gone = Lagging(world.log, APP)
    with pytest.raises(IncompatibleError, match="it has lost records"):
        plan_compaction(counted(), APP, Cluster(gone, MemoryAdmin(world.log)), str(tmp_path), now_ms=NOW_MS)
    assert gone.looks < 4


@pytest.mark.parametrize("writing", [False, True])
def test_a_savepoint_knows_how_far_the_outputs_had_come_and_whether_exactly(
    tmp_path: Path, writing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.streams.batch.compaction_plan._QUIET_EVERY_S", 0.0)
    world = ran(counted(), 10)
    other = Uncommitted(world.log, APP) if writing else None
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log), other)
    saved = plan_compaction(counted(), APP, cluster, str(tmp_path), now_ms=NOW_MS).savepoint
    assert saved is not None and saved.outputs_exact is not writing
    out = TopicPartition("out", 0)
    assert saved.output_offsets() == {out: world.log.partition(out).last_stable}
