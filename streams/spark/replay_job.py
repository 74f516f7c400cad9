"""Replay: the same topology as a Spark batch over a range of the log.

Each task's records are put into the order in which the live task took them (``replay_rows``), and the task itself, the
very code of the worker, runs over them in an executor (``replay_task``). Repartition topics are read as they were really
written, so every sub-topology is exact on its own; with ``recompute`` they are made again, in a deterministic order that
Kafka could have produced, and what follows is the same only as far as order does not matter.

Outputs and stores become Parquet files, and stores that end at a commit also snapshots. All of it is published by one
atomic step of the driver; attempts that failed, were repeated or were killed leave files that nothing names.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import journal_topic
from penstock.state.snapshots.repository import SnapshotRepository, new_attempt
from penstock.streams.runtime.topic_setup import needs_journal
from penstock.streams.spark import journals
from penstock.streams.spark.cluster import Cluster, Connection, open_cluster
from penstock.streams.spark.compact_executor import CompactTarget
from penstock.streams.spark.failures import translated
from penstock.streams.spark.journals import GivenJournals, JournalFiles, write_journals
from penstock.streams.spark.places import absolute
from penstock.streams.spark.progress import Say, watched
from penstock.streams.spark.published import (
    SNAPSHOTS,
    InputRange,
    OutputFile,
    Replay,
    TaskReport,
    check_files,
    pin_replay,
    prune_replays,
    publish_replay,
)
from penstock.streams.spark.read import RECORD_SCHEMA, KafkaSource, read_ranges
from penstock.streams.spark.replay_plan import (
    START,
    ReplayPlan,
    To,
    journal_bounds,
    plan_replay,
    recompute_levels,
    snapshot_targets,
)
from penstock.streams.spark.replay_rows import END_OF_TASK, ORDER, ORDERED_SCHEMA, Ordering, placed_rows
from penstock.streams.spark.replay_task import REPORT_SCHEMA, ReplayJob, run_tasks
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.shipping import ShippedTopology, TopologyRef, ship
from penstock.streams.spark.slots import spread
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.topology_loading import load_topology
from penstock.topologies.graph.topology import Subtopology

KEEP = 3


@dataclasses.dataclass(frozen=True)
class ReplayResult:
    """A published replay. ``output`` is where it lies."""

    replay: Replay
    output: str
    seconds: float


def replay(
    topology: TopologyRef,
    *,
    application_id: str,
    connection: Connection,
    output: str,
    from_: str = START,
    to: To = "committed",
    repository: str | None = None,
    recompute: bool = False,
    options: TaskOptions | None = None,
    exactly_once: bool = True,
    keep: int = KEEP,
    pin: bool = False,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> ReplayResult:
    """Run the topology over ``[from_, to)`` of the log into files under ``output``, a folder or URL that driver and
    executors share.

    ``from_``: ``start``, where the application began to read each input, or ``savepoint:<name>`` (or ``latest``) of the
    ``repository``. ``to``: ``committed``, what the application has done; ``end``, the inputs' ends; or offsets.
    ``options`` must have the policies of the live run. ``exactly_once``: the live run's guarantee; without it the stores'
    changelog offsets mean nothing here, and no snapshots are written. ``keep``: how many replays stay in ``output``, beside
    the pinned ones; ``pin``: this one stays until it is unpinned. ``progress`` takes a line every few seconds.

    Raises ``SettingsError`` and ``IncompatibleError`` for a range that cannot be exact, ``ProcessingError`` where the
    live task would stop, ``EnvironmentFault`` when records vanish meanwhile or Spark fails. Nothing is published then.
    """
    began = time.monotonic()
    output, repository = absolute(output), absolute(repository)
    shipped = ship(topology)
    with open_cluster(connection, application_id) as cluster:
        plan = plan_replay(
            load_topology(topology),
            application_id,
            cluster,
            from_=from_,
            to=to,
            repository=repository,
            recompute=recompute,
        )
        snapshots = snapshot_targets(plan, cluster, _now_ms()) if exactly_once else {}
        ranges = journal_ranges(plan, cluster)
    with spark_session(session) as spark:
        source = connection.source()
        job = make_job(plan, shipped, output, options or TaskOptions(), snapshots, repository)
        job = with_journals(spark, source, plan, job, ranges)
        with watched(spark, "the replay", progress, records_of(plan)):
            done = run_replay(spark, source, plan, job)
    publish(output, done)
    if pin:
        pin_replay(output, done.run)
    prune_replays(output, keep=keep, now_ms=_now_ms())
    return ReplayResult(done, output, time.monotonic() - began)


def records_of(plan: ReplayPlan) -> int:
    """How many records the plan reads at most."""
    return sum(stop - start for start, stop in plan.ranges.values())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def publish(output: str, done: Replay) -> None:
    """Make the snapshots visible in their repository, then the replay. Raises as ``publish_replay``."""
    check_files(output, done)
    snapshots = SnapshotRepository(f"{output}/{SNAPSHOTS}")
    for task in done.tasks:
        for store in task.stores:
            if store.snapshot is not None:
                snapshots.publish(store.snapshot)
    publish_replay(output, done)


def run_replay(
    spark: SparkSession,
    source: KafkaSource,
    plan: ReplayPlan,
    job: ReplayJob,
) -> Replay:
    """Run the plan; its files are written, and nothing is published."""
    reports: list[TaskReport] = []
    levels = recompute_levels(plan.topology) if plan.recomputed else [list(plan.topology.subtopologies)]
    with translated("the replay"):
        for level in levels:
            rows = ordered_rows(spark, source, plan, job, level, reports)
            reports += collect_reports(rows.mapInArrow(partial(run_tasks, job), REPORT_SCHEMA))
    return Replay(
        run=job.run,
        application_id=plan.application_id,
        topology=plan.topology.name,
        started_from=plan.started_from,
        recomputed=plan.recomputed,
        inputs=tuple(InputRange(tp.topic, tp.partition, *r) for tp, r in sorted(plan.ranges.items())),
        tasks=tuple(sorted(reports, key=lambda r: (r.subtopology, r.task))),
        cautions=plan.cautions,
    )


def make_job(
    plan: ReplayPlan,
    shipped: ShippedTopology,
    output: str,
    options: TaskOptions,
    snapshots: Mapping[tuple[TaskId, str], CompactTarget],
    repository: str | None,
) -> ReplayJob:
    """What the executors need, under a run name of its own; without journals."""
    return ReplayJob(
        topology=shipped,
        application_id=plan.application_id,
        options=options,
        partition_counts=plan.counts,
        starts=plan.starts,
        journals=GivenJournals(),
        output=output,
        run=new_attempt(_now_ms()),
        bases=plan.bases,
        base_repository=repository,
        snapshots=snapshots,
        snapshot_repository=f"{output}/{SNAPSHOTS}",
    )


def collect_reports(frame: DataFrame) -> list[TaskReport]:
    """What the tasks of a job reported: one small row per task."""
    return [msgspec.json.decode(r["report"], type=TaskReport) for r in frame.collect()]


# -- rows --------------------------------------------------------------------------------------------------------


def ordered_rows(
    spark: SparkSession,
    source: KafkaSource,
    plan: ReplayPlan,
    job: ReplayJob,
    level: Sequence[Subtopology],
    reports: Sequence[TaskReport],
    only: Sequence[TaskId] | None = None,
) -> DataFrame:
    """Each task's input in its order, tasks whole in a Spark partition. ``only``: of these tasks."""
    tasks = [t for t in plan.tasks if t.subtopology in {s.number for s in level} and (only is None or t in only)]
    topics = {t for s in level for t in plan.topics(s)}
    partitions = {(t.subtopology, t.partition) for t in tasks}
    readers = {t: s.number for s in level for t in plan.topics(s)}
    ranges = {
        tp: r for tp, r in plan.ranges.items() if tp.topic in topics and (readers[tp.topic], tp.partition) in partitions
    }
    ordering = Ordering(
        topology=job.topology,
        application_id=plan.application_id,
        policies=job.options.policies,
        subtopologies=readers,
        journals=job.journals,
        partition_times_ms={
            TopicPartition(topic, task.partition): m.partition_time_ms
            for task in tasks
            for topic, (_, m) in plan.starts[task].items()
        },
        began_ms={
            TopicPartition(topic, task.partition): m.began_ms
            for task in tasks
            for topic, (_, m) in plan.starts[task].items()
        },
    )
    placed = read_ranges(spark, source, ranges).mapInArrow(partial(placed_rows, ordering), ORDERED_SCHEMA)
    if plan.recomputed:
        made = recomputed_rows(spark, job.output, [f for r in reports for f in r.outputs if f.topic in topics])
        if made is not None:
            placed = placed.unionByName(made.mapInArrow(partial(placed_rows, ordering), ORDERED_SCHEMA))
    marks = spark.createDataFrame(
        [(*t, END_OF_TASK[0], 0, 0, END_OF_TASK[1], t.partition, 0, 0, None, None, None) for t in tasks], ORDERED_SCHEMA
    )
    # Tasks of the level have numbers in a row; of the others there are no rows.
    counts = {s.number: sum(t.subtopology == s.number for t in plan.tasks) for s in plan.topology.subtopologies}
    sizes: Counter[TaskId] = Counter()
    for tp, (start, stop) in ranges.items():
        sizes[TaskId(readers[tp.topic], tp.partition)] += stop - start
    number = F.element_at(numbers_of(tasks, counts), F.col("subtopology") + 1)
    work = F.element_at(number, F.col("task") + 1)
    return spread(placed.unionByName(marks), work, [sizes[t] for t in tasks]).sortWithinPartitions(*ORDER)


