"""The journals of a replay's tasks, as files next to its output.

The executors read the journal topics, keep what lies within the replay, and write one file per task; each task reads
its own, piece by piece. So a journal passes through neither the driver nor the tasks of others, however long it is.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.state.errors import EnvironmentFault, IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.snapshots.storage import open_storage
from penstock.streams.batch.row_runs import partition_runs, whole_runs
from penstock.streams.task import journal
from penstock.streams.task.journal import Answers, ClockFiring, Cut, JournalEntry

REPORT_SCHEMA = pa.schema([("subtopology", pa.int32()), ("task", pa.int32()), ("path", pa.string())])
_FILE_ARROW = pa.schema([("orders", pa.bool_()), ("entry", pa.binary())])
_GROUP_ROWS = 1_000


class Journals(Protocol):
    """The journal of each task within a replay."""

    def ordering(self, task: TaskId) -> Iterator[Cut | ClockFiring]:
        """The entries that determine the order of records."""

    def answers(self, task: TaskId) -> Iterable[Answers]:
        """The answers to external calls; each iteration begins at the first."""


@dataclasses.dataclass(frozen=True)
class GivenJournals:
    """Entries in memory; of tasks that are not there, none."""

    entries: Mapping[TaskId, tuple[JournalEntry, ...]] = dataclasses.field(default_factory=dict)

    def ordering(self, task: TaskId) -> Iterator[Cut | ClockFiring]:
        return iter(journal.ordering_of(self.entries.get(task, ())))

    def answers(self, task: TaskId) -> Iterable[Answers]:
        return journal.answers_of(self.entries.get(task, ()))


@dataclasses.dataclass(frozen=True)
class JournalFiles:
    """Files below ``url``, a folder or URL that driver and executors share. A task without a file has no entries."""

    url: str
    paths: Mapping[TaskId, str]

    def ordering(self, task: TaskId) -> Iterator[Cut | ClockFiring]:
        for entry in self._read(task, orders=True):
            assert not isinstance(entry, Answers)
            yield entry

    def answers(self, task: TaskId) -> Iterable[Answers]:
        return _AnswersOf(self, task)

    def _read(self, task: TaskId, *, orders: bool) -> Iterator[JournalEntry]:
        if task not in self.paths:
            return
        with TemporaryDirectory(prefix="penstock-journal-") as folder:
            local = Path(folder) / "journal.parquet"
            if not open_storage(self.url).get(self.paths[task], local):
                raise EnvironmentFault(
                    f"the journal of task {task} is not at {self.url}/{self.paths[task]}: driver and executors must share "
                    "that folder; give a mounted folder or a URL"
                )
            with pq.ParquetFile(local) as file:
                for batch in file.iter_batches(_GROUP_ROWS):
                    for says, data in zip(batch.column("orders").to_pylist(), batch.column("entry"), strict=True):
                        if says == orders:
                            yield from journal.decode(data.as_py())


@dataclasses.dataclass(frozen=True)
class _AnswersOf:
    files: JournalFiles
    task: TaskId

    def __iter__(self) -> Iterator[Answers]:
        for entry in self.files._read(self.task, orders=False):
            assert isinstance(entry, Answers)
            yield entry


@dataclasses.dataclass(frozen=True)
class JournalBounds:
    """Which entries of a task's journal lie within a replay: ``starts`` and ``stops`` by topic, and the readings of the
    clock with which the commits at its begin and its end were made (``ended_ms``: ``None`` where it ends at no
    commit)."""

    task: TaskId
    starts: Mapping[str, int]
    stops: Mapping[str, int]
    began_ms: int
    ended_ms: int | None

    def within(self, entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
        """Those entries, in order."""
        any_yet = False
        for entry in entries:
            if set(entry.offsets) != set(self.starts):
                raise IncompatibleError(
                    f"the journal of task {self.task} speaks of {sorted(entry.offsets)}, and the topology reads "
                    f"{sorted(self.starts)}; replay with the topology that ran"
                )
            if any(offset > self.stops[t] for t, offset in entry.offsets.items()):
                return
            before = all(offset <= self.starts[t] for t, offset in entry.offsets.items())
            if isinstance(entry, ClockFiring):
                # A firing at the very offsets of a commit lies before or after it: the clock says which.
                if before and entry.now_ms <= self.began_ms:
                    continue
                if self.ended_ms is not None and entry.now_ms > self.ended_ms:
                    return
            elif before and not (any_yet and isinstance(entry, Answers)):
                # A call at the very offsets of a commit is made before it, unless a firing after it made the call.
                continue
            any_yet = True
            yield entry


def write_journals(
    url: str, run: str, bounds: Mapping[TopicPartition, JournalBounds], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows of journal topics, each partition's whole and in offset order; the place of each task's file."""
    for tp, parts in whole_runs(partition_runs(batches)):
        entries = (entry for part in parts for value in part.column("value") for entry in journal.decode(value.as_py()))
        task = bounds[tp].task
        path = write_journal(url, f"runs/{run}/journal", task, bounds[tp].within(entries))
        yield pa.RecordBatch.from_arrays(
            [pa.array([task.subtopology], pa.int32()), pa.array([task.partition], pa.int32()), pa.array([path])],
            schema=REPORT_SCHEMA,
        )


def write_journal(url: str, folder: str, task: TaskId, entries: Iterable[JournalEntry]) -> str:
    """Write a task's entries below ``url``, under a name that no other attempt has; gives the file's place."""
    place = f"{folder}/{task}-{uuid.uuid4().hex}.parquet"
    with TemporaryDirectory(prefix="penstock-journal-") as temporary:
        local = Path(temporary) / "journal.parquet"
        with pq.ParquetWriter(local, _FILE_ARROW, compression="lz4") as writer:
            waiting: list[JournalEntry] = []
            for entry in entries:
                waiting.append(entry)
                if len(waiting) == _GROUP_ROWS:
                    writer.write_batch(_rows(waiting))
                    waiting = []
            writer.write_batch(_rows(waiting))
        open_storage(url).put(local, place)
    return place


def _rows(entries: list[JournalEntry]) -> pa.RecordBatch:
    orders = pa.array([not isinstance(e, Answers) for e in entries], pa.bool_())
    return pa.RecordBatch.from_arrays(
        [orders, pa.array([journal.encode([e]) for e in entries], pa.binary())], schema=_FILE_ARROW
    )
