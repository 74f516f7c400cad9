"""The parts of a page that every job has: its plan by sub-topology and task, its inputs, its time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from penstock.state.snapshots.manifest import Manifest
from penstock.streams.spark.report.page import Section, Table, TimeSpan, duration_text, size_text
from penstock.streams.spark.report.record import JobRecord, Phase, StageRecord
from penstock.topologies.graph.topology import Subtopology, Topology

_NAMES_MAX = 12
Topologies = Mapping[str, tuple[Topology, str]]
"""The topology of each phase, with its application id; under the empty name that of all others."""


def tiles(record: JobRecord, rows_out: int | None) -> list[tuple[str, str]]:
    """The figures at the top. ``rows_out``: what the job wrote, in its own words."""
    stages = record.stages
    slowest = max((s for s in stages if s.skew is not None), key=_weight, default=None)
    out = [
        ("took", duration_text(record.seconds() * 1000)),
        _taken_in(record),
        ("rows out", "–" if rows_out is None else f"{rows_out:,}"),
    ]
    if all(phase.stages for phase in record.phases if phase.pieces):  # a stream's micro-batches note none: ever more
        out.append(("shuffled", size_text(sum(s.shuffled_bytes for s in stages))))
        out.append(("Spark tasks", f"{sum(s.tasks for s in stages):,}"))
    if slowest is not None and slowest.skew is not None:
        out.append(("slowest to median task", f"{slowest.skew:.1f} ×"))
    if read := sum(s.read_bytes for s in stages):  # Spark's reader of Kafka does not count bytes
        out.append(("read", size_text(read)))
    if failed := sum(s.failed for s in stages):
        out.append(("failed attempts", f"{failed:,}"))
    return out


def _taken_in(record: JobRecord) -> tuple[str, str]:
    """The records that tasks took, if tasks ran; else the length of the ranges that were read."""
    done = [t.records for phase in record.phases for t in phase.tasks]
    done += [p.records for phase in record.phases for p in phase.pieces]
    if done:
        return "records in", f"{sum(done):,}"
    return "offsets read", f"{sum(b - a for phase in record.phases for a, b in phase.ranges.values()):,}"


def _weight(stage: StageRecord) -> int:
    """The stage whose skew matters is the one whose slowest task takes longest."""
    return 0 if stage.run_ms is None else stage.run_ms[2]


def time_section(record: JobRecord) -> Section:
    """The phases and their stages, as a time line and as figures."""
    spans: list[TimeSpan] = []
    for phase in record.phases:
        spans.append(TimeSpan(phase.name, phase.began_ms - record.began_ms, phase.ended_ms - record.began_ms))
        spans += [
            TimeSpan(s.name, max(s.began_ms - record.began_ms, 0), s.ended_ms - record.began_ms, _stage_note(s), True)
            for s in phase.stages
        ]
    return Section("Time", lines=[record.spark] if record.spark else [], spans=spans)


def _stage_note(stage: StageRecord) -> str:
    parts = [f"{stage.tasks:,} Spark tasks"]
    if stage.failed:
        parts.append(f"failed attempts: {stage.failed:,}")
    if stage.read_bytes:
        parts.append(f"{size_text(stage.read_bytes)} read")
    if stage.shuffled_bytes:
        parts.append(f"{size_text(stage.shuffled_bytes)} shuffled")
    if stage.spilled_bytes:
        parts.append(f"{size_text(stage.spilled_bytes)} spilled to disk")
    if stage.run_ms is not None and stage.tasks > 1:
        parts.append("fastest, median and slowest task " + ", ".join(map(duration_text, stage.run_ms)))
    return " · ".join(parts)


def plan_sections(record: JobRecord, topologies: Topologies, written: Sequence[Manifest] = ()) -> Iterator[Section]:
    """A section for each sub-topology that has done something, with its tasks. ``written``: a compaction's snapshots."""
    for phase in record.phases:
        topology, application_id = topologies.get(phase.name, topologies[""])
        prefix = f"{phase.name}: " if phase.name in topologies else ""
        for sub in topology.subtopologies:
            table = _tasks(sub, phase) or _pieces(sub, phase) or _snapshots(sub, phase, written)
            if table is not None:
                facts = list(_facts(topology, sub, application_id))
                spread = _spread(table)
                yield Section(
                    f"{prefix}sub-topology {sub.number}" if prefix else f"Sub-topology {sub.number}",
                    facts=facts,
                    tables=[table],
                    lines=[spread] if spread else [],
                )


