"""A task without state, replayed in pieces, so that more executors work at once than a topic has partitions.

What a stateless sub-topology makes of a record depends on this record alone, so its input may be cut at any offset. The
pieces' outputs follow each other as their inputs do: each file says which row of the task is its first (``first_seq``) and
what the highest timestamp before it was (``floor_ms``), which is known when all pieces are done.

Not cut: tasks with stores, with several inputs (their order is one), with anything that depends on time or on an outside
answer, and with a policy that measures timestamps against earlier ones.

A sub-topology that combines records before a repartition topic (``CombineSpec``) sends what it holds at each commit, so its
partial aggregates depend on where it was cut, and what their reader makes of them does not: merging is exact. It is cut
where the reader computes from what the pieces sent, and not where that is compared with what the stream sent.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec

from penstock.state.log import TaskId
from penstock.streams.batch.published import NO_FLOOR_MS, OutputFile, TaskReport
from penstock.streams.batch.replay_run import TaskRead
from penstock.streams.task.error_policies import Policies
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.aggregates.combine import CombineSpec
from penstock.topologies.operators.records.record_functions import MapRecordsSpec
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec
from penstock.topologies.operators.records.stateless import (
    BranchSpec,
    FilterSpec,
    FlatMapSpec,
    MapBatchSpec,
    MapSpec,
    MapValuesSpec,
    MergeSpec,
    PeekSpec,
    SelectKeySpec,
)

PIECE_RECORDS = 200_000
"""The least that a piece has: below it, beginning one costs more than its records."""
_PIECES_PER_CORE = 2
_STATELESS: tuple[type[OperatorSpec], ...] = (
    SourceSpec,
    SinkSpec,
    FilterSpec,
    MapValuesSpec,
    MapSpec,
    MapRecordsSpec,
    SelectKeySpec,
    FlatMapSpec,
    PeekSpec,
    BranchSpec,
    MergeSpec,
    MapBatchSpec,
)


def may_be_cut(topology: Topology, sub: Subtopology, policies: Policies, *, combining: bool = False) -> bool:
    """Whether the outputs of this sub-topology's tasks are the same if their input is processed in pieces. ``combining``:
    or partial aggregates of the same."""
    specs = [topology.operators[name] for name in sub.operators]
    allowed = (*_STATELESS, CombineSpec) if combining else _STATELESS
    if sub.stores or len(sub.sources) != 1 or any(type(spec) not in allowed for spec in specs):
        return False
    if any(isinstance(s, SourceSpec) and (s.packed or s.bootstrap) for s in specs):
        return False
    if any(spec.watermark is not None for spec in topology.operators.values() if isinstance(spec, SourceSpec)):
        return False  # tasks send their watermark, which follows from all records before, to the next ones
    (source,) = sub.sources
    return policies.of_source(topology.on_error.get(source)).timestamp == "fail"


def in_pieces(
    reads: Sequence[TaskRead], cut: Callable[[TaskId], bool], cores: int, piece_records: int = PIECE_RECORDS
) -> list[TaskRead]:
    """The work of these tasks for this number of cores. Those for which ``cut`` says so are in pieces, if there are too
    few tasks for the cores or one is much larger than the others. The largest first."""
    total = sum(_records(read) for read in reads)
    most = max(piece_records, -(-total // max(cores * _PIECES_PER_CORE, 1)))
    pieces: list[TaskRead] = []
    for task, ranges in reads:
        if len(ranges) != 1 or not cut(task):
            pieces.append((task, ranges))
            continue
        ((tp, (start, stop)),) = ranges.items()
        count = max((stop - start) // most, 1)
        bounds = [start + (stop - start) * i // count for i in range(count + 1)]
        pieces += [(task, {tp: (a, b)}) for a, b in itertools.pairwise(bounds)]
    return sorted(pieces, key=lambda read: -_records(read))


def _records(read: TaskRead) -> int:
    return sum(stop - start for start, stop in read[1].values())


def joined(reads: Sequence[TaskRead], reports: Sequence[TaskReport]) -> list[TaskReport]:
    """One report for each task. ``reports``: of these reads, in their order."""
    by_task: dict[TaskId, list[tuple[int, TaskReport]]] = defaultdict(list)
    for (task, ranges), report in zip(reads, reports, strict=True):
        by_task[task].append((min((start for start, _ in ranges.values()), default=0), report))
    return [_joined([report for _, report in sorted(parts, key=lambda p: p[0])]) for parts in by_task.values()]


def _joined(parts: Sequence[TaskReport]) -> TaskReport:
    if len(parts) == 1:
        return parts[0]
    rows: Counter[str] = Counter()
    floors: dict[str, int] = {}
    outputs: list[OutputFile] = []
    for part in parts:
        for file in part.outputs:
            floor = floors.get(file.topic, NO_FLOOR_MS)
            outputs.append(msgspec.structs.replace(file, first_seq=rows[file.topic], floor_ms=floor))
            rows[file.topic] += file.rows
            floors[file.topic] = max(floor, file.highest_ms)
    return msgspec.structs.replace(
        parts[0],
        records=sum(part.records for part in parts),
        outputs=tuple(outputs),
        dropped=dict(sum((Counter(part.dropped) for part in parts), Counter())),
        failures=dict(sum((Counter(part.failures) for part in parts), Counter())),
    )
