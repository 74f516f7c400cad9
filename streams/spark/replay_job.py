"""Replay: the same topology as a Spark batch over a range of the log.

Each task, the very code of the worker, runs in an executor (``replay_task``), which reads the task's inputs and puts their
records into the order in which the live task took them (``task_reading``). Repartition topics are read as they were really
written, so every sub-topology is exact on its own; with ``recompute`` they are computed again, in a deterministic order that
Kafka could have produced, which a shuffle and a sort make (``replay_rows``), and what follows is the same only as far as
order does not matter. Tasks without state are processed in pieces (``stateless_pieces``).

Outputs and stores become Parquet files, and stores that end at a commit also snapshots. All of it is published by one
atomic step of the driver; attempts that failed, were repeated or were killed leave files that nothing names.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch import journals
from penstock.streams.batch.cluster import ClusterAddress, now_ms, open_cluster
from penstock.streams.batch.journals import JournalFiles, write_journals
from penstock.streams.batch.places import absolute
from penstock.streams.batch.published import (
    OutputFile,
    Replay,
    TaskReport,
    pin_replay,
    prune_replays,
)
from penstock.streams.batch.replay_plan import (
    START,
    ReplayPlan,
    To,
    plan_replay,
    snapshot_targets,
)
from penstock.streams.batch.replay_rows import ORDER, ORDERED_SCHEMA, placed_rows
from penstock.streams.batch.replay_run import (
    KEEP,
    ReplayResult,
    TaskRead,
    TaskWork,
    bounds_by_partition,
    journal_ranges,
    levels_of,
    make_job,
    publish,
    records_of,
    replay_of,
    task_work,
)
from penstock.streams.batch.replay_task import REPORT_SCHEMA, ReplayJob, run_task, run_tasks
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.batch.stateless_pieces import in_pieces, joined, may_be_cut
from penstock.streams.spark.arrow import mapped
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.executor import executor_work
from penstock.streams.spark.failures import translated
from penstock.streams.spark.output_rows import output_rows
from penstock.streams.spark.progress import Count, Say, watched
from penstock.streams.spark.read import RECORD_SCHEMA, KafkaSource, read_ranges
from penstock.streams.spark.report.record import note_ranges, note_tasks, phase
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.slots import spread
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.topology_loading import load_topology


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
    changelog offsets mean nothing here, and no snapshots are written. ``keep``: how many replays stay in ``output``, besides
    the pinned ones; ``pin``: keep this one until it is unpinned. ``progress`` takes a line every few seconds.

    Raises ``SettingsError`` and ``IncompatibleError`` for a range that cannot be exact, ``ProcessingError`` where the
    live task would stop, ``EnvironmentFault`` when records vanish meanwhile or Spark fails. Nothing is published then.
    """
    began = time.monotonic()
    output, repository = absolute(output), absolute(repository)
    shipped = ship(topology)
    with phase("plan"), open_cluster(connection, application_id) as cluster:
        plan = plan_replay(
            load_topology(topology),
            application_id,
            cluster,
            from_=from_,
            to=to,
            repository=repository,
            recompute=recompute,
        )
        snapshots = snapshot_targets(plan, cluster, now_ms()) if exactly_once else {}
        ranges = journal_ranges(plan, cluster)
    with spark_session(session) as spark:
        source = connection.source()
        job = make_job(plan, shipped, output, options or TaskOptions(), snapshots, repository)
        job = with_journals(spark, source, plan, job, ranges)
        with watched(spark, "the replay", progress, records_of(plan)) as count:
            done = run_replay(spark, connection, plan, job, count=count)
    with phase("publication"):
        publish(output, done)
        if pin:
            pin_replay(output, done.run)
        prune_replays(output, keep=keep, now_ms=now_ms())
    return ReplayResult(done, output, time.monotonic() - began)