def numbers_of(tasks: Sequence[TaskId], counts: Mapping[int, int]) -> Column:
    """Each task's place in ``tasks``, by sub-topology and partition; -1 for those that are not in it."""
    places = {task: i for i, task in enumerate(tasks)}
    return F.array(
        *[
            F.array(*[F.lit(places.get(TaskId(sub, p), -1)) for p in range(counts[sub])])
            for sub in range(max(counts) + 1)
        ]
    )


def recomputed_rows(spark: SparkSession, output: str, files: Sequence[OutputFile]) -> DataFrame | None:
    """What earlier sub-topologies sent to repartition topics, as if it had been read: by partition, merged by the
    running maximum of each sender's timestamps, then sender, then the sender's own order. Offsets count from 0."""
    if not files:
        return None
    by_topic: dict[str, list[str]] = {}
    for file in files:
        by_topic.setdefault(file.topic, []).append(f"{output}/{file.path}")
    parts = [spark.read.parquet(*paths).withColumn("topic", F.lit(topic)) for topic, paths in sorted(by_topic.items())]
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    within = Window.partitionBy("topic", "partition").orderBy("running_max_ms", "subtopology", "task", "seq")
    return (
        rows.withColumn("offset", (F.row_number().over(within) - 1).cast("long"))
        .select(*[f.name for f in RECORD_SCHEMA.fields])
        .repartition("topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )


# -- the journal -------------------------------------------------------------------------------------------------


def journal_ranges(plan: ReplayPlan, cluster: Cluster) -> dict[TopicPartition, tuple[int, int]]:
    """The journal partitions of the plan's tasks, whole. Raises ``IncompatibleError`` when their begin is gone."""
    out: dict[TopicPartition, tuple[int, int]] = {}
    for sub in plan.topology.subtopologies:
        topic = journal_topic(plan.application_id, sub.number)
        if not needs_journal(plan.topology, sub) or topic not in cluster.partition_counts([topic]):
            continue
        wanted = [TopicPartition(topic, t.partition) for t in plan.tasks if t.subtopology == sub.number]
        for tp, (begin, end) in cluster.ends(wanted).items():
            if begin > 0 and plan.started_from == START:
                raise IncompatibleError(
                    f"{tp.topic} partition {tp.partition} begins at offset {begin}: the order of the live run is not known "
                    "from its first record on. Begin at a savepoint, and keep the journal longer (retention.ms)"
                )
            out[tp] = (begin, end)
    return out


def with_journals(
    spark: SparkSession,
    source: KafkaSource,
    plan: ReplayPlan,
    job: ReplayJob,
    ranges: Mapping[TopicPartition, tuple[int, int]],
) -> ReplayJob:
    """The job with the journal of each task within the replay. With ``recompute`` it is of no use: it speaks of other
    offsets."""
    if plan.recomputed or not any(a < b for a, b in ranges.values()):
        return job
    subs = {journal_topic(plan.application_id, s.number): s.number for s in plan.topology.subtopologies}
    bounds = {tp: journal_bounds(plan, TaskId(subs[tp.topic], tp.partition)) for tp in ranges}
    with translated("reading the journal"):
        found = (
            read_ranges(spark, source, ranges)
            .mapInArrow(partial(write_journals, job.output, job.run, bounds), journals.REPORT_SCHEMA)
            .collect()
        )
    paths = {TaskId(r["subtopology"], r["task"]): r["path"] for r in found}
    return dataclasses.replace(job, journals=JournalFiles(job.output, paths))
