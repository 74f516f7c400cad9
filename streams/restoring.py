"""Restoring: bringing a task's stores to the end of their changelogs, off the poll thread.

``TaskOpener.open`` performs what ``penstock.state.restore`` decides, for one task: take the folder's lock, open the
database, quarantine it when it cannot be trusted, ingest snapshots into empty stores, replay the tails. It returns
stores that stand exactly at what is committed. ``Restorer`` runs such jobs one after the other in a thread of its own.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.state.changelog import changelog_topic, from_changelog_columns
from penstock.state.directory import StateDirectory, TaskLock
from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.manifest import Manifest, StorePartition
from penstock.state.position import Position, decode_position, encode_position
from penstock.state.restore import (
    ChangelogFacts,
    FromBeginning,
    IngestSnapshot,
    Quarantine,
    RestoreProgress,
    Resume,
    decide,
)
from penstock.state.rocksdb import RocksDBBackend
from penstock.state.rocksdb_options import RocksDBOptions
from penstock.state.snapshot import SnapshotRepository
from penstock.state.store import StateBackend, StoreSpec, StoreWrites
from penstock.streams.ports import LogAdmin, LogConsumer

RESTORE_POLL_RECORDS = 50_000
STALLED_AFTER_S = 60.0
OnProgress = Callable[[TaskId, str, RestoreProgress], None]


@dataclasses.dataclass(frozen=True)
class TaskState:
    """A task's open stores, and the lock that keeps them its own. ``log`` says in sentences how they were restored."""

    backend: StateBackend
    lock: TaskLock | None
    log: tuple[str, ...] = ()

    def close(self) -> None:
        """Close the stores, then let go of the lock."""
        self.backend.close()
        if self.lock is not None:
            self.lock.release()


class Cancelled(Exception):
    """The task was taken away while it was being restored."""


