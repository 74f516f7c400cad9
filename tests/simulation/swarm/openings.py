"""Restores of the swarm: the product's own ``TaskOpener`` with snapshots, on the model's disks and log."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.snapshots.repository import SnapshotRepository
from penstock.state.stores.durable_backend import DurableBackend
from penstock.state.stores.store import StoreSpec
from penstock.streams.events.port import EventSink
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import Fetched
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.worker.task_opener import TaskOpener
from tests.simulation.restores import APP, SimRestoring
from tests.simulation.sim_clock import SimClock
from tests.simulation.swarm.disks import SwarmDisk
from tests.simulation.swarm.history import HistoryLog


def task_of(name: str) -> TaskId:
    """The task of a folder."""
    subtopology, partition = name.split("_")
    return TaskId(int(subtopology), int(partition))


class _Lock:
    """Of one task's folder, until it is released or its process is gone."""

    def __init__(self, disk: SwarmDisk, task: TaskId) -> None:
        self._disk = disk
        self._task = task

    def release(self) -> None:
        """Let go, if nobody else has it by now."""
        if self._disk.locks.get(self._task) is self:
            del self._disk.locks[self._task]


class _Folder:
    """What ``TaskOpener`` needs of a ``StateDirectory``. A process that starts finds no locks: the one before is gone."""

    def __init__(self, disk: SwarmDisk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder
        disk.locks.clear()

    def task_path(self, task: str) -> Path:
        return self._folder / task

    def database_path(self, task: str) -> Path:
        return self._folder / task / "db"

    def lock(self, task: str, *, timeout_s: float) -> _Lock:
        of = task_of(task)
        if of in self._disk.locks:
            raise RetriableError(f"task {task} is in use")
        made = _Lock(self._disk, of)
        self._disk.locks[of] = made
        return made

    def quarantine(self, task: str, reason: str) -> Path:
        del self._disk.backends[task_of(task)]
        self._disk.half = {h for h in self._disk.half if h[0] != task_of(task)}
        return self._folder / "quarantine"


class HalvedReader(MemoryConsumer):
    """Gives what one partition holds in two parts: ``on_half`` is called between them, with the partition. Both are fetched
    at once, as by a client that reads ahead."""

    def __init__(self, log: HistoryLog, share: float, on_half: Callable[[TopicPartition], None]) -> None:
        super().__init__(log, "reader")
        self._history = log
        self._share = share
        self._on_half = on_half
        self._rest: Fetched | None = None
        self.ended: Callable[[TopicPartition], None] = lambda partition: None
        self._current: TopicPartition | None = None

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The partition before has been read to its end."""
        if self._current is not None:
            self.ended(self._current)
        (self._current,) = offsets
        self._rest = None
        super().assign_at(offsets)

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """The first part, then the second one."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            assert self._current is not None
            self._on_half(self._current)
            return rest
        with self._history.apart():
            fetched = super().poll(max_records, timeout_s)
        if not fetched.chunks or len(fetched.chunks[0]) < 2:
            return fetched
        (chunk,) = fetched.chunks
        half = max(int(len(chunk) * self._share), 1)
        parts = [
            Chunk(
                topic=chunk.topic,
                partition=chunk.partition,
                offsets=chunk.offsets[part],
                keys=chunk.keys[part],
                values=chunk.values[part],
                timestamps=chunk.timestamps[part],
            )
            for part in (slice(half), slice(half, None))
        ]
        self._rest = Fetched([parts[1]], fetched.ends)
        return Fetched([parts[0]], {})


class OpenedRestoring(SimRestoring):
    """``Restoring`` by the real opener. It waits for a last commit's markers here, in the log's time."""

    def __init__(
        self,
        log: HistoryLog,
        disk: SwarmDisk,
        rng: random.Random,
        clock: SimClock,
        *,
        committed_only: bool,
        events: EventSink,
        snapshots: SnapshotRepository,
        folder: Path,
    ) -> None:
        super().__init__(log, disk, rng, clock, committed_only=committed_only)
        self._history = log
        self._open_disk = disk
        self._specs: dict[str, tuple[TaskId, str]] = {}
        directory = cast(StateDirectory, _Folder(disk, folder))
        self._opener = TaskOpener(
            APP,
            directory,
            MemoryAdmin(log),
            self._reader,
            clock.now_ms,
            self._open_backend,
            repository=snapshots,
            lock_timeout_s=0.0,
            committed_only=committed_only,
            events=events,
        )

    def _reader(self) -> HalvedReader:
        reader = HalvedReader(self._history, self.share_before, self._half)
        reader.ended = lambda partition: self._open_disk.half.discard(self._specs[partition.topic])
        return reader

    def _half(self, partition: TopicPartition) -> None:
        self._open_disk.half.add(self._specs[partition.topic])
        self.on_half()

    def _open_backend(self, path: Path, stores: Sequence[StoreSpec]) -> DurableBackend:
        task = task_of(path.parent.name)
        disk = self._open_disk
        backend = disk.backends.setdefault(task, disk.make(stores))
        if backend.damaged is not None:
            raise StateCorruptedError(backend.damaged)
        return cast(DurableBackend, backend)

    def _opened(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> TaskStores:
        for spec in stores:
            self._require_written(task, spec, reached)
        self._specs = {changelog_topic(APP, spec): (task, spec.name) for spec in stores}
        opened = self._opener.open(task, stores, reached)
        self._open_disk.half = {h for h in self._open_disk.half if h[0] != task}
        return opened
