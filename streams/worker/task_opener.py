"""Restoring: bring a task's stores to the end of their changelogs.

``TaskOpener.open`` performs what ``penstock.state.recovery.restore_decision`` decides, for one task: take the
folder's lock, open the database, quarantine it if it cannot be trusted, ingest snapshots into empty stores, replay
the tails. It returns stores that are exactly at the committed position.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.state.errors import IncompatibleError, PenstockError, RetriableError, StateCorruptedError
from penstock.state.failpoints import failpoint
from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.atomic_files import environment_fault
from penstock.state.machine.state_directory import StateDirectory, TaskLock
from penstock.state.recovery.changelog import History, changelog_topic, is_whole_from_zero_only
from penstock.state.recovery.position import Position, decode_position, encode_position
from penstock.state.recovery.restore_decision import (
    ChangelogFacts,
    FromBeginning,
    IngestSnapshot,
    Quarantine,
    RestoreProgress,
    Resume,
    decide,
    decide_afresh,
)
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import SnapshotRepository
from penstock.state.stores.durable_backend import DurableBackend, OpenBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.streams.events.facts import (
    LockAwaited,
    RestoreCancelled,
    RestoreRetried,
    SnapshotUsed,
    StoreQuarantined,
)
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.changelog_entries import entries_of
from penstock.streams.ports.log import LogAdmin, LogConsumer
from penstock.streams.runtime.changelog_epochs import replaced
from penstock.streams.runtime.topic_watch import all_topic_ids
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.worker.restore_report import RefusedSnapshots, RestoreReport

RESTORE_POLL_RECORDS = 50_000
STALLED_AFTER_S = 60.0
LOCK_TURN_S = 0.5
MARKERS_WAIT_S = 30.0
_MARKERS_TURN_S = 0.05

OnProgress = Callable[[TaskId, str, RestoreProgress], None]


class Cancelled(Exception):
    """The task was revoked while it was being restored."""


@dataclasses.dataclass
class _Opening:
    """A task that is being opened. ``unusable``: the names of snapshots that turned out to be damaged. ``written``: some
    state was restored and may not be on the disk yet."""

    task: TaskId
    stores: Sequence[StoreSpec]
    reached: CommittedPositions
    cancelled: Callable[[], bool]
    refused: RefusedSnapshots
    unusable: set[str] = dataclasses.field(default_factory=set)
    backend: DurableBackend | None = None
    written: bool = False

    def close(self) -> None:
        """Close the database. What cannot be written is restored from the log."""
        if self.backend is not None:
            with suppress(PenstockError):
                self.backend.close()
        self.backend = None


def _restorable(spec: StoreSpec) -> bool:
    return spec.changelog or spec.source_topic is not None


class LockHeldError(RetriableError):
    """Another process holds the task's folder."""