class TaskOpener:
    """Opens and restores the stores of tasks. ``open_consumer`` makes a consumer of its own for each call; ``now_ms``
    is the wall clock; ``lock_timeout_s`` how long to wait for a sibling to let go of a task."""

    def __init__(
        self,
        application_id: str,
        directory: StateDirectory,
        admin: LogAdmin,
        open_consumer: Callable[[], LogConsumer],
        now_ms: Callable[[], int],
        *,
        repository: SnapshotRepository | None = None,
        options: RocksDBOptions | None = None,
        lock_timeout_s: float = 30.0,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._application_id = application_id
        self._directory = directory
        self._admin = admin
        self._open_consumer = open_consumer
        self._now_ms = now_ms
        self._repository = repository
        self._options = options
        self._lock_timeout_s = lock_timeout_s
        self._on_progress = on_progress or (lambda task, store, progress: None)

    def open(
        self,
        task: TaskId,
        stores: Sequence[StoreSpec],
        inputs: Mapping[str, int],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> TaskState:
        """The task's stores at the end of their changelogs; of a table that reads its own topic, at ``inputs``: the
        committed position of each input topic. Raises ``Cancelled`` when told so."""
        lock = self._directory.lock(str(task), timeout_s=self._lock_timeout_s)
        said: list[str] = []
        backend: RocksDBBackend | None = None
        try:
            backend = self._open_database(task, stores, said)
            consumer = self._open_consumer()
            try:
                for spec in stores:
                    if spec.changelog or spec.source_topic is not None:
                        backend = self._restore(task, stores, spec, backend, consumer, inputs, cancelled, said)
            finally:
                consumer.close()
            return TaskState(backend, lock, tuple(said))
        except BaseException:
            if backend is not None:
                backend.close()
            lock.release()
            raise

    def _open_database(self, task: TaskId, stores: Sequence[StoreSpec], said: list[str]) -> RocksDBBackend:
        path = self._directory.database_path(str(task))
        try:
            backend = RocksDBBackend(path, stores, self._options)
            for spec in stores:
                raw = backend.position(spec.name)
                if raw is not None:
                    decode_position(raw)
            return backend
        except StateCorruptedError as exc:
            said.append(f"task {task}: the local state is damaged and was set aside: {exc}")
            self._directory.quarantine(str(task), str(exc))
            return RocksDBBackend(path, stores, self._options)

    # -- one store -----------------------------------------------------------------------------------------------

    def _restore(
        self,
        task: TaskId,
        stores: Sequence[StoreSpec],
        spec: StoreSpec,
        backend: RocksDBBackend,
        consumer: LogConsumer,
        inputs: Mapping[str, int],
        cancelled: Callable[[], bool],
        said: list[str],
    ) -> RocksDBBackend:
        of = StorePartition(self._application_id, spec.name, task.partition)
        facts = self._facts(task, spec, consumer, inputs)
        raw = backend.position(spec.name)
        snapshots = self._snapshots(of, said)
        decision = decide(of, None if raw is None else decode_position(raw), facts, self._now_ms(), snapshots)
        said.append(decision.reason)
        if isinstance(decision, Quarantine):
            # every store of the task goes aside with the one that is wrong: they share the database
            backend.close()
            self._directory.quarantine(str(task), decision.reason)
            backend = RocksDBBackend(self._directory.database_path(str(task)), stores, self._options)
            for other in stores[: list(stores).index(spec)]:
                backend = self._restore(task, stores, other, backend, consumer, inputs, cancelled, said)
            decision = decision.then
            said.append(decision.reason)
        if isinstance(decision, IngestSnapshot):
            decision = self._ingest(spec, backend, decision, facts, said)
        self._replay(task, spec, backend, consumer, facts, decision, cancelled)
        return backend

    def _facts(self, task: TaskId, spec: StoreSpec, consumer: LogConsumer, inputs: Mapping[str, int]) -> ChangelogFacts:
        topic = changelog_topic(self._application_id, spec)
        begin, end = consumer.watermarks(TopicPartition(topic, task.partition))
        if spec.source_topic is not None:
            # rows past the committed position have not been processed yet
            end = min(end, max(inputs.get(topic, begin), begin))
        config = self._admin.topic_config(topic)
        return ChangelogFacts(
            topic,
            self._admin.topic_ids([topic])[topic],
            self._admin.cluster_id(),
            begin,
            end,
            "compact" in config.get("cleanup.policy", "delete"),
            int(config.get("delete.retention.ms", 86_400_000)),
        )

    def _snapshots(self, of: StorePartition, said: list[str]) -> Sequence[Manifest]:
        if self._repository is None:
            return []
        found = self._repository.find(of)
        said += found.damaged
        return found.manifests

    def _ingest(
        self,
        spec: StoreSpec,
        backend: RocksDBBackend,
        decision: IngestSnapshot,
        facts: ChangelogFacts,
        said: list[str],
    ) -> IngestSnapshot | FromBeginning:
        """Bring the snapshot's files here and ingest them; a damaged snapshot is named and passed over."""
        assert self._repository is not None
        with TemporaryDirectory(dir=self._directory.path) as folder:
            try:
                files = self._repository.fetch(decision.manifest, Path(folder))
            except StateCorruptedError as exc:
                said.append(f"a snapshot is damaged and was passed over: {exc}")
                return FromBeginning(facts.begin_offset, "the snapshot was damaged")
            backend.ingest(spec.name, files)
        return decision

    def _replay(
        self,
        task: TaskId,
        spec: StoreSpec,
        backend: RocksDBBackend,
        consumer: LogConsumer,
        facts: ChangelogFacts,
        decision: Resume | FromBeginning | IngestSnapshot,
        cancelled: Callable[[], bool],
    ) -> None:
        """Read ``[offset, end)`` of the changelog into the store. Ends by position, not by records: compaction and
        transactions leave gaps."""
        partition = TopicPartition(facts.topic, task.partition)
        now = self._now_ms()
        progress = RestoreProgress.begin(decision.offset, facts.end_offset, now)
        self._on_progress(task, spec.name, progress)
        if progress.done and isinstance(decision, Resume):
            return
        consumer.assign_at({partition: decision.offset})
        waited_s = 0.0
        try:
            while not progress.done:
                if cancelled():
                    raise Cancelled
                fetched = consumer.poll(RESTORE_POLL_RECORDS, 0.2)
                offset, records = progress.offset, 0
                for chunk in fetched.chunks:
                    stop = len(chunk)
                    while stop and chunk.offsets[stop - 1] >= facts.end_offset:
                        stop -= 1
                    offset = facts.end_offset if stop < len(chunk) else chunk.offsets[-1] + 1
                    records += stop
                    entries = from_changelog_columns(
                        spec, chunk.keys[:stop], chunk.values[:stop], chunk.timestamps[:stop]
                    )
                    backend.commit([StoreWrites(spec.name, entries, self._position(facts, offset))])
                offset = max(offset, min(fetched.ends.get(partition, 0), facts.end_offset))
                waited_s = 0.0 if offset > progress.offset else waited_s + 0.2
                if waited_s > STALLED_AFTER_S:
                    raise RetriableError(
                        f"restoring {spec.name} of task {task} stands still at offset {progress.offset} of "
                        f"{facts.topic}, {facts.end_offset - progress.offset} before its end; check the brokers"
                    )
                progress = progress.advanced(offset, records, self._now_ms())
                self._on_progress(task, spec.name, progress)
            backend.commit([StoreWrites(spec.name, [], self._position(facts, facts.end_offset))])
        finally:
            consumer.unassign([partition])

    def _position(self, facts: ChangelogFacts, offset: int) -> bytes:
        return encode_position(Position(offset, {}, facts.cluster_id, {facts.topic: facts.topic_id}, self._now_ms()))


@dataclasses.dataclass
class _Job:
    task: TaskId
    stores: Sequence[StoreSpec]
    inputs: Mapping[str, int]
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)


class Restorer:
    """Runs ``TaskOpener.open`` in one thread, so that the poll loop never waits for it."""

    def __init__(self, opener: TaskOpener) -> None:
        self._opener = opener
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._done: queue.Queue[tuple[_Job, TaskState | BaseException]] = queue.Queue()
        self._open: dict[TaskId, _Job] = {}
        self._thread: threading.Thread | None = None

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], inputs: Mapping[str, int]) -> None:
        """Ask for a task's stores; ``finished`` will give them."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-restore", daemon=True)
            self._thread.start()
        job = _Job(task, stores, dict(inputs))
        self._open[task] = job
        self._jobs.put(job)

    def cancel(self, task: TaskId) -> None:
        """The task is no longer wanted; its stores are closed when they come."""
        job = self._open.pop(task, None)
        if job is not None:
            job.cancelled.set()

    def finished(self) -> list[tuple[TaskId, TaskState | BaseException]]:
        """What has come since the last call. States of tasks that were cancelled meanwhile are closed here."""
        out: list[tuple[TaskId, TaskState | BaseException]] = []
        while True:
            try:
                job, result = self._done.get_nowait()
            except queue.Empty:
                return out
            if self._open.get(job.task) is job:
                del self._open[job.task]
                out.append((job.task, result))
            elif isinstance(result, TaskState):
                result.close()

    @property
    def busy(self) -> bool:
        """Whether some task is still being restored."""
        return bool(self._open)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.cancelled.is_set():
                continue
            try:
                state = self._opener.open(job.task, job.stores, job.inputs, job.cancelled.is_set)
            except Cancelled:
                continue
            except BaseException as exc:
                self._done.put((job, exc))
                continue
            if job.cancelled.is_set():
                state.close()
            else:
                self._done.put((job, state))

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        for job in self._open.values():
            job.cancelled.set()
        self._open.clear()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(timeout=30)
        self.finished()
