"""Replay's order: the place of every input record in its task.

Within one range between two journal entries, the feed of a live task takes records in the order of (running maximum
of the event time within the partition, topic, offset); range follows range. So sorting by (task, range, running
maximum, topic, offset) gives the live order, and the shuffle does that. The running maximum restarts with each range,
as the feed's does. It is computed from the task's own times, by the task's own functions: event time of the source,
refused timestamps replaced.

A task that gets consecutive pieces of that order, each to its end, takes them in that order again: only the topic of
a piece's first record can have a running maximum from before the piece, and its records with that maximum come first.
So a task needs memory for one Arrow batch, however far apart its inputs are in time. If the order were violated, the
task's feed would note a cut; the runner checks that it never does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.state.log import Headers, TaskId, TopicPartition
from penstock.streams.batch.row_runs import partition_runs
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.ports.chunk import Chunk, running_highest
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.event_time import with_event_times
from penstock.streams.task.journal import ClockFiring, Cut
from penstock.streams.task.timestamp_checks import check_timestamps
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import NO_TIME
from penstock.topologies.operators.records.source_sink import SourceSpec

_NEVER = -(1 << 62)
ORDER = ("subtopology", "task", "range", "rank", "running_max_ms", "topic", "offset")
"""The sort order of rows; the rank is the negative priority of the input. ``END_OF_TASK`` rows come last."""
END_OF_TASK = (1 << 62, "")
"""Range and topic of a row that only shows that the task exists."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ORDERED_SCHEMA = pa.schema(
    [
        ("subtopology", pa.int32()),
        ("task", pa.int32()),
        ("range", pa.int64()),
        ("rank", pa.int32()),
        ("running_max_ms", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)


class Ordered(Protocol):
    """Determines the order in which a task took its records."""

    def ordering(self, task: TaskId) -> Iterator[Cut | ClockFiring]:
        """The entries of its journal that do."""


@dataclasses.dataclass(frozen=True)
class Ordering:
    """The values on which places depend besides the records. ``subtopologies``: topic → the sub-topology that reads it.
    ``journals``: where each task's ranges end. ``partition_times_ms``: the partitions' stream times at the start, if
    any. ``began_ms``: the clock when their first records arrived (``CommitMetadata``)."""

    topology: ShippedTopology
    application_id: str
    policies: Policies
    subtopologies: Mapping[str, int]
    journals: Ordered
    partition_times_ms: Mapping[TopicPartition, int]
    began_ms: Mapping[TopicPartition, int] = dataclasses.field(default_factory=dict)


def chunk_of(batch: pa.RecordBatch, topic: str, partition: int) -> Chunk:
    """Rows of one topic partition as a chunk."""
    raw = batch.column("headers").to_pylist()
    headers = [to_headers(h) for h in raw] if any(raw) else None
    return Chunk(
        topic,
        partition,
        batch.column("offset").to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        batch.column("timestamp_ms").to_pylist(),
        headers,
    )


def to_headers(row: list[dict[str, Any]] | None) -> Headers:
    """Headers of a row."""
    return tuple((h["key"], h["value"]) for h in row) if row else ()


def placed_rows(ordering: Ordering, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add places to rows of ``RECORD_SCHEMA``, which are in offset order for each topic partition:
    ``ORDERED_SCHEMA``."""
    placers: dict[TopicPartition, Placer] = {}
    inputs = inputs_of(ordering, ordering.topology.load())
    for tp, part in partition_runs(batches):
        source, policies = inputs[tp.topic]
        placer = placers.get(tp) or placers.setdefault(tp, Placer(ordering, tp, policies))
        chunk = Chunk(
            tp.topic,
            tp.partition,
            part.column("offset").to_pylist(),
            [],
            [],
            part.column("timestamp_ms").to_pylist(),
        )
        if source.timestamp is not None:
            chunk, _ = with_event_times(chunk_of(part, *tp), source)
        ranges, running = placer.place(chunk)
        rows = part.num_rows
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([ordering.subtopologies[tp.topic]] * rows, pa.int32()),
                pa.array([tp.partition] * rows, pa.int32()),
                pa.array(ranges, pa.int64()),
                pa.array([-source.priority] * rows, pa.int32()),
                pa.array(running, pa.int64()),
                *(part.column(f.name).cast(f.type) for f in list(ORDERED_SCHEMA)[5:]),
            ],
            schema=ORDERED_SCHEMA,
        )


def inputs_of(ordering: Ordering, topology: Topology) -> dict[str, tuple[SourceSpec, Policies]]:
    """The source of each topic that the topology reads, and the policies for its records."""
    return {
        topic: (topology.source(name), ordering.policies.of_source(topology.on_error.get(name)))
        for topic, (_, name) in topology.source_topics(ordering.application_id).items()
    }


def cuts_of(ordering: Ordering, task: TaskId, topic: str) -> Ints:
    """The offsets of an input at which ranges between journal entries begin."""
    return np.array([entry.offsets[topic] for entry in ordering.journals.ordering(task)], np.int64)


class Placer:
    """The places of one topic partition, in offset order."""

    def __init__(self, ordering: Ordering, tp: TopicPartition, policies: Policies) -> None:
        self._tp = tp
        self._policies = policies
        self._time_ms = ordering.partition_times_ms.get(tp, NO_TIME)
        self._began_ms = ordering.began_ms.get(tp, NO_TIME)
        task = TaskId(ordering.subtopologies[tp.topic], tp.partition)
        self._cuts = cuts_of(ordering, task, tp.topic)
        self._range = 0
        self._running_max_ms = _NEVER
        self._last_offset = -1

    def place(self, chunk: Chunk) -> tuple[Ints, Ints]:
        """Range and running maximum of each record."""
        checked, self._time_ms, _ = check_timestamps(chunk, self._time_ms, self._policies, None, self._began_ms)
        offsets = _numbers(checked.offsets)
        if not len(offsets):
            return offsets, offsets
        assert offsets[0] > self._last_offset and (np.diff(offsets) > 0).all(), (
            f"{self._tp}: not every offset from {int(offsets[0])} on is above the one before, first {self._last_offset}"
        )
        ranges = np.searchsorted(self._cuts, offsets, "right").astype(np.int64)
        running = np.array(checked.times, np.int64)
        for number in np.unique(ranges).tolist():
            start, stop = np.searchsorted(ranges, [number, number + 1]).tolist()
            before = self._running_max_ms if number == self._range else _NEVER
            running[start:stop] = running_highest(running, start, stop, before)
        self._range, self._running_max_ms, self._last_offset = int(ranges[-1]), int(running[-1]), int(offsets[-1])
        return ranges, running


def _numbers(offsets: Sequence[int]) -> Ints:
    if isinstance(offsets, range):
        return np.arange(offsets.start, offsets.stop, offsets.step, dtype=np.int64)
    return np.asarray(offsets, np.int64)
