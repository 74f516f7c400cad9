"""Replay inside the executors: one Penstock task after the other over its sorted rows, outputs and stores into
files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.rocksdb.scratch import open_scratch
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.list_store import expired_before_ms
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.batch.compact_executor import CompactTarget, write_snapshot
from penstock.streams.batch.journals import Journals
from penstock.streams.batch.published import StoreFile, TaskReport
from penstock.streams.batch.reading import read_range
from penstock.streams.batch.replay_files import OutputFiles, store_file
from penstock.streams.batch.replay_rows import END_OF_TASK, Ordering, chunk_of
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.batch.task_reading import task_pieces
from penstock.streams.kafka.native import choose
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.external_calls import InlineCallExecutor
from penstock.streams.task.journal import ClockFiring
from penstock.streams.task.output import Output
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology

TaskT = TypeVar("TaskT", bound="ReplayTask")
REPORT_SCHEMA = pa.schema([("report", pa.string())])
_DATABASE = "db"


@dataclasses.dataclass(frozen=True)
class ReplayJob:
    """Values that the tasks of one job need besides their rows. ``starts``: per task and topic, the first offset and the
    metadata committed with it. ``journals``: that of each task within its range. ``bases``: snapshots to start the
    stores from, in ``base_repository``. ``snapshots``: which stores' ends are written as snapshots, to
    ``snapshot_repository``. ``output`` and ``run``: where files go."""

    topology: ShippedTopology
    application_id: str
    options: TaskOptions
    partition_counts: Mapping[str, int]
    starts: Mapping[TaskId, Mapping[str, tuple[int, CommitMetadata]]]
    journals: Journals
    output: str
    run: str
    bases: Mapping[tuple[TaskId, str], Manifest]
    base_repository: str | None
    snapshots: Mapping[tuple[TaskId, str], CompactTarget]
    snapshot_repository: str | None
    commit_max_records: int = 200_000
    file_bytes: int = 64 << 20


def run_task(
    job: ReplayJob,
    ordering: Ordering,
    address: ClusterAddress,
    task_id: TaskId,
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> TaskReport:
    """Read these ranges, a task's inputs, and run the task over them, on columns where the compiled part is there. Raises
    as ``read_range``, and what the task would stop with."""
    choose("auto")
    topology = job.topology.load()
    with TemporaryDirectory(prefix="penstock-replay-") as folder:
        task = FileTask(job, topology, task_id, Path(folder))
        try:
            read = partial(read_range, address, job.application_id)
            for number, chunks in task_pieces(ordering, topology, task_id, ranges, read):
                task.feed(number, chunks)
            return task.finish()
        finally:
            task.close()


def run_tasks(job: ReplayJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of ``ORDERED_SCHEMA`` sorted by ``ORDER``, each task's complete; one report per task."""
    topology = job.topology.load()
    return task_by_task(
        "penstock-replay-",
        batches,
        lambda task_id, folder: FileTask(job, topology, task_id, folder),
        lambda task: _report_batch(task.finish()),
    )


def task_by_task(
    prefix: str,
    batches: Iterable[pa.RecordBatch],
    open_task: Callable[[TaskId, Path], TaskT],
    finish: Callable[[TaskT], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Open a task when its first rows come, in a folder of its own, feed it all of them, and give what ``finish`` makes of
    it. ``prefix``: of the folder's name. The task at work is closed where something fails."""
    with TemporaryDirectory(prefix=prefix) as folder:
        current: TaskT | None = None
        try:
            for batch in batches:
                for task_id, number, rows in task_runs(batch):
                    if current is None or current.id != task_id:
                        if current is not None:
                            yield finish(current)
                        current = open_task(task_id, Path(folder) / str(task_id))
                    if number != END_OF_TASK[0]:
                        current.feed_rows(number, rows)
            if current is not None:
                yield finish(current)
        finally:
            if current is not None:
                current.close()


def task_runs(batch: pa.RecordBatch) -> Iterator[tuple[TaskId, int, pa.RecordBatch]]:
    """The batch's runs of one task and range."""
    subs, tasks, ranges = (batch.column(c).to_pylist() for c in ("subtopology", "task", "range"))
    keys = list(zip(subs, tasks, ranges, strict=True))
    start = 0
    while start < len(keys):
        stop = start + 1
        while stop < len(keys) and keys[stop] == keys[start]:
            stop += 1
        yield TaskId(*keys[start][:2]), keys[start][2], batch.slice(start, stop - start)
        start = stop


def _report_batch(report: TaskReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(report).decode()])], schema=REPORT_SCHEMA)


