"""What executors read of stores and changelogs, from the in-memory log and real snapshots, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch import cluster
from penstock.streams.batch.compact_executor import CompactTarget, write_snapshot
from penstock.streams.batch.compaction_plan import plan_compaction
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.frames import request
from penstock.streams.spark.frames.request import (
    ChangelogRequest,
    ReaderConnection,
    StoreRequest,
    TopicRequest,
    packed,
    serdes_of,
    unpacked,
)
from penstock.streams.spark.shipping import ship, ship_value
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.graph.topology import Topology
from tests.simulation.world import APP, World

NOWHERE = ReaderConnection("nowhere:1", {"sasl.password": "hunter2"})
NOW_MS = 1_000


def counted() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.count(name="counts").to_stream().to("out")
    grouped.windowed_by(ps.tumbling("10ms", grace="1d")).count(name="windows")
    return builder.build()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """An application that has counted, read in small pieces."""
    made = World(counted(), "exactly_once", partitions=2, inputs=["in"], outputs=["out"])
    made.write("in", [(b"k%d" % (i % 5), b"v", i) for i in range(40)])
    node = made.node("a")
    made.settle(node)
    monkeypatch.setattr(made, "go_on", lambda: made.settle(node), raising=False)

    def chunks(_: ReaderConnection, tp: TopicPartition, start: int, stop: int) -> Iterator[Chunk]:
        found = [(o, e) for o, e in made.log.partition(tp).committed(start) if o < stop]
        for at in range(0, len(found), 7):
            part: list[tuple[int, LogEntry]] = found[at : at + 7]
            columns = ([e.key for _, e in part], [e.value for _, e in part], [e.timestamp_ms for _, e in part])
            yield Chunk(tp.topic, tp.partition, [o for o, _ in part], *columns)

    monkeypatch.setattr(request, "read_chunks", chunks)
    return made


def targets(world: World, store: str, repository: Path | None = None) -> tuple[CompactTarget, ...]:
    view = cluster.Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))
    return plan_compaction(
        counted(), APP, view, str(repository or ""), now_ms=NOW_MS, stores=[store], full=repository is None
    ).targets


def rows(wanted: Any) -> list[dict[str, Any]]:
    return [row for part in wanted.parts for batch in wanted.read(part) for row in batch.to_pylist()]


def store(world: World, name: str, repository: Path | None = None, only: tuple[str, ...] | None = None) -> StoreRequest:
    given = targets(world, name, repository)
    return StoreRequest(NOWHERE, name, given, None if repository is None else str(repository), ship(counted), only)


def test_a_store_is_folded_from_its_changelog_and_from_a_snapshot_and_what_follows(
    world: World, tmp_path: Path
) -> None:
    assert {r["key"]: r["value"] for r in rows(store(world, "counts"))} == {f"k{k}": 8 for k in range(5)}
    # The snapshots hold something else: what is not changed afterwards shows that they were read, and nothing else.
    repository = open_repository(tmp_path)
    for target in targets(world, "counts", tmp_path):
        forged = [(b"old-%d" % target.partition, (7).to_bytes(8, "big") + (70).to_bytes(8, "big"))]
        repository.publish(write_snapshot(repository, target, iter(forged), 1 << 20))
    world.write("in", [(b"k%d" % i, b"v", 41) for i in range(5)])
    world.go_on()  # type: ignore[attr-defined]  # the fixture's
    over = store(world, "counts", tmp_path)
    assert {t.base is None for t in over.targets} == {False}
    assert {r["key"]: r["value"] for r in rows(over)} == {"old-0": 70, "old-1": 70, **{f"k{i}": 9 for i in range(5)}}


def test_windows_have_their_ends_and_only_what_is_asked_for_comes(world: World) -> None:
    found = rows(store(world, "windows", only=("key", "window_start", "value")))
    assert len(found) == 5 * 4 and {tuple(r) for r in found} == {("key", "window_start", "value")}
    assert {round(r["window_start"].timestamp() * 1000) for r in found} == {0, 10, 20, 30}
    assert {r["value"] for r in found} == {2}


def test_a_changelog_has_every_change_with_its_offset(world: World) -> None:
    topic = f"{APP}-windows-changelog"
    ranges = {p: (0, world.log.partition(TopicPartition(topic, p)).last_stable) for p in range(2)}
    wanted = ChangelogRequest(NOWHERE, "windows", topic, ranges, ship(counted), None)
    found = rows(wanted)
    written = [(p, o) for p in range(2) for o, _ in world.log.partition(TopicPartition(topic, p)).committed(0)]
    assert [(r["partition"], r["offset"]) for r in found] == written
    last = {(r["key"], r["window_start"]): r["value"] for r in found}
    assert last == {(r["key"], r["window_start"]): r["value"] for r in rows(store(world, "windows"))}


def test_a_topic_is_read_by_the_serdes_of_the_topology_in_its_range(world: World) -> None:
    wanted = TopicRequest(NOWHERE, "in", {0: (0, 0), 1: (2, 5)}, ship(counted), APP, None, None, ("offset", "value"))
    assert wanted.parts == [1] and [r["offset"] for r in rows(wanted)] == [2, 3, 4]
    assert serdes_of(counted(), APP, "out") == (ps.serde_of(str), ps.serde_of(int))
    with pytest.raises(SettingsError, match="neither reads nor writes other"):
        _ = TopicRequest(NOWHERE, "other", {}, ship(counted), APP, None, ship_value(str), None).schema


def test_a_request_travels_after_it_was_used_and_shows_no_secret(world: World) -> None:
    wanted = store(world, "counts")
    before = rows(wanted)
    assert rows(unpacked(packed(wanted))) == before == rows(pickle.loads(pickle.dumps(wanted)))
    assert "hunter2" not in repr(wanted) and "nowhere" not in repr(wanted)
