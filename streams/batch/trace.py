"""Find the input record behind a difference: run the tasks concerned once more, one record at a time, and report
which record made a certain output, or changed a certain key."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.state.log import TaskId
from penstock.streams.batch.replay_task import ReplayJob, ReplayTask, task_by_task
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.output import Output
from penstock.topologies.graph.topology import Topology

SIGHTING_SCHEMA = pa.schema([("sighting", pa.string())])
SIGHTINGS_MAX = 10_000
"""The most sightings of one task: the oldest identify a first difference."""


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Where to look for the input of a row that the stream has and the batch has not: while the task has made ``since`` to
    ``until`` outputs to the topic, an input of the row's time, which an output has from its input unless the topology gives
    it another one. ``until``: ``None`` for no end."""

    topic: str
    since: int
    until: int | None
    at_ms: int


@dataclasses.dataclass(frozen=True)
class Watch:
    """The differences to look for in one task: outputs by (topic, place in the task's outputs to it), keys of output topics,
    keys of stores, and a ``LeftOut``, whose possible inputs are seen under their own keys without a place."""

    outputs: frozenset[tuple[str, int]] = frozenset()
    keys: frozenset[tuple[str, bytes | None]] = frozenset()
    entries: frozenset[tuple[str, bytes]] = frozenset()
    origin: LeftOut | None = None


class TracedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A watched item was seen. ``value`` of an entry: the stored bytes. The input record is the last one processed;
    ``None`` before the first."""

    subtopology: int
    task: int
    name: str
    seq: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    input: tuple[str, int, int] | None


def trace_tasks(
    job: ReplayJob, watches: Mapping[TaskId, Watch], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows sorted as for ``run_tasks``; the sightings of each task, in order."""
    topology = job.topology.load()
    return task_by_task(
        "penstock-trace-",
        batches,
        lambda task_id, folder: _TracedTask(job, topology, task_id, folder, watches[task_id]),
        lambda task: _sighted(task.finish()),
    )


def _sighted(sightings: Sequence[TracedRecord]) -> pa.RecordBatch:
    texts = [msgspec.json.encode(s).decode() for s in sightings]
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=SIGHTING_SCHEMA)


class _TracedTask(ReplayTask):
    """Processes one record at a time. What is held for commits shows only at a commit: if keys of outputs are watched
    there is one per record, with entries one per record that wrote a watched one."""

    def __init__(self, job: ReplayJob, topology: Topology, task_id: TaskId, folder: Path, watch: Watch) -> None:
        super().__init__(job, topology, task_id, folder, step=1)
        self._watch = watch
        self._counts: dict[str, int] = {}
        self._input: tuple[str, int, int] | None = None
        self._seen: list[TracedRecord] = []

    def feed_rows(self, number: int, rows: pa.RecordBatch) -> None:
        # Timers that the journal has before these records belong to the one before.
        self._enter(number)
        places = zip(rows.column("topic").to_pylist(), rows.column("offset").to_pylist(), strict=True)
        for i, (topic, offset) in enumerate(places):
            self._input = (topic, self.id.partition, offset)
            if (origin := self._watch.origin) is not None:
                self._look(origin, rows.slice(i, 1))
            super().feed_rows(number, rows.slice(i, 1))
            if self._watch.keys or any(self.task.stores[store].changed(key) for store, key in self._watch.entries):
                self.commit()

    def _look(self, origin: LeftOut, row: pa.RecordBatch) -> None:
        made = self._counts.get(origin.topic, 0)
        within = origin.since <= made and (origin.until is None or made <= origin.until)
        if within and row.column("timestamp_ms")[0].as_py() == origin.at_ms:
            self._saw(origin.topic, None, row.column("key")[0].as_py(), None, origin.at_ms)

    def commit(self) -> CommitWork:
        work = super().commit()
        for store, key in self._watch.entries:
            if store not in work.pending:
                continue
            keys, values = work.pending[store].listed()
            if key in keys:
                self._saw(store, None, key, values[keys.index(key)], 0)
        return work

    def took(self, outputs: list[Output]) -> None:
        for output in outputs:
            first = self._counts.get(output.topic, 0)
            self._counts[output.topic] = first + len(output.keys)
            for i, key in enumerate(output.keys):
                at = (output.topic, first + i)
                if at in self._watch.outputs or (output.topic, key) in self._watch.keys:
                    self._saw(output.topic, first + i, key, output.values[i], output.timestamps[i])

    def _saw(self, name: str, seq: int | None, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        if len(self._seen) < SIGHTINGS_MAX:
            self._seen.append(
                TracedRecord(
                    subtopology=self.id.subtopology,
                    task=self.id.partition,
                    name=name,
                    seq=seq,
                    key=key,
                    value=value,
                    timestamp_ms=timestamp_ms,
                    input=self._input,
                )
            )

    def finish(self) -> list[TracedRecord]:
        """Everything is processed."""
        self.end()
        self.close()
        return self._seen


def origin_of(key: bytes | None, seen: Sequence[TracedRecord]) -> tuple[str, int, int] | None:
    """The input behind a row of this key, among what a ``LeftOut`` and the place of a row have found: the first possible
    one of that key, else the first possible one, else that of the place."""
    possible = [s for s in seen if s.seq is None]
    chosen = [*(s for s in possible if s.key == key), *possible, *seen]
    return chosen[0].input if chosen else None


def departure(
    live: Sequence[tuple[bytes | None, int | None]], made: Sequence[TracedRecord]
) -> tuple[str, int, int] | None:
    """The input record at which the stream diverged from the batch for one key.

    ``live``: what the stream wrote for the key, as (value, timestamp; ``None``: not compared), in order: some of the
    updates, because commits show only the last one. ``made``: every update. The result is the record after the last
    update that both have, if the batch made one; else the record of that last update.
    """
    at = 0
    last = -1
    for value, timestamp_ms in live:
        found = next(
            (
                i
                for i in range(at, len(made))
                if made[i].value == value and timestamp_ms in (None, made[i].timestamp_ms)
            ),
            None,
        )
        if found is None:
            break
        at, last = found + 1, found
    if last + 1 < len(made):
        return made[last + 1].input
    return made[last].input if made else None