class ReplayTask:
    """A Penstock task that is fed rows in the order of ``replay_rows``. Subclasses take what it gives."""

    def __init__(
        self, job: ReplayJob, topology: Topology, task_id: TaskId, folder: Path, step: int | None = None
    ) -> None:
        self.id = task_id
        self.job = job
        self.specs: tuple[StoreSpec, ...] = topology.subtopologies[task_id.subtopology].stores
        self._state = folder
        self.backend = _open_backend(job, task_id, self.specs, folder)
        self.records = 0
        self.floors: dict[str, bytes] = {}
        self._step = step
        self._entries = tuple(job.journals.ordering(task_id))
        self._range = 0
        options = dataclasses.replace(
            job.options, live=False, max_task_idle_ms=0, announces=False, call_executor=InlineCallExecutor()
        )
        start = job.starts[task_id]
        self.task = Task(
            task_id,
            job.application_id,
            topology,
            topology.subtopologies[task_id.subtopology],
            self.backend,
            start,
            options,
            job.partition_counts,
            task_count=sum(t.subtopology == task_id.subtopology for t in job.starts),
            answers=job.journals.answers(task_id),
        )
        for topic, (offset, _) in start.items():
            self.task.feed.set_end(topic, offset)
        self.task.feed.take_as_given()
        self.task.feed.cuts.clear()

    def feed_rows(self, number: int, rows: pa.RecordBatch) -> None:
        """As ``feed``, with rows of ``ORDERED_SCHEMA``."""
        topics = rows.column("topic")
        parts = ((topic, rows.filter(pc.equal(topics, topic))) for topic in pc.unique(topics).to_pylist())
        self.feed(number, [chunk_of(part, topic, self.id.partition) for topic, part in parts])

    def feed(self, number: int, chunks: Sequence[Chunk]) -> None:
        """Process records of one range between journal entries, a chunk of each input at most; earlier ranges are over."""
        self._enter(number)
        task = self.task
        for chunk in chunks:
            next_offset = chunk.offsets[-1] + 1
            task.add(chunk, next_offset)
            task.feed.set_end(chunk.topic, next_offset)
        left = sum(map(len, chunks))
        while left:
            done = task.process(max_records=self._step)
            assert done, f"task {self.id} stopped with {left} records before it"
            assert not task.feed.cuts, f"task {self.id} met its records in another order than the sort's"
            left -= done
            self.records += done
            self.took(task.take_outputs())
            if task.requests.commit or task.uncommitted_records >= self.job.commit_max_records:
                self.commit()

    def _enter(self, number: int) -> None:
        while self._range < number:
            entry = self._entries[self._range]
            self._range += 1
            if isinstance(entry, ClockFiring):
                self._fire(entry)
            self.task.feed.note_start()
            self.task.feed.cuts.clear()

    def _fire(self, entry: ClockFiring) -> None:
        if not self.task.replay_clock(entry.before_ms, entry.now_ms):
            raise IncompatibleError(
                f"the journal of task {self.id} has timers firing between {entry.before_ms} and {entry.now_ms} ms, and "
                "this topology has none there; replay with the topology that ran"
            )
        self.task.feed.cuts.clear()
        self.took(self.task.take_outputs())

    def end(self) -> None:
        """The range is over: fire what the journal has left, and commit."""
        self._enter(len(self._entries))
        self.commit()

    def commit(self) -> CommitWork:
        """Write the stores, as a commit would; nothing is sent anywhere."""
        work = self.task.prepare_commit()
        self.took(self.task.take_outputs())
        for name in work.pending:
            floor = self.task.stores[name].drop_below
            if floor is not None:
                self.floors[name] = max(floor, self.floors.get(name, b""))
        self.task.committed(work, dict.fromkeys(work.pending, b"replay"))
        return work

    def took(self, outputs: list[Output]) -> None:
        """Receive the task's outputs since the last call, in order."""

    def reopen_stores(self) -> None:
        """Keep no entries in memory. Process nothing after it."""
        if self.specs:
            self.backend.close()
            self.backend = open_scratch(self._state / _DATABASE, self.specs)

    def close(self) -> None:
        """Release the stores. Idempotent."""
        self.backend.close()


class FileTask(ReplayTask):
    """Writes outputs and stores into files."""

    def __init__(self, job: ReplayJob, topology: Topology, task_id: TaskId, folder: Path) -> None:
        super().__init__(job, topology, task_id, folder / "state")
        self._folder = folder / "files"
        self._folder.mkdir(parents=True)
        self._files = OutputFiles(self._folder, job.output, job.run, task_id, job.partition_counts)

    def took(self, outputs: list[Output]) -> None:
        for output in outputs:
            self._files.add(output)

    def finish(self) -> TaskReport:
        """Everything is processed: upload the files."""
        self.end()
        dropped, failures = dict(self.task.dropped), dict(self.task.failures.counts)
        expired_ms = {name: expired_before_ms(state) for name, state in self.task.stores.items()}
        outputs = self._files.finish()
        # To read the stores takes memory, so give up what was kept in memory to process records.
        del self.task
        self.reopen_stores()
        stores = [self._store(spec, expired_ms[spec.name]) for spec in self.specs]
        self.close()
        return TaskReport(
            subtopology=self.id.subtopology,
            task=self.id.partition,
            records=self.records,
            outputs=tuple(outputs),
            stores=tuple(stores),
            dropped=dropped,
            failures=failures,
        )

    def _store(self, spec: StoreSpec, floor_ms: int) -> StoreFile:
        job = self.job
        snapshot = None
        target = job.snapshots.get((self.id, spec.name))
        if target is not None and job.snapshot_repository is not None:
            entries = self.backend.range(spec.name, None, None)
            snapshot = write_snapshot(open_repository(job.snapshot_repository), target, entries, job.file_bytes)
        path, rows = store_file(
            self._folder, job.output, job.run, self.id, spec, self.backend.range(spec.name, None, None)
        )
        return StoreFile(
            store=spec.name,
            partition=self.id.partition,
            path=path,
            rows=rows,
            floor=self.floors.get(spec.name),
            snapshot=snapshot,
            floor_ms=floor_ms,
        )


def _open_backend(job: ReplayJob, task_id: TaskId, specs: tuple[StoreSpec, ...], folder: Path) -> StateBackend:
    """The stores of a task at its start: empty, or the snapshots that the job begins with."""
    if not specs:
        return MemoryBackend(())
    backend = open_scratch(folder / _DATABASE, specs)
    for spec in specs:
        base = job.bases.get((task_id, spec.name))
        if base is not None:
            assert job.base_repository is not None
            files = open_repository(job.base_repository).fetch(base, folder / "base")
            backend.ingest(spec.name, files, move=True)
    return backend
