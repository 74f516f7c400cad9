"""Verify: compare what the stream did with a batch over the same range, the same journal and the same repartition
topics.

The range is what the application has committed. Outputs and repartition topics are compared record by record: in each
output partition that only one task writes, as a sequence; elsewhere as a sequence per key and partition, and all
together as a bag. From a savepoint on, only records after the offsets that the savepoint names are compared. If an
operator emits per commit, only the last record per key is compared, because commits decide which updates are seen.
Stores are compared by the last value per key of their changelogs up to the committed offset. Tables that read their
own topic have no stream output to compare.

Under at-least-once duplicates are possible, so only what is missing counts. Where something differs, the tasks concerned
run once more, one record at a time, to name the first input record after which stream and batch differ.

The range may end at a savepoint: then its snapshots are compared, and the outputs up to the offsets that it names, even
if the application goes on meanwhile. A sample is of whole partitions: tasks do not depend on each other, given the topics as
written.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from tempfile import TemporaryDirectory

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from penstock.state.log import TaskId
from penstock.state.recovery.changelog import from_changelog, to_changelog_columns
from penstock.state.stores.list_store import BEHIND_GROUP, SEQUENCE_BYTES
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, CompactTarget, to_entries
from penstock.streams.batch.places import absolute
from penstock.streams.batch.published import Replay, check_files, prune_replays
from penstock.streams.batch.replay_files import ANY_PARTITION
from penstock.streams.batch.replay_plan import START, ReplayPlan, plan_replay
from penstock.streams.batch.replay_run import KEEP, journal_ranges, make_job, publish, records_of, task_work
from penstock.streams.batch.replay_task import ReplayJob
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.batch.trace import (
    SIGHTING_SCHEMA,
    LeftOut,
    TracedRecord,
    Watch,
    departure,
    origin_of,
    trace_tasks,
)
from penstock.streams.batch.values_as_text import Tolerance
from penstock.streams.batch.verify_plan import (
    EVERYTHING,
    Comparison,
    Difference,
    InputRecord,
    Mode,
    Sample,
    Slack,
    VerifyPlan,
    VerifyResult,
    plan_verification,
)
from penstock.streams.spark import compare
from penstock.streams.spark.arrow import mapped
from penstock.streams.spark.compare import EXACT, RowDifference, Scrutiny
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.difference_table import Forms, texts, too_far, write_table
from penstock.streams.spark.failures import translated
from penstock.streams.spark.output_rows import output_rows
from penstock.streams.spark.progress import Say, watched
from penstock.streams.spark.read import HEADERS_TYPE, KafkaSource, read_ranges
from penstock.streams.spark.replay_job import ordered_rows, run_replay, with_journals
from penstock.streams.spark.report.record import phase
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.snapshot_frames import stored_entries
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.topology_loading import load_topology

Compare = Callable[[DataFrame, DataFrame, Slack, Scrutiny], list[RowDifference]]


def verify(
    topology: TopologyRef,
    *,
    application_id: str,
    connection: Connection,
    output: str | None = None,
    from_: str = START,
    to: str = "committed",
    repository: str | None = None,
    exactly_once: bool = True,
    options: TaskOptions | None = None,
    tolerance: Tolerance | None = None,
    sample: Sample = EVERYTHING,
    differences: str | None = None,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> VerifyResult:
    """Replay what the application has committed, and compare. ``output``: keep the replay there (``None``: a temporary
    folder, for a Spark on this machine). ``to``: ``committed``, or a savepoint, at whose cut everything is compared.
    ``tolerance``: of floating-point numbers. ``sample``: of some partitions only. ``differences``: a folder or URL for the
    differing rows, as Parquet: keys and both values as texts. The other arguments and the errors are those of ``replay``."""
    began = time.monotonic()
    output, repository = absolute(output), absolute(repository)
    shipped = ship(topology)
    with phase("plan"), open_cluster(connection, application_id) as cluster:
        plan = plan_replay(load_topology(topology), application_id, cluster, from_=from_, to=to, repository=repository)
        journals = journal_ranges(plan, cluster)
        facts = plan_verification(plan, cluster, exactly_once, int(time.time() * 1000), sample)
    with TemporaryDirectory(prefix="penstock-verify-") as folder, spark_session(session) as spark:
        source = connection.source()
        snapshots = facts.stores if output is not None and exactly_once else {}
        job = make_job(plan, shipped, output or folder, options or TaskOptions(), snapshots, repository)
        job = with_journals(spark, source, plan, job, journals)
        with watched(spark, "the replay", progress, records_of(plan)) as count:
            tasks = [t for t in plan.tasks if t.partition in sample]
            done = run_replay(spark, connection, plan, job, only=tasks, count=count)
        check_files(job.output, done)
        if output is not None and sample == EVERYTHING:
            publish(output, done)
            prune_replays(output, keep=KEEP, now_ms=int(time.time() * 1000))
        compared = sum(end - begin for begin, end in facts.outputs.values())
        with translated("the comparison"), watched(spark, "the comparison", progress, compared):
            forms = Forms(shipped, application_id, shipped, application_id)
            scrutiny = Scrutiny(partial(too_far, forms, tolerance) if tolerance else None, [], loss=facts.loss)
            run = _Run(spark, source, plan, job, facts, done, scrutiny, repository)
            comparisons = [*run.outputs(), *run.stores()]
            table = absolute(differences) if differences is not None and scrutiny.rows else None
            if table is not None and scrutiny.rows:
                write_table(texts(reduce(DataFrame.unionByName, scrutiny.rows), forms, "stream", "batch"), table)
    return VerifyResult(
        tuple(comparisons),
        done.records,
        (*facts.cautions, *run.cautions, *done.cautions),
        time.monotonic() - began,
        started_from=plan.started_from,
        until=plan.until.name if plan.until is not None else None,
        table=table,
    )


# -- comparing ---------------------------------------------------------------------------------------------------

_ENTRY_COLUMNS = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


class _Run:
    """One verification, its replay done."""

    def __init__(
        self,
        spark: SparkSession,
        source: KafkaSource,
        plan: ReplayPlan,
        job: ReplayJob,
        facts: VerifyPlan,
        done: Replay,
        scrutiny: Scrutiny = EXACT,
        repository: str | None = None,
    ) -> None:
        self.cautions: list[str] = []
        self._scrutiny = scrutiny
        self._repository = repository
        self._spark = spark
        self._source = source
        self._plan = plan
        self._job = job
        self._facts = facts
        self._done = done

    # -- outputs

    def outputs(self) -> list[Comparison]:
        """Every topic that is compared, by name."""
        out: list[Comparison] = []
        topics = {name: t for name, t in self._facts.topics.items() if self._in_sample(name)}
        for slack in {t.slack for t in topics.values()}:
            mine = {name: t for name, t in topics.items() if t.slack == slack}
            lost = sorted(name for name, t in mine.items() if t.loss and not t.per_commit)
            some = sorted(name for name, t in mine.items() if t.loss and t.per_commit)
            held = sorted(name for name, t in mine.items() if t.per_commit and not t.loss)
            exact = sorted(name for name, t in mine.items() if not t.per_commit and not t.loss)
            alone = [t for t in exact if not slack.floats and self._one_writer_each(t)]
            shared = [t for t in exact if t not in alone]
            keyed = [] if slack.floats else shared
            bags = shared if self._scrutiny.too_far is None else self._not_as_bags(shared, keyed)
            comparisons: tuple[tuple[Mode, list[str], Compare], ...] = (
                ("sequence", alone, compare.by_partition),
                ("bag", bags, compare.as_bags),
                ("key sequence", keyed, compare.by_key),
                ("last value", held, compare.last_values),
                ("loss", lost, compare.missing),
                ("loss", some, partial(compare.missing, once=True)),
            )
            for mode, names, how in comparisons:
                if names:
                    # The sequence per key says more than the bag, where it differs too.
                    scrutiny = self._scrutiny.silent() if mode == "bag" and keyed else self._scrutiny
                    found = {f.subject: f for f in how(self._live(names), self._made(names), slack, scrutiny)}
                    out += [self._output(topic, mode, found.get(topic)) for topic in names]
                    if mode == "key sequence" and not bags:
                        self.cautions += self._not_by_key(names, found)
        return sorted(out, key=lambda c: (c.name, c.mode))

    def _not_as_bags(self, shared: Sequence[str], keyed: Sequence[str]) -> list[str]:
        """Within a tolerance equal rows cannot be counted. Says so of topics that cannot be compared otherwise."""
        self.cautions += [
            f"{topic} can only be compared by counting equal rows, and a tolerance was given; it is not compared"
            for topic in shared
            if topic not in keyed
        ]
        return []

    def _not_by_key(self, topics: Sequence[str], found: Mapping[str, RowDifference]) -> Iterator[str]:
        """Says of which topics rows were left out by ``compare.by_key``, and are counted by no other comparison."""
        live = {r["topic"]: r["count"] for r in self._live(topics).groupBy("topic").count().collect()}
        for topic in topics:
            made = sum(f.rows for f in self._done.output_files(topic))
            mine = found.get(topic)
            left_out = max(live.get(topic, 0) - (mine.live_rows if mine else 0), made - (mine.made_rows if mine else 0))
            if left_out:
                yield (
                    f"{left_out:,} rows of {topic} are not compared: their keys have several writing tasks, or none, so "
                    "their order is not known, and within a tolerance they cannot be counted"
                )

    def _in_sample(self, topic: str) -> bool:
        """Whether the sampled tasks, and no others, write the sampled partitions of a topic."""
        if self._facts.sample == EVERYTHING:
            return True
        files = self._done.output_files(topic)
        if all(set(f.partitions) <= {f.task} for f in files):
            return True
        self.cautions.append(f"{topic} is not compared in a sample: tasks write it to other partitions than their own")
        return False

    def _one_writer_each(self, topic: str) -> bool:
        """Whether every partition is known and has one writing task."""
        files = self._done.output_files(topic)
        writers = {(p, f.subtopology, f.task) for f in files for p in f.partitions}
        partitions = {p for p, _, _ in writers}
        return ANY_PARTITION not in partitions and len(partitions) == len(writers)

    def _live(self, topics: Sequence[str]) -> DataFrame:
        sample = self._facts.sample
        ranges = {tp: r for tp, r in self._facts.outputs.items() if tp.topic in topics and tp.partition in sample}
        rows = compare.without_bootstrap_marks(read_ranges(self._spark, self._source, ranges))
        return compare.without_spans(rows.withColumn("headers", F.when(F.size("headers") > 0, F.col("headers"))))

    def _made(self, topics: Sequence[str]) -> DataFrame:
        files = [f for topic in topics for f in self._done.output_files(topic)]
        if not files:
            return self._no_outputs()
        rows = output_rows(self._spark, self._job.output, files)
        shown = F.when(F.size("headers") > 0, F.col("headers").cast(HEADERS_TYPE))
        return compare.without_spans(rows.withColumn("headers", shown))

    def _no_outputs(self) -> DataFrame:
        schema = (
            "topic string, subtopology int, task int, seq long, partition int, running_max_ms long, key binary, "
            "value binary, timestamp_ms long, headers array<struct<key: string, value: binary>>"
        )
        return self._spark.createDataFrame([], schema)

    def _output(self, topic: str, mode: Mode, found: RowDifference | None) -> Comparison:
        if found is None:
            return Comparison("topic", topic, mode, 0, 0, 0, None)
        first = self._output_difference(topic, mode, found) if found.first is not None else None
        return Comparison(
            "topic", topic, mode, found.live_rows, found.made_rows, found.differences, first, found.allowed
        )

    def _output_difference(self, topic: str, mode: Mode, found: RowDifference) -> Difference:
        row = found.first
        assert row is not None
        live, made = row["live"], row["made"]
        either = made if made is not None else live
        key = row["key"] if "key" in row else either["key"]
        partition = row.asDict().get("partition")
        return Difference(
            partition=partition,
            key=_bytes(key),
            stream=None if live is None else _bytes(live["value"]),
            batch=None if made is None else _bytes(made["value"]),
            input=self._input_of_output(topic, mode, _bytes(key), partition, live, made),
        )

    def _input_of_output(
        self,
        topic: str,
        mode: Mode,
        key: bytes | None,
        partition: int | None,
        live: Row | None,
        made: Row | None,
    ) -> InputRecord | None:
        if mode not in ("last value", "loss"):
            place = made if made is not None else self._last_made(topic, mode, partition, key)
            if place is None:
                return None
            task = TaskId(place["subtopology"], place["task"])
            origin = None
            if live is not None and mode != "bag":  # which has no places
                origin = self._origin(topic, mode, partition, key, live, made, place)
                key = _bytes(live["key"]) if "key" in live else key
            seen = self._trace({task: Watch(outputs=frozenset({(topic, place["seq"])}), origin=origin)})
            return origin_of(key, seen)
        tasks = {TaskId(f.subtopology, f.task) for f in self._done.output_files(topic)}
        seen = self._trace({t: Watch(keys=frozenset({(topic, key)})) for t in tasks})
        rows = self._live([topic]).where(F.col("key").eqNullSafe(F.lit(key)))
        if partition is not None:
            rows = rows.where(F.col("partition") == partition)
        wrote = [(_bytes(r["value"]), r["timestamp_ms"]) for r in rows.orderBy("offset").collect()]
        return departure(wrote, seen)

    def _origin(
        self, topic: str, mode: Mode, partition: int | None, key: bytes | None, live: Row, made: Row | None, place: Row
    ) -> LeftOut | None:
        """Where the stream's row may come from, if it is one that the batch has not made: behind the last row that both
        have. ``place``: the row at its place, or the last one."""
        if made is None:
            return LeftOut(topic, place["seq"] + 1, None, live["timestamp_ms"])
        if live["timestamp_ms"] == made["timestamp_ms"]:
            return None
        before = self._last_made(topic, mode, partition, key, place)
        return LeftOut(topic, 0 if before is None else before["seq"] + 1, place["seq"], live["timestamp_ms"])

    def _last_made(
        self, topic: str, mode: Mode, partition: int | None, key: bytes | None, before: Row | None = None
    ) -> Row | None:
        """The last row that the batch made there; the stream has more. ``before``: the last one that its task made before
        this one."""
        rows = self._made([topic])
        if before is not None:
            same = F.struct("subtopology", "task") == F.struct(F.lit(before["subtopology"]), F.lit(before["task"]))
            rows = rows.where(same & (F.col("seq") < before["seq"]))
        if partition is not None:
            rows = rows.where(F.col("partition") == partition)
        if mode != "sequence":
            rows = rows.where(F.col("key").eqNullSafe(F.lit(key)))
        found = rows.orderBy(F.desc("running_max_ms"), F.desc("seq")).limit(1).collect()
        return found[0] if found else None

    # -- stores

    def stores(self) -> list[Comparison]:
        """Every store with a changelog of its own, by name."""
        specs = {s.name: s for s in self._plan.topology.stores if s.changelog and s.source_topic is None}
        if not specs:
            return []
        live, made = self._stored(list(specs)), self._contents(list(specs))
        rows = compare.entries(live, made, shortened=self._facts.shortened, scrutiny=self._scrutiny)
        found = {f.subject: f for f in rows}
        return [self._store(name, found.get(name)) for name in sorted(specs)]

    def _targets(self, names: Sequence[str]) -> list[CompactTarget]:
        targets = [t for (_, name), t in sorted(self._facts.stores.items()) if name in names]
        return [dataclasses.replace(t, place=i, start=t.facts.begin_offset) for i, t in enumerate(targets)]

    def _stored(self, names: Sequence[str]) -> DataFrame:
        """The stream's entries at the end of the range, without what the batch dropped as expired."""
        floors = self._spark.createDataFrame(
            [(f.store, f.partition, f.floor, f.floor_ms) for t in self._done.tasks for f in t.stores],
            "topic string, partition int, floor binary, floor_ms long",
        )
        until = self._plan.until
        if until is None:
            entries = self._changelogs(names)
        else:
            assert self._repository is not None
            entries = stored_entries(self._spark, self._repository, until, names).select(
                F.col("name").alias("topic"), "partition", F.col("store_key").alias("key"), "value"
            )
        # Partitions outside the sample have no floor.
        kept = entries.join(F.broadcast(floors), ["topic", "partition"])
        kept = kept.where("floor is null or key >= floor").where(_live(F.col("floor_ms")))
        return kept.select("topic", "partition", "key", "value")

    def _changelogs(self, names: Sequence[str]) -> DataFrame:
        """The last value per store key up to the commit."""
        targets = self._targets(names)
        if not targets:
            return self._spark.createDataFrame([], _ENTRY_COLUMNS)
        by_log = {t.log: [t] for t in targets}
        records = read_ranges(self._spark, self._source, {t.log: (t.start, t.end) for t in targets})
        places = self._spark.createDataFrame(
            [(t.place, t.form.name, t.partition) for t in targets], "place int, topic string, partition int"
        )
        return (
            mapped(records, partial(to_entries, by_log), ENTRY_SCHEMA)
            .groupBy("place", F.col("store_key").alias("key"))
            .agg(F.max_by("value", "change").alias("value"))
            .where(F.col("value").isNotNull())
            .join(F.broadcast(places), "place")
            .select("topic", "partition", "key", "value")
        )

    def _contents(self, names: Sequence[str]) -> DataFrame:
        """The stores that the batch made."""
        stored = F.expr("concat(unhex(lpad(hex(timestamp_ms), 16, '0')), value)")
        parts = [
            self._spark.read.parquet(f"{self._job.output}/{f.path}")
            .select(
                F.lit(name).alias("topic"),
                F.lit(f.partition).alias("partition"),
                F.col("store_key").alias("key"),
                stored.alias("value"),
            )
            .where(_live(F.lit(f.floor_ms)))
            for name in names
            for f in self._done.store_files(name)
        ]
        rows = self._spark.createDataFrame([], _ENTRY_COLUMNS)
        for part in parts:
            rows = rows.unionByName(part)
        return rows

    def _store(self, name: str, found: RowDifference | None) -> Comparison:
        if found is None:
            return Comparison("store", name, "last value", 0, 0, 0, None)
        first = None
        if found.first is not None:
            row = found.first
            live, made = row["live"], row["made"]
            key = bytes(row["key"])
            first = Difference(
                partition=row["partition"],
                key=key,
                stream=None if live is None else _bytes(live["value"]),
                batch=None if made is None else _bytes(made["value"]),
                input=self._input_of_entry(name, row["partition"], key),
            )
        mode: Mode = "loss" if self._facts.loss else "last value"
        return Comparison(
            "store", name, mode, found.live_rows, found.made_rows, found.differences, first, found.allowed
        )

    def _input_of_entry(self, store: str, partition: int, key: bytes) -> InputRecord | None:
        target = next((t for t in self._targets([store]) if t.partition == partition), None)
        sub = next(s.number for s in self._plan.topology.subtopologies if store in {x.name for x in s.stores})
        seen = self._trace({TaskId(sub, partition): Watch(entries=frozenset({(store, key)}))})
        if target is None:
            return seen[0].input if seen else None
        records = read_ranges(self._spark, self._source, {target.log: (target.start, target.end)})
        spec = target.form.spec()
        (logged,), _ = to_changelog_columns(spec, [key], [None])
        wrote = records.where(F.col("key") == F.lit(logged)).orderBy("offset").collect()
        stored = [from_changelog(spec, logged, _bytes(r["value"]), r["timestamp_ms"])[1] for r in wrote]
        return departure([(value, None) for value in stored], seen)

    # -- tracing

    def _trace(self, watches: Mapping[TaskId, Watch]) -> list[TracedRecord]:
        work = task_work(self._plan, self._job, self._plan.topology.subtopologies, only=watches)
        rows = ordered_rows(self._spark, self._source, self._plan, self._job, work, ())
        found = mapped(rows, partial(trace_tasks, self._job, dict(watches)), SIGHTING_SCHEMA).collect()
        return [msgspec.json.decode(r["sighting"], type=TracedRecord) for r in found]


def _live(floor_ms: Column) -> Column:
    """Whether an entry of a list store has not expired; of other stores, whose ``floor_ms`` is 0, all are live."""
    time = F.substring("key", -BEHIND_GROUP, BEHIND_GROUP - SEQUENCE_BYTES)
    return (floor_ms == 0) | (time >= F.unhex(F.lpad(F.hex(floor_ms), 16, "0")))


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
