"""A worker on RocksDB, a bit of whose files is flipped: the task is restored in the same process, and goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import penstock as ps
from penstock.state.errors import RetriableError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.durable_backend import OpenBackend
from penstock.state.stores.store import StoreSpec
from penstock.streams.events.facts import StoreQuarantined
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from penstock.streams.worker.task_opener import TaskOpener
from penstock.topologies.graph.topology import Topology
from tests.recorder import Recorder
from tests.simulation.world import APP, Node, World

TASK = TaskId(0, 0)
IN = TopicPartition("in", 0)
KEYS = 5_000


class Opened:
    """``Restoring`` by a real opener, when it is asked what is finished. ``waits``: how often a database was still held."""

    def __init__(self, opener: TaskOpener) -> None:
        self.opener = opener
        self.jobs: dict[TaskId, tuple[Sequence[StoreSpec], CommittedPositions]] = {}
        self.waits = 0

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> None:
        self.jobs[task] = (stores, reached)

    def cancel(self, task: TaskId) -> None:
        self.jobs.pop(task, None)

    def finished(self) -> list[tuple[TaskId, TaskStores | BaseException]]:
        out: list[tuple[TaskId, TaskStores | BaseException]] = []
        for task, (stores, reached) in list(self.jobs.items()):
            try:
                state = self.opener.open(task, stores, reached)
            except RetriableError:
                self.waits += 1
                continue
            del self.jobs[task]
            out.append((task, state))
        return out


def summed() -> Topology:
    builder = ps.StreamsBuilder("t", key=str, value=int)
    sums = builder.stream("in").group_by_key().reduce(lambda a, b: a + b, name="sums")
    sums.to_stream().to("out")
    return builder.build()


def node_on(world: World, path: Path, name: str, open_backend: OpenBackend = RocksDBBackend) -> tuple[Opened, Node]:
    directory = StateDirectory(path, APP)
    directory.claim(cluster_id="memory", fingerprint="f")
    log = world.log
    opener = TaskOpener(
        APP,
        directory,
        MemoryAdmin(log),
        lambda: MemoryConsumer(log, "restore"),
        lambda: 0,
        open_backend,
        events=world.events,
    )
    opened = Opened(opener)
    world.restoring = opened
    return opened, world.node(name)


@pytest.mark.parametrize("second", range(3))
def test_a_flipped_bit_is_mended_in_the_same_process(tmp_path: Path, second: int) -> None:
    world = World(summed(), "exactly_once", partitions=1, inputs=["in"], outputs=["out"])
    world.events = Recorder()
    for i in range(KEYS):
        world.log.append(IN, LogEntry(b"%06d" % i, (i).to_bytes(8, "big"), 1_000 + i))
    opened, node = node_on(world, tmp_path, "a")
    world.settle(node)
    node.stop()
    database = opened.opener._directory.database_path(str(TASK))
    file = max(database.glob("*.sst"), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) * (second + 1) // 5] ^= 1
    file.write_bytes(data)
    opened, node = node_on(world, tmp_path, "a")
    for i in range(KEYS):
        world.log.append(IN, LogEntry(b"%06d" % i, (1).to_bytes(8, "big"), 10_000 + i))
    world.settle(node)
    last = {e.key: e.value for _, _, e in world.log.read("out")}
    assert last == {b"%06d" % i: (i + 1).to_bytes(8, "big") for i in range(KEYS)}
    assert len(world.log.read("out")) == 2 * KEYS
    assert [fact.task for fact in world.events.of(StoreQuarantined)] == [TASK]
    assert opened.waits == 0
    node.stop()
