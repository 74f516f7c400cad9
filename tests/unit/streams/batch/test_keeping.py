"""What is kept of savepoints and replays, and what is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.repository import ABANDONED_MS, open_repository
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.compact_executor import write_snapshot
from penstock.streams.batch.compaction_plan import plan_compaction, publish
from penstock.streams.batch.published import (
    OutputFile,
    Replay,
    TaskReport,
    kept_replays,
    load_replay,
    pin_replay,
    prune_replays,
    publish_replay,
)
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.cli.main import main
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World

NOW_MS = 1_800_000_000_000


def counted() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out")
    return builder.build()


def test_a_savepoint_that_stays_keeps_its_snapshots_and_a_pinned_one_stays(tmp_path: Path) -> None:
    world = World(counted(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    node = world.node("a")
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    saved, snapshots = SavepointRepository(str(tmp_path)), open_repository(tmp_path)
    names: list[str] = []
    for i in range(5):
        world.log.append(TopicPartition("in", 0), LogEntry(b"k", b"v", 10 + i))
        world.settle(node)
        plan = plan_compaction(counted(), APP, cluster, str(tmp_path), now_ms=NOW_MS + i)
        written = {t.place: write_snapshot(snapshots, t, iter([]), 1 << 20) for t in plan.targets}
        publish(str(tmp_path), plan, written, keep=1, keep_savepoints=2)
        names.append(saved.load(APP).name)
        if i == 0:
            saved.pin(APP, names[0])
    (of,) = snapshots.contents(APP)
    assert saved.names(APP) == sorted([names[0], *names[3:]]) and saved.pinned(APP) == {names[0]}
    for name in saved.names(APP):
        assert snapshots.fetch(saved.manifest(saved.load(APP, name), of), tmp_path / "fetched")
    assert len(snapshots.find(of).manifests) == 3
    saved.pin(APP, names[0], pinned=False)
    assert saved.prune(APP, keep=2) == [names[0]]
    with pytest.raises(SettingsError, match="holds no savepoint"):
        saved.pin(APP, names[0])


def finished(output: Path, made_ms: int) -> Replay:
    """A replay of one file."""
    run = f"{made_ms:013d}-0123456789ab"
    path = f"runs/{run}/outputs/out/0_0-x.parquet"
    (output / path).parent.mkdir(parents=True)
    (output / path).write_bytes(b"rows")
    file = OutputFile(topic="out", subtopology=0, task=0, path=path, rows=1, partitions=(0,))
    task = TaskReport(subtopology=0, task=0, records=1, outputs=(file,), stores=(), dropped={}, failures={})
    return Replay(
        run=run, application_id=APP, topology="t", started_from="start", recomputed=False, inputs=(), tasks=(task,)
    )


def test_old_replays_and_what_failed_attempts_left_are_removed_but_not_a_pinned_one(tmp_path: Path) -> None:
    runs: list[str] = []
    for i in range(5):
        made = finished(tmp_path, NOW_MS + i)
        publish_replay(str(tmp_path), made)
        runs.append(made.run)
    pin_replay(str(tmp_path), runs[1])
    failed, running = (finished(tmp_path, NOW_MS - age).run for age in (2 * ABANDONED_MS, 10))
    removed = prune_replays(str(tmp_path), keep=2, now_ms=NOW_MS)
    assert sorted(removed) == sorted([failed, runs[0], runs[2]])
    assert [k.run for k in kept_replays(str(tmp_path))] == [runs[1], runs[3], runs[4]]
    left = {p.name for p in (tmp_path / "runs").iterdir()}
    assert left == {running, runs[1], runs[3], runs[4]}
    assert load_replay(str(tmp_path)).run == runs[4] and load_replay(str(tmp_path), runs[1]).run == runs[1]


def test_a_replay_whose_files_the_driver_cannot_see_is_not_published(tmp_path: Path) -> None:
    publish_replay(str(tmp_path), finished(tmp_path, NOW_MS))
    elsewhere = finished(tmp_path / "an executor's folder", NOW_MS + 1)
    with pytest.raises(EnvironmentFault, match="must share that folder"):
        publish_replay(str(tmp_path), elsewhere)
    assert load_replay(str(tmp_path)).run != elsewhere.run


def test_the_command_lists_and_pins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = finished(tmp_path, NOW_MS)
    publish_replay(str(tmp_path), made)
    assert main(["replays", "--output", str(tmp_path), "--pin", made.run]) == 0
    assert "2027-01-15 08:00:00" in capsys.readouterr().out
    assert kept_replays(str(tmp_path))[0].pinned
    assert main(["replays", "--output", str(tmp_path), "--unpin", "1800000000000-000000000000"]) == 2
    assert "holds no finished replay" in capsys.readouterr().err
