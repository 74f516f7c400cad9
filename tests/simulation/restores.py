"""Disks of the simulated hosts, and how their stores are restored there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from penstock.state.errors import IncompatibleError, RetriableError, StateCorruptedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic, from_changelog_columns
from penstock.state.recovery.position import Position, decode_position, encode_position
from penstock.state.recovery.restore_decision import ChangelogFacts, Quarantine, Resume, decide
from penstock.state.snapshots.manifest import StorePartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.streams.runtime.changelog_epochs import replaced
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.worker.task_opener import MARKERS_WAIT_S, is_lost, was_replaced
from tests.simulation.sim_clock import SimClock

APP = "app"


class Short(IncompatibleError):
    """A changelog does not hold what was committed, or a transaction is still open there."""


class Disk:
    """The stores of one host, by task."""

    def __init__(self) -> None:
        self.backends: dict[TaskId, MemoryBackend] = {}
        self.half: set[tuple[TaskId, str]] = set()
        """Stores in the middle of a restore: what was cleaned from the log by then is still to be read."""

    def backend(self, task: TaskId, stores: Sequence[StoreSpec]) -> MemoryBackend:
        if task not in self.backends or self.backends[task].damaged is not None:
            self.backends[task] = self.make(stores)
        return self.backends[task]

    def make(self, stores: Sequence[StoreSpec]) -> MemoryBackend:
        """Empty stores."""
        return MemoryBackend(stores, keep_flushed=True)

    def lose_unflushed(self) -> None:
        for backend in self.backends.values():
            backend.crash()


class SimRestoring:
    """``Restoring`` on the memory log: a task's stores come some turns later, at the end of their changelogs."""

    def __init__(
        self, log: MemoryLog, disk: Disk, rng: random.Random, clock: SimClock, *, committed_only: bool = False
    ) -> None:
        self._committed_only = committed_only
        self._log = log
        self._clock = clock
        self.said: list[str] = []
        self._disk = disk
        self._rng = rng
        self._jobs: dict[TaskId, tuple[int, Sequence[StoreSpec], CommittedPositions]] = {}
        self.replayed = 0
        self.on_half: Callable[[], None] = lambda: None
        """Called in the middle of each replay."""
        self.share_before = 0.5
        """The part of a replay that is written before its middle."""
        self.failure: BaseException | None = None
        self._short_ms: dict[TaskId, int] = {}
        """Since when a restore has waited for the end of its changelogs."""

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> None:
        self._jobs[task] = (self._rng.randint(0, 4), stores, reached)

    def cancel(self, task: TaskId) -> None:
        self._jobs.pop(task, None)
        self._short_ms.pop(task, None)

    def finished(self) -> list[tuple[TaskId, TaskStores | BaseException]]:
        out: list[tuple[TaskId, TaskStores | BaseException]] = []
        for task, (turns, stores, reached) in list(self._jobs.items()):
            if turns:
                self._jobs[task] = (turns - 1, stores, reached)
                continue
            del self._jobs[task]
            if self.failure is not None:
                out.append((task, self.failure))
                continue
            try:
                opened = self._opened(task, stores, reached)
            except StateCorruptedError:
                opened = self._opened(task, stores, reached)
            except RetriableError:
                self._jobs[task] = (1, stores, reached)
                continue
            except Short as exc:
                if self._log.now_ms - self._short_ms.setdefault(task, self._log.now_ms) > MARKERS_WAIT_S * 1000:
                    out.append((task, exc))
                else:
                    self._jobs[task] = (1, stores, reached)
                continue
            self._short_ms.pop(task, None)
            out.append((task, opened))
        return out

    def _opened(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> TaskStores:
        return TaskStores(self._restored(task, stores, reached))

    def _require_written(self, task: TaskId, spec: StoreSpec, reached: CommittedPositions) -> None:
        """Raises ``Short`` where the changelog does not hold what the last commit wrote."""
        topic, written = changelog_topic(APP, spec), reached.changelogs.get(spec.name, 0)
        end = self._log.partition(TopicPartition(topic, task.partition)).last_stable
        if spec.source_topic is None and end < written:
            raise Short(f"{topic} ends at {end}, but the last commit wrote it up to {written}")

    def _restored(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> MemoryBackend:
        while True:
            backend = self._disk.backend(task, stores)
            if all(self._replay(task, spec, backend, reached) for spec in stores):
                return backend
            self._disk.backends[task] = self._disk.make(stores)

    def _replay(self, task: TaskId, spec: StoreSpec, backend: MemoryBackend, reached: CommittedPositions) -> bool:
        """Returns ``False`` where the local state must not be used."""
        topic = changelog_topic(APP, spec)
        log = self._log.partition(TopicPartition(topic, task.partition))
        asked_ms = self._clock.now_ms()
        end = log.last_stable
        written = reached.changelogs.get(spec.name)
        if spec.source_topic is not None:
            end = min(end, reached.inputs[topic])
        elif self._committed_only and written is not None:
            end = min(end, written)
        if end < (written or 0):
            raise Short(f"{topic} ends at {end}, but the last commit wrote it up to {written}")
        raw = backend.position(spec.name)
        stored = None if raw is None else decode_position(raw)
        facts = facts_of(self._log, topic, (log.first, end), written, log.epochs[-1][0])
        of = StorePartition(APP, spec.name, task.partition)
        reader, tp = MemoryConsumer(self._log, "reader"), TopicPartition(topic, task.partition)
        noted = reached.epochs.get(spec.name, -1)
        if written and spec.source_topic is None and noted >= 0 and is_lost(reader, tp, written, noted, log.first):
            raise replaced(tp, written, noted)
        lost = stored is not None and was_replaced(reader, tp, stored, facts)
        decision = decide(of, stored, facts, asked_ms, segment_ms=spec.segment_ms, replaced=lost)
        self.said.append(decision.reason)
        if isinstance(decision, Quarantine):
            return False
        found = [(o, e) for o, e in log.committed(max(decision.offset, log.first)) if o < end]
        self.replayed += len(found)
        begun_ms = asked_ms
        if isinstance(decision, Resume) and stored is not None:
            begun_ms = min(stored.wall_time_ms, asked_ms)
        half = max(int(len(found) * self.share_before), 1) if len(found) > 1 else 0
        if half:  # until the end is reached a store is as old as its oldest part
            self._write(
                spec, backend, found[:half], position_at(self._log, found[half][0], spec, begun_ms, facts.epoch)
            )
            self._disk.half.add((task, spec.name))
            self.on_half()
        self._write(spec, backend, found[half:], position_at(self._log, end, spec, asked_ms, facts.epoch))
        self._disk.half.discard((task, spec.name))
        return True

    def _write(
        self, spec: StoreSpec, backend: MemoryBackend, rows: Sequence[tuple[int, LogEntry]], position: bytes
    ) -> None:
        entries = from_changelog_columns(
            spec, [e.key for _, e in rows], [e.value for _, e in rows], [e.timestamp_ms for _, e in rows]
        )
        backend.commit([StoreWrites(spec.name, entries, position)])


def facts_of(log: MemoryLog, topic: str, ends: tuple[int, int], written: int | None, epoch: int) -> ChangelogFacts:
    admin = MemoryAdmin(log)
    config = admin.topic_config(topic)
    return ChangelogFacts(
        topic,
        admin.topic_ids([topic])[topic],
        admin.cluster_id(),
        *ends,
        "compact" in config["cleanup.policy"],
        int(config["delete.retention.ms"]),
        written,
        epoch,
    )


def position_at(log: MemoryLog, offset: int, spec: StoreSpec, at_ms: int, epoch: int) -> bytes:
    ids = MemoryAdmin(log).topic_ids([changelog_topic(APP, spec)])
    epoch = epoch if spec.source_topic is None else -1
    return encode_position(Position(offset, {}, "memory", ids, at_ms, -1, epoch, spec.segment_ms))
