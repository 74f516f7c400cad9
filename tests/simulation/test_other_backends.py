"""A worker on stores of another kind: it commits, crashes, restores and goes on, and the answer is the same."""

from __future__ import annotations

from pathlib import Path

from penstock.state.log import TopicPartition
from penstock.streams.testing.memory_log import LogEntry
from tests.simulation.test_damaged_files import TASK, node_on, summed
from tests.simulation.world import World
from tests.sqlite_backend import SqliteBackend

IN = TopicPartition("in", 0)
KEYS = 50


def pipe(world: World, value: int, at_ms: int) -> None:
    for i in range(KEYS):
        world.log.append(IN, LogEntry(b"%06d" % i, (value * i).to_bytes(8, "big"), at_ms + i))


def sums(times: int) -> dict[bytes, bytes]:
    return {b"%06d" % i: (times * i).to_bytes(8, "big") for i in range(KEYS)}


def test_a_topology_runs_on_sqlite_through_stops_crashes_and_lost_disks(tmp_path: Path) -> None:
    world = World(summed(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    pipe(world, 1, 1_000)
    opened, node = node_on(world, tmp_path / "disk", "a", SqliteBackend)
    world.settle(node)
    node.stop()
    database = opened.opener._directory.database_path(str(TASK))
    assert (database / "stores.sqlite").exists()
    _, node = node_on(world, tmp_path / "disk", "a", SqliteBackend)
    pipe(world, 2, 10_000)
    world.settle(node)
    node.stop()
    # Another machine: the stores come from the changelog.
    opened, node = node_on(world, tmp_path / "another disk", "b", SqliteBackend)
    pipe(world, 4, 20_000)
    world.settle(node)
    assert {e.key: e.value for _, _, e in world.log.read("out")} == sums(7)
    assert len(world.log.read("out")) == 3 * KEYS
    node.stop()
    backend = SqliteBackend(opened.opener._directory.database_path(str(TASK)), summed().stores)
    assert {key: value[8:] for key, value in backend.range("sums", None, None)} == sums(7)
    backend.close()