def _facts(topology: Topology, sub: Subtopology, application_id: str) -> Iterator[tuple[str, str]]:
    sinks = [topology.sink(name) for name in sub.sinks]
    for label, names in (
        ("reads", [topology.source(n).topic_name(application_id) for n in sub.sources]),
        ("stores", [s.name for s in sub.stores]),
        ("writes", [t for s in sinks for t in (s.topics or (s.topic_name(application_id),))]),
    ):
        if names:
            shown = ", ".join(names[:_NAMES_MAX])
            yield label, shown if len(names) <= _NAMES_MAX else f"{shown} and {len(names) - _NAMES_MAX} more"


def _tasks(sub: Subtopology, phase: Phase) -> Table | None:
    mine = sorted((t for t in phase.tasks if t.subtopology == sub.number), key=lambda t: t.task)
    rows = [
        (
            f"{t.subtopology}_{t.task}",
            t.records,
            sum(o.rows for o in t.outputs),
            sum(s.rows for s in t.stores),
            sum(t.dropped.values()),
            sum(t.failures.values()),
        )
        for t in mine
    ]
    columns = ("task", "records in", "rows out", "store entries", "dropped", "bad records")
    return Table(columns, rows, numbers=range(1, 6), bar=1) if rows else None


def _pieces(sub: Subtopology, phase: Phase) -> Table | None:
    mine = sorted((p for p in phase.pieces if sub.number in p.piece.subtopologies), key=lambda p: p.piece.partition)
    rows = [
        (
            f"{sub.number}_{p.piece.partition}",
            p.records,
            sum(m.entries for m in p.snapshots),
            sum(m.size_bytes for m in p.snapshots),
        )
        for p in mine
    ]
    columns = ("task", "records in", "store entries", "snapshot bytes")
    return Table(columns, rows, numbers=range(1, 4), bar=1) if rows else None


def _snapshots(sub: Subtopology, phase: Phase, written: Sequence[Manifest]) -> Table | None:
    stores = {s.name for s in sub.stores}
    ranges = {(tp.topic, tp.partition): r for tp, r in phase.ranges.items()}
    found = [(m, ranges.get((m.topic, m.partition))) for m in written if m.store in stores]
    rows = [
        (m.store, f"{sub.number}_{m.partition}", r[0], r[1], r[1] - r[0], m.entries, m.size_bytes)
        for m, r in found
        if r is not None
    ]
    columns = ("store", "task", "from offset", "to offset", "offsets read", "entries", "bytes")
    return Table(columns, rows, numbers=range(2, 7), bar=4) if rows else None


def _spread(table: Table) -> str | None:
    """How evenly the work lies on the tasks."""
    if table.bar is None or len(table.rows) < 2:
        return None
    sizes = [int(row[table.bar]) for row in table.rows]
    median = statistics.median(sizes)
    return f"The largest task has {max(sizes) / median:.1f} times as much as the median." if median else None


def input_section(record: JobRecord) -> Section | None:
    """The ranges of the log that were read."""
    tables: list[Table] = []
    for phase in record.phases:
        rows = [(tp.topic, tp.partition, a, b, b - a) for tp, (a, b) in sorted(phase.ranges.items())]
        if rows:
            columns = ("topic", "partition", "from offset", "to offset", "offsets")
            tables.append(Table(columns, rows, numbers=range(1, 5), bar=4))
    return Section("Ranges of the log", tables=tables) if tables else None
