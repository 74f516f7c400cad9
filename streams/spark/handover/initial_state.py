"""DataFrames as the initial state of an application's stores, and where it begins to read: its workers go on from there.

Each task's state and positions are one Kafka transaction of an executor, so there are both or neither. Until all tasks have
theirs, workers and other jobs are refused, so an application never runs with a part of it: a job that failed or was killed
is run again, with the same frames, and writes what is missing. Last, snapshots of the stores are published, from which
workers take the state, and a savepoint, from which a replay begins.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial, reduce

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.cluster import ClusterAddress, open_cluster
from penstock.streams.batch.handover.initial_state import (
    REPORT_SCHEMA,
    ROWS_SCHEMA,
    StateJob,
    StateReport,
    write_state,
)
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.batch.points import Point, offsets_at
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.runtime.fixed_fence import BOOTSTRAPPED, UNFINISHED, Marks
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.spark.arrow import mapped
from penstock.streams.spark.failures import translated
from penstock.streams.spark.frames.request import store_of
from penstock.streams.spark.frames.state_encoding import StateEncoding, check_columns, encode_state
from penstock.streams.spark.handover.catch_up import save
from penstock.streams.spark.handover.job import Handover
from penstock.streams.spark.session import prepare
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.slots import spread
from penstock.streams.task.bootstrap_inputs import bootstrap_topics
from penstock.streams.worker.settings import WorkerSettings


@dataclasses.dataclass(frozen=True)
class InitialState:
    """``rows``: written by this run. ``skipped``: the partitions that an earlier run had committed. ``savepoint``: its
    name; ``no_savepoint``: why there is none."""

    rows: int
    skipped: tuple[int, ...]
    savepoint: str | None
    no_savepoint: str | None


def write_initial_state(
    topology: TopologyRef,
    settings: WorkerSettings,
    frames: Mapping[str, DataFrame],
    *,
    begin: Point,
    repository: str | None = None,
) -> InitialState:
    """Write the frames as the state of these stores, by name; the others begin empty. Rows have ``key``, ``value``, perhaps
    ``timestamp``, and ``window_start`` and ``window_end`` where the store has windows; each key (and window) once.
    ``begin``: where the application begins in its inputs, up to which the frames say what was; what fills a global table is
    read from its start. ``settings``: of its workers. ``repository``: of the snapshots; without one, workers read the
    changelogs.

    Raises ``SettingsError`` for an application that has committed positions or records in a changelog, or while workers
    hold its tasks; for stores and columns that do not fit, and keys that come twice; ``SerdeError`` for rows that do not fit
    the serdes; ``EnvironmentFault`` when Spark or the brokers fail: then run it again with the same frames and ``begin``.
    """
    handover = Handover(topology, settings, repository=repository or settings.snapshots)
    built = handover.topology()
    if not frames:
        raise SettingsError("no frame is given; name at least one store with its frame")
    for name, frame in frames.items():
        check_columns(store_of(built, name), frame.columns)
    layout = handover.prepare()
    starts = _starts(handover, layout, begin)
    inputs = handover.inputs(layout)
    guard = partial(_refuse_live, handover, layout)
    with kept_away(settings, inputs, bootstraps=guard, stop_marks=(UNFINISHED,)) as held:
        held.mark(UNFINISHED)
        job = StateJob(
            topology=ship(topology),
            application_id=handover.application_id,
            member=held.member,
            address=ClusterAddress(settings.bootstrap_servers, dict(settings.common)),
            stores=tuple(frames),
            starts=starts,
            repository=handover.repository,
            created_ms=time.time_ns() // 1_000_000,
        )
        rows = _rows(frames, handover, layout, job)
        try:
            with translated("the initial state"):
                found = mapped(rows, partial(write_state, job), REPORT_SCHEMA).collect()
        except BaseException:
            # Spark kills the tasks in the middle of their transactions, also when the user gives up, and readers of the
            # changelogs and of the positions would wait for them.
            with suppress(PenstockError):
                held.end_transactions()
            raise
        reports = [msgspec.json.decode(r["report"], type=StateReport) for r in found]
        assert len(reports) == max(layout.tasks), (
            f"Spark gave {len(reports)} reports for {max(layout.tasks)} partitions"
        )
        if handover.repository is not None:
            snapshots = open_repository(handover.repository)
            for manifest in (m for report in reports for m in report.snapshots):
                snapshots.publish(manifest)
        savepoint, why_not = save(handover)
        held.mark(BOOTSTRAPPED)
    written = sum(report.rows for report in reports if report.written)
    return InitialState(written, tuple(sorted(r.partition for r in reports if not r.written)), savepoint, why_not)


def _starts(handover: Handover, layout: TopicLayout, begin: Point) -> dict[TopicPartition, int]:
    """Where each input begins. Raises ``SettingsError`` if ``begin`` does not say it."""
    topology, inputs = handover.topology(), handover.external_inputs(layout)
    awaited = bootstrap_topics(topology)
    # What fills a global table is read whole: the copies of its rows are in no store.
    whole = {
        topology.source(name).topic
        for sub in topology.subtopologies
        if any(topology.sink(sink).topic in awaited for sink in sub.sinks)
        for name in sub.sources
    }
    with open_cluster(handover.connection, handover.application_id) as cluster:
        ends = cluster.ends(handover.inputs(layout))
        asked = [tp for tp in inputs if tp.topic not in whole]
        found = offsets_at(begin, asked, cluster, handover.connection, handover.application_id, handover.repository)
    if lacking := [tp for tp in asked if tp not in found]:
        raise SettingsError(f"begin={begin!r} says nothing of {lacking[0]}; give end, a time, or offsets of all inputs")
    starts = {tp: found.get(tp, first) for tp, (first, _) in ends.items()}
    for tp, offset in starts.items():
        if not ends[tp][0] <= offset <= ends[tp][1]:
            raise SettingsError(f"begin={offset} of {tp} is not there: it has {ends[tp][0]} to {ends[tp][1]}")
    return starts


def _refuse_live(handover: Handover, layout: TopicLayout, marks: Marks) -> None:
    """Raises ``SettingsError`` if anything but an unfinished run of this has committed positions."""
    if any(mark is not None and mark.metadata == UNFINISHED for mark in marks.values()):
        return
    with open_cluster(handover.connection, handover.application_id) as cluster:
        committed = cluster.committed(handover.inputs(layout))
    if committed:
        tp, found = min(committed.items())
        raise SettingsError(
            f"{handover.application_id} stands at offset {found.offset} of {tp.topic} [{tp.partition}], so it has run, or "
            "has its initial state; give a new application id"
        )


def _rows(frames: Mapping[str, DataFrame], handover: Handover, layout: TopicLayout, job: StateJob) -> DataFrame:
    """The rows of all frames, encoded, each partition in a Spark partition of its own."""
    topology = handover.topology()
    tasks = {spec.name: layout.tasks[sub.number] for sub in topology.subtopologies for spec in sub.stores}
    partitions = max(layout.tasks)
    spark = prepare(next(iter(frames.values())).sparkSession)
    seen = spark.createDataFrame([(p, 0, 0, None, None) for p in range(partitions)], from_arrow_schema(ROWS_SCHEMA))
    encoded = [
        mapped(
            frame, partial(encode_state, StateEncoding(job.topology, name, i, tasks[name], job.created_ms)), ROWS_SCHEMA
        )
        for i, (name, frame) in enumerate(frames.items())
    ]
    return spread(reduce(DataFrame.unionByName, [*encoded, seen]), F.col("place"), [0] * partitions)