def run_replay(
    spark: SparkSession,
    connection: Connection,
    plan: ReplayPlan,
    job: ReplayJob,
    only: Collection[TaskId] | None = None,
    count: Count | None = None,
) -> Replay:
    """Run the plan; its files are written, and nothing is published. ``only``: these tasks. ``count``: as ``watched`` gives
    it."""
    reports: list[TaskReport] = []
    with translated("the replay"):
        for depth, level in enumerate(levels_of(plan)):
            work = task_work(plan, job, level, only)
            if depth > 0:
                rows = ordered_rows(spark, connection.source(), plan, job, work, reports)
                reports += collect_reports(mapped(rows, partial(run_tasks, job), REPORT_SCHEMA))
            else:
                reports += read_and_run(spark, connection, plan, job, work, count)
    note_ranges(plan.ranges)
    note_tasks(reports)
    return replay_of(plan, job, reports)


def read_and_run(
    spark: SparkSession,
    connection: Connection,
    plan: ReplayPlan,
    job: ReplayJob,
    work: TaskWork,
    count: Count | None,
) -> list[TaskReport]:
    """Run tasks whose inputs are all in the log: each in a Spark task that reads them, without a shuffle, or in several."""
    subs = [plan.topology.subtopologies[number] for number in {task.subtopology for task in work.tasks}]
    policies = job.options.policies
    cut = {s.number for s in subs if may_be_cut(plan.topology, s, policies, combining=plan.recomputed)}
    reads = in_pieces(work.reads(), lambda task: task.subtopology in cut, spark.sparkContext.defaultParallelism)
    address = ClusterAddress(connection.bootstrap_servers, dict(connection.client))
    run = partial(_run_and_count, partial(run_task, job, work.ordering, address), count)
    return joined(reads, spark.sparkContext.parallelize(reads, max(len(reads), 1)).map(run).collect())


def _run_and_count(run: Callable[..., TaskReport], count: Count | None, read: TaskRead) -> TaskReport:
    with executor_work():
        report = run(*read)
    if count is not None:
        count.add(report.records)
    return report


def collect_reports(frame: DataFrame) -> list[TaskReport]:
    """The reports of a job's tasks: one small row per task."""
    return [msgspec.json.decode(r["report"], type=TaskReport) for r in frame.collect()]


# -- rows --------------------------------------------------------------------------------------------------------


def ordered_rows(
    spark: SparkSession,
    source: KafkaSource,
    plan: ReplayPlan,
    job: ReplayJob,
    work: TaskWork,
    reports: Sequence[TaskReport],
) -> DataFrame:
    """Each task's input in its order, tasks whole in a Spark partition."""
    place = partial(placed_rows, work.ordering)
    placed = mapped(read_ranges(spark, source, work.ranges), place, ORDERED_SCHEMA)
    if plan.recomputed:
        made = recomputed_rows(spark, job.output, [f for r in reports for f in r.outputs if f.topic in work.topics])
        if made is not None:
            placed = placed.unionByName(mapped(made, place, ORDERED_SCHEMA))
    ends = spark.createDataFrame(work.end_rows, from_arrow_schema(ORDERED_SCHEMA))
    # Tasks of the level have numbers in a row; of the others there are no rows.
    counts = {s.number: sum(t.subtopology == s.number for t in plan.tasks) for s in plan.topology.subtopologies}
    number = F.element_at(numbers_of(work.tasks, counts), F.col("subtopology") + 1)
    piece = F.element_at(number, F.col("task") + 1)
    return spread(placed.unionByName(ends), piece, work.sizes).sortWithinPartitions(*ORDER)


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
    """Records that earlier sub-topologies sent to repartition topics, as if they had been read: by partition, merged by the
    running maximum of each sender's timestamps, then sender, then the sender's own order. Offsets count from 0."""
    if not files:
        return None
    within = Window.partitionBy("topic", "partition").orderBy("running_max_ms", "subtopology", "task", "seq")
    return (
        output_rows(spark, output, files)
        .withColumn("offset", (F.row_number().over(within) - 1).cast("long"))
        .select(*[f.name for f in RECORD_SCHEMA.fields])
        .repartition("topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )


# -- the journal -------------------------------------------------------------------------------------------------


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
    bounds = bounds_by_partition(plan, ranges)
    with translated("reading the journal"):
        write = partial(write_journals, job.output, job.run, bounds)
        found = mapped(read_ranges(spark, source, ranges), write, journals.REPORT_SCHEMA).collect()
    paths = {TaskId(r["subtopology"], r["task"]): r["path"] for r in found}
    return dataclasses.replace(job, journals=JournalFiles(job.output, paths))