class TaskOpener:
    """Opens and restores the stores of tasks. ``open_consumer`` creates a consumer for each call; ``now_ms`` is the
    wall clock; ``open_backend`` opens stores in a folder; ``lock_timeout_s``: how long one call waits for another process
    to release a task. ``asking``: whether a call is waiting for the brokers' answer now. ``committed_only``: as under
    at-least-once, changelog records after the last commit may be a stale owner's, and are not restored."""

    def __init__(
        self,
        application_id: str,
        directory: StateDirectory,
        admin: LogAdmin,
        open_consumer: Callable[[], LogConsumer],
        now_ms: Callable[[], int],
        open_backend: OpenBackend,
        *,
        repository: SnapshotRepository | None = None,
        lock_timeout_s: float = LOCK_TURN_S,
        on_progress: OnProgress | None = None,
        committed_only: bool = False,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self._application_id = application_id
        self._directory = directory
        self._admin = admin
        self._open_consumer = open_consumer
        self._now_ms = now_ms
        self._repository = repository
        self._open_backend = open_backend
        self._lock_timeout_s = lock_timeout_s
        self.asking = False
        self._committed_only = committed_only
        self._on_progress = on_progress or (lambda task, store, progress: None)
        self._events = events

    def open(
        self,
        task: TaskId,
        stores: Sequence[StoreSpec],
        reached: CommittedPositions,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> TaskStores:
        """Return the task's stores at the end of their changelogs; for a table that reads its own topic, at its
        committed position. Raises ``Cancelled`` on request, ``RetriableError`` while another process holds the task
        or the brokers do not answer (the next call continues from there), and ``IncompatibleError`` for a changelog
        that does not hold what was committed."""
        lock = self._lock(task, cancelled)
        failpoint("restore.locked")
        opening = _Opening(task, stores, reached, cancelled, RefusedSnapshots(self._events, task))
        try:
            self._remove_fetched(task)
            damage = self._attempt(opening)
            if damage is not None:
                self._set_aside(opening, damage)
                damage = self._attempt(opening)
            if damage is not None:
                raise StateCorruptedError(f"task {task} was restored and is damaged again: {damage}; check the disk")
            assert opening.backend is not None
            return TaskStores(opening.backend, lock)
        except BaseException:
            opening.close()
            lock.release()
            raise

    def cancelled(self, task: TaskId) -> None:
        """Report that ``open`` of a task was cancelled."""
        self._events.emit(RestoreCancelled(task))

    def put_off(self, task: TaskId, cause: RetriableError, waited_s: float) -> None:
        """Report that ``open`` of a task is retried, ``waited_s`` after the first attempt."""
        held = isinstance(cause, LockHeldError)
        self._events.emit(LockAwaited(task, waited_s) if held else RestoreRetried(task, cause, waited_s))

    def _lock(self, task: TaskId, cancelled: Callable[[], bool]) -> TaskLock:
        """Wait for the task's lock in turns, so that a revoked task waits for nothing."""
        until = time.monotonic() + self._lock_timeout_s
        while True:
            left = until - time.monotonic()
            try:
                return self._directory.lock(str(task), timeout_s=max(min(left, LOCK_TURN_S), 0.0))
            except RetriableError as exc:
                if cancelled():
                    raise Cancelled from None
                if left <= LOCK_TURN_S:
                    raise LockHeldError(str(exc)) from exc

    def _attempt(self, opening: _Opening) -> str | None:
        """Open the database, restore its stores and flush what was restored, so that a worker that is killed soon need not
        restore it again. Returns the damage that was met. The error's traceback no longer references the database then."""
        try:
            self._open_database(opening)
            consumer = self._open_consumer()
            try:
                for spec in opening.stores:
                    if _restorable(spec):
                        self._restore(opening, spec, consumer)
            finally:
                consumer.close()
            if opening.written and opening.backend is not None:
                opening.backend.flush()
        except StateCorruptedError as exc:
            return str(exc)
        return None

    def _open_database(self, opening: _Opening) -> None:
        path = self._directory.database_path(str(opening.task))
        opening.backend = backend = self._open_backend(path, opening.stores)
        for spec in opening.stores:
            raw = backend.position(spec.name)
            if raw is not None:
                decode_position(raw)
        failpoint("restore.opened")

    def _set_aside(self, opening: _Opening, damage: str) -> None:
        self._events.emit(StoreQuarantined(opening.task, damage))
        opening.close()
        self._directory.quarantine(str(opening.task), damage)

    # -- one store -----------------------------------------------------------------------------------------------

    def _restore(self, opening: _Opening, spec: StoreSpec, consumer: LogConsumer) -> None:
        assert opening.backend is not None
        task = opening.task
        of = StorePartition(self._application_id, spec.name, task.partition)
        asked_ms = self._now_ms()
        facts = self._facts(task, spec, consumer, opening.reached, opening.cancelled)
        raw = opening.backend.position(spec.name)
        stored = None if raw is None else decode_position(raw)
        snapshots = self._snapshots(of, opening)
        lost = stored is not None and was_replaced(consumer, TopicPartition(facts.topic, task.partition), stored, facts)
        decision = decide(of, stored, facts, self._now_ms(), snapshots, segment_ms=spec.segment_ms, replaced=lost)
        failpoint("restore.decided")
        _refuse_part(spec, facts, decision.then if isinstance(decision, Quarantine) else decision)
        if isinstance(decision, Quarantine):
            self._events.emit(StoreQuarantined(task, decision.reason))
            # all stores of the task are quarantined with the damaged one: they share the database
            opening.close()
            self._directory.quarantine(str(task), decision.reason)
            self._open_database(opening)
            for other in opening.stores[: list(opening.stores).index(spec)]:
                if _restorable(other):
                    self._restore(opening, other, consumer)
            decision = decision.then
        while isinstance(decision, IngestSnapshot) and not self._ingest(opening, spec, decision.manifest):
            snapshots = [m for m in snapshots if m.name not in opening.unusable]
            decision = decide_afresh(of, facts, self._now_ms(), snapshots, segment_ms=spec.segment_ms)
            _refuse_part(spec, facts, decision)
        if not isinstance(decision, Resume):
            opening.refused.add(spec.name, decision.refused)
        begun_ms = asked_ms
        if isinstance(decision, Resume) and stored is not None:
            begun_ms = min(stored.wall_time_ms, asked_ms)
        elif isinstance(decision, IngestSnapshot):
            begun_ms = min(decision.manifest.created_ms, asked_ms)
        self._replay(opening, spec, consumer, facts, decision, (begun_ms, asked_ms))

    def _facts(
        self,
        task: TaskId,
        spec: StoreSpec,
        consumer: LogConsumer,
        reached: CommittedPositions,
        cancelled: Callable[[], bool],
    ) -> ChangelogFacts:
        self.asking = True
        try:
            return self._asked_facts(task, spec, consumer, reached, cancelled)
        finally:
            self.asking = False

    def _asked_facts(
        self,
        task: TaskId,
        spec: StoreSpec,
        consumer: LogConsumer,
        reached: CommittedPositions,
        cancelled: Callable[[], bool],
    ) -> ChangelogFacts:
        topic = changelog_topic(self._application_id, spec)
        partition = TopicPartition(topic, task.partition)
        begin, end = consumer.watermarks(partition)
        written: int | None = None
        if spec.source_topic is not None:
            # rows past the committed position have not been processed yet
            end = min(end, max(reached.inputs.get(topic, begin), begin))
        else:
            written = reached.changelogs.get(spec.name)
            end = self._committed_end(spec, consumer, partition, end, written or 0, cancelled)
            if self._committed_only and written is not None:
                end = written
        epoch = epoch_of(consumer, partition)
        noted = reached.epochs.get(spec.name, epoch)
        if written and noted not in (epoch, -1) and is_lost(consumer, partition, written, noted, begin):
            raise replaced(partition, written, noted)
        config = self._admin.topic_config(topic)
        return ChangelogFacts(
            topic,
            all_topic_ids(self._admin, [topic])[topic],
            self._admin.cluster_id(),
            begin,
            end,
            "compact" in config.get("cleanup.policy", "delete"),
            int(config.get("delete.retention.ms", 86_400_000)),
            written,
            epoch,
        )

    def _committed_end(
        self,
        spec: StoreSpec,
        consumer: LogConsumer,
        partition: TopicPartition,
        end: int,
        needed: int,
        cancelled: Callable[[], bool],
    ) -> int:
        """Wait until the end for readers of committed records covers the last commit: the brokers write a
        transaction's markers one partition after the other, so its positions can be readable before its changelog."""
        waited_s = 0.0  # in turns: time during which the process was frozen is not the brokers'
        while end < needed:
            if cancelled():
                raise Cancelled
            if waited_s > MARKERS_WAIT_S:
                raise IncompatibleError(
                    f"{partition.topic} [{partition.partition}] ends at {end}, but the last commit of group "
                    f"{self._application_id} wrote store {spec.name} up to {needed}: the topic was recreated or has lost "
                    "records. To build the store again, stop the application, delete its changelog topics and state "
                    "folder, and reset the group's positions to the beginning"
                )
            time.sleep(_MARKERS_TURN_S)
            waited_s += _MARKERS_TURN_S
            end = consumer.watermarks(partition)[1]
        return end

    def _snapshots(self, of: StorePartition, opening: _Opening) -> Sequence[Manifest]:
        if self._repository is None:
            return []
        found = self._repository.find(of)
        opening.refused.add(of.store, found.damaged)
        return [m for m in found.manifests if m.name not in opening.unusable]

    def _ingest(self, opening: _Opening, spec: StoreSpec, manifest: Manifest) -> bool:
        """Fetch the snapshot's files and ingest them; a damaged snapshot is noted, and the store left empty."""
        assert self._repository is not None
        assert opening.backend is not None
        try:
            files = self._repository.fetch(manifest, self._fetched(opening.task))
            failpoint("ingest.fetched")
            opening.backend.ingest(spec.name, files)
            failpoint("ingest.done")
        except StateCorruptedError as exc:
            opening.unusable.add(manifest.name)
            opening.refused.add(spec.name, [str(exc)])
            if opening.backend.damaged is not None:
                raise
            opening.backend.reset(spec.name)
            return False
        finally:
            self._remove_fetched(opening.task)
        self._events.emit(SnapshotUsed(opening.task, spec.name, manifest.name, manifest.changelog_offset))
        return True

    def _fetched(self, task: TaskId) -> Path:
        """The folder for the files of a snapshot until they are ingested."""
        return self._directory.task_path(str(task)) / "fetched"

    def _remove_fetched(self, task: TaskId) -> None:
        """Also removes what a killed process has left there."""
        folder = self._fetched(task)
        try:
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as exc:
            raise environment_fault(exc, f"remove {folder}") from exc

    def _replay(
        self,
        opening: _Opening,
        spec: StoreSpec,
        consumer: LogConsumer,
        facts: ChangelogFacts,
        decision: Resume | FromBeginning | IngestSnapshot,
        known_ms: tuple[int, int],
    ) -> None:
        """Read ``[offset, end)`` of the changelog into the store. Ends by position, not by number of records:
        compaction and transactions leave gaps. ``known_ms``: until the end is reached the store is as old as its
        oldest part, because deletions that it lacks may be gone when a later restore continues from here; at the end
        it is as old as the moment before the end was requested."""
        begun_ms, asked_ms = known_ms
        backend, task = opening.backend, opening.task
        assert backend is not None
        partition = TopicPartition(facts.topic, task.partition)
        progress = RestoreProgress.begin(decision.offset, facts.end_offset)
        self._on_progress(task, spec.name, progress)
        report = RestoreReport(self._events, task, spec.name, time.monotonic)
        report.began(decision, facts)
        if progress.done and isinstance(decision, Resume):
            report.ended(progress, facts.end_offset)
            return
        opening.written = True
        history = History(spec, backend.range(spec.name, None, None))
        consumer.assign_at({partition: decision.offset})
        waited_s = 0.0
        try:
            while not progress.done:
                if opening.cancelled():
                    raise Cancelled
                fetched = consumer.poll(RESTORE_POLL_RECORDS, 0.2)
                offset, records = progress.offset, 0
                for chunk in fetched.chunks:
                    stop = len(chunk)
                    while stop and chunk.offsets[stop - 1] >= facts.end_offset:
                        stop -= 1
                    offset = facts.end_offset if stop < len(chunk) else chunk.offsets[-1] + 1
                    records += stop
                    entries = entries_of(spec, history, chunk.part(0, stop))
                    backend.commit([StoreWrites(spec.name, entries, self._position(spec, facts, offset, begun_ms))])
                    failpoint("restore.chunk_written")
                offset = max(offset, min(fetched.ends.get(partition, 0), facts.end_offset))
                waited_s = 0.0 if offset > progress.offset else waited_s + 0.2
                if waited_s > STALLED_AFTER_S:
                    raise RetriableError(
                        f"restoring {spec.name} of task {task} stands still at offset {progress.offset} of "
                        f"{facts.topic}, {facts.end_offset - progress.offset} before its end; check the brokers"
                    )
                progress = progress.advanced(offset, records)
                self._on_progress(task, spec.name, progress)
                report.progressed(progress)
            backend.commit([StoreWrites(spec.name, [], self._position(spec, facts, facts.end_offset, asked_ms))])
            report.ended(progress, facts.end_offset)
            failpoint("restore.ended")
        finally:
            consumer.unassign([partition])

    def _position(self, spec: StoreSpec, facts: ChangelogFacts, offset: int, at_ms: int) -> bytes:
        ids = {facts.topic: facts.topic_id}
        epoch = facts.epoch if spec.source_topic is None else -1
        return encode_position(Position(offset, {}, facts.cluster_id, ids, at_ms, -1, epoch, spec.segment_ms))


def epoch_of(consumer: LogConsumer, partition: TopicPartition) -> int:
    """The epoch of the partition's leader, -1 if unknown."""
    return consumer.leader_epochs([partition]).get(partition, -1)


def was_replaced(consumer: LogConsumer, partition: TopicPartition, stored: Position, facts: ChangelogFacts) -> bool:
    """Whether the log no longer holds what a store has read up to its position. The log is asked only after it has got
    another leader."""
    comparable = stored.epoch >= 0 and facts.epoch >= 0 and stored.topic_ids.get(facts.topic) == facts.topic_id
    if not comparable or stored.epoch == facts.epoch or not stored.changelog_offset:
        return False
    return is_lost(consumer, partition, stored.changelog_offset, stored.epoch, facts.begin_offset)


def is_lost(consumer: LogConsumer, partition: TopicPartition, offset: int, epoch: int, begin: int) -> bool:
    """Whether the log lacks what the leader of an epoch had before an offset. If that was deleted, because the log begins
    behind it, it is not lost, and the log cannot say more."""
    return offset >= begin and not consumer.holds(partition, offset, epoch)


def _refuse_part(spec: StoreSpec, facts: ChangelogFacts, decision: Resume | FromBeginning | IngestSnapshot) -> None:
    """Refuse to make a store of a changelog whose begin is gone."""
    if isinstance(decision, FromBeginning) and facts.begin_offset and is_whole_from_zero_only(spec):
        raise IncompatibleError(
            f"store {spec.name} cannot be restored: {decision.reason}, so {facts.topic} does not hold the whole store. Give "
            "the worker the repository with its snapshots (--snapshots), or build the store again: stop the application, "
            "delete its changelog topics and state folder, and reset the group's positions to the beginning"
        )
