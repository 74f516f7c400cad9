"""An old and a new topology over the same range of the log, and the differences of their outputs and stores, before
anything is deployed.

Both run as replays of the same inputs, their repartition topics computed, in the deterministic order of ``replay_rows``; so
what differs comes of the topologies. Points in the log are looked up once for both: a running application moves them.
Updates of a key are compared one by one, in their order; where commits decide which updates are seen, the last one of each
key. Of outputs, timestamp, headers and partition are compared too; store entries only with those of their partition, since
tasks may keep the same key.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, open_cluster
from penstock.streams.batch.output_topics import written_topics
from penstock.streams.batch.places import absolute
from penstock.streams.batch.points import Point, offsets_at
from penstock.streams.batch.published import Replay, check_files
from penstock.streams.batch.replay_plan import ReplayPlan, plan_replay
from penstock.streams.batch.replay_run import make_job, records_of
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.batch.values_as_text import Tolerance
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.difference_table import Forms, texts, too_far, write_table
from penstock.streams.spark.failures import translated
from penstock.streams.spark.output_rows import output_rows
from penstock.streams.spark.progress import Say, watched
from penstock.streams.spark.replay_job import run_replay
from penstock.streams.spark.report.record import phase
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.shipping import ship
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.topology_loading import load_topology
from penstock.topologies.graph.topology import Topology

_SIDES = ("left", "right")
OLD, NEW = "the old topology", "the new topology"
KINDS = ("topic", "store")
EXAMPLES = 10
METADATA = "struct<partition: int, timestamp_ms: bigint, headers: array<struct<key: string, value: binary>>>"
ROWS = (
    "kind string, name string, partition int, key binary, left binary, right binary, place long, in_left boolean, "
    f"in_right boolean, left_metadata {METADATA}, right_metadata {METADATA}"
)


@dataclasses.dataclass(frozen=True)
class Subject:
    """One topic or store: its rows in either version, the rows that differ, and of how many keys they are.
    ``metadata_rows``: of the differing ones, those whose value is as before and whose timestamp, headers or partition is
    not."""

    kind: str
    name: str
    old_rows: int
    new_rows: int
    differing_rows: int
    differing_keys: int
    metadata_rows: int


@dataclasses.dataclass(frozen=True)
class Example:
    """A differing row; ``None``: that version has none there."""

    kind: str
    name: str
    key: str | None
    old: str | None
    new: str | None


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """``records``: those that the old topology processed, computed repartition records too. ``changes``: topics and stores
    that only one version has, and stores whose form was changed, so that their rows cannot be compared. ``cautions``: what
    limits the rest. ``table``: where all differing rows are; if only their metadata differs, with the same value twice."""

    subjects: tuple[Subject, ...]
    examples: tuple[Example, ...]
    records: int
    changes: tuple[str, ...]
    cautions: tuple[str, ...]
    table: str | None
    seconds: float

    @property
    def same(self) -> bool:
        """Whether nothing differs, and nothing was added, removed or given another form."""
        return not self.changes and not any(s.differing_rows for s in self.subjects)


def what_if(
    old: TopologyRef,
    new: TopologyRef,
    *,
    application_id: str,
    connection: Connection,
    since: Point | None = None,
    until: Point = "committed",
    repository: str | None = None,
    options: TaskOptions | None = None,
    tolerance: Tolerance | None = None,
    differences: str | None = None,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> WhatIf:
    """Run both topologies over ``[since, until)`` of the inputs, and compare. Nothing is written to Kafka.

    ``application_id``: the old one's, whose positions ``committed`` and savepoints mean. ``since``: ``None`` is where it
    began to read; a time or offsets begin with empty stores. ``until``: a point; inputs of which it says nothing are read to
    their ends. ``differences``: a folder or URL for the differing rows, as Parquet; what is there is replaced. Errors as
    ``replay``; ``EnvironmentFault`` if records were deleted while the range was looked up.
    """
    began_s = time.monotonic()
    differences, repository = absolute(differences), absolute(repository)
    refs = (old, new)
    topologies = [load_topology(ref) for ref in refs]
    with phase("plan"), open_cluster(connection, application_id) as cluster:
        plans = _plans(topologies, application_id, cluster, connection, since, until, repository)
    with TemporaryDirectory(prefix="penstock-compare-") as folder, spark_session(session) as spark:
        done: list[Replay] = []
        for ref, plan, which in zip(refs, plans, (OLD, NEW), strict=True):
            job = make_job(plan, ship(ref), folder, options or TaskOptions(), {}, repository)
            with watched(spark, which, progress, records_of(plan)) as count:
                done.append(run_replay(spark, connection, plan, job, count=count))
            check_files(folder, done[-1])
        forms = Forms(ship(old), application_id, ship(new), application_id)
        run = _Comparison(spark, folder, application_id, (topologies[0], topologies[1]), (done[0], done[1]))
        with translated("the comparison"), watched(spark, "the comparison", progress):
            rows = run.rows(forms, tolerance or Tolerance()).cache()
            subjects, examples = subjects_of(rows), examples_of(rows, forms)
            if differences is not None:
                write_table(texts(rows.where("differs"), forms, "old", "new"), differences)
            rows.unpersist()
    cautions = dict.fromkeys(c for d in done for c in d.cautions)
    seconds = time.monotonic() - began_s
    return WhatIf(
        tuple(subjects), tuple(examples), done[0].records, tuple(run.changes), tuple(cautions), differences, seconds
    )


def _plans(
    topologies: Sequence[Topology],
    application_id: str,
    cluster: Cluster,
    connection: Connection,
    since: Point | None,
    until: Point,
    repository: str | None,
) -> list[ReplayPlan]:
    """A plan for each topology, over one range."""
    topics = sorted(
        {t.source(n).topic for t in topologies for s in t.subtopologies for n in s.sources if not t.source(n).internal}
    )
    counts = cluster.require_counts(topics)
    inputs = [TopicPartition(t, p) for t in topics for p in range(counts[t])]

    def at(point: Point) -> dict[TopicPartition, int]:
        return offsets_at(point, inputs, cluster, connection, application_id, repository)

    known = at(until)
    if until == "committed" and not known:
        raise SettingsError(
            f"the group {application_id} has no committed offsets, so there is nothing that it did to compare; check the "
            "application id, or compare to the end of the inputs (--until end)"
        )
    stops: Mapping[TopicPartition, int] = {**at("end"), **known}
    if since is None:
        plans = [plan_replay(t, application_id, cluster, to=stops, recompute=True) for t in topologies]
    else:
        starts = at(since)
        bounded = {tp: max(stop, starts.get(tp, stop)) for tp, stop in stops.items()}
        plans = [plan_replay(t, application_id, cluster, from_=starts, to=bounded, recompute=True) for t in topologies]
    _require_one_range(plans)
    return plans


def _require_one_range(plans: Sequence[ReplayPlan]) -> None:
    first, second = (plan.ranges for plan in plans)
    for tp in sorted(first.keys() & second.keys()):
        if first[tp] != second[tp]:
            raise EnvironmentFault(
                f"{tp.topic} partition {tp.partition} lost records while its range was looked up: the old topology would "
                f"read {first[tp]}, the new one {second[tp]}; compare again, or begin later (--since)"
            )


class _Comparison:
    """Two replays that are done."""

    def __init__(
        self,
        spark: SparkSession,
        folder: str,
        application_id: str,
        topologies: tuple[Topology, Topology],
        done: tuple[Replay, Replay],
    ) -> None:
        self.changes: list[str] = []
        self._spark = spark
        self._folder = folder
        self._application_id = application_id
        self._topologies = topologies
        self._done = done

    def rows(self, forms: Forms, tolerance: Tolerance) -> DataFrame:
        """All rows of both sides, each with the other's, with ``differs``."""
        parts = [*self._outputs(), *self._stores()]
        both = reduce(DataFrame.unionByName, parts) if parts else self._spark.createDataFrame([], ROWS)
        return marked(both, forms, tolerance)

    def _outputs(self) -> list[DataFrame]:
        written = [written_topics(t, self._application_id) for t in self._topologies]
        internal = {
            t.sink(n).topic_name(self._application_id)
            for t in self._topologies
            for s in t.subtopologies
            for n in s.sinks
            if t.sink(n).internal
        }
        self._one_sided("topic", *(set(w) - internal for w in written))
        both = sorted((set(written[0]) & set(written[1])) - internal)
        return [self._output(topic, written[0][topic] or written[1][topic]) for topic in both]

    def _output(self, topic: str, per_commit: bool) -> DataFrame:
        sides = [self._updates(done, topic, side, per_commit) for done, side in zip(self._done, _SIDES, strict=True)]
        return side_by_side("topic", topic, sides)

    def _updates(self, done: Replay, topic: str, side: str, per_commit: bool) -> DataFrame:
        """``key``, ``place`` (of the update among the key's), ``partition``, the value and its metadata."""
        files = done.output_files(topic)
        if not files:
            return self._none(side)
        rows = output_rows(self._spark, self._folder, files)
        order = Window.partitionBy("key").orderBy(
            *[F.desc(c) if per_commit else F.col(c) for c in ("running_max_ms", "subtopology", "task", "seq")]
        )
        placed = rows.withColumn("place", F.row_number().over(order).cast("long"))
        kept = placed.where("place = 1") if per_commit else placed
        headers = F.when(F.size("headers") > 0, F.col("headers"))
        metadata = F.struct("partition", "timestamp_ms", headers.alias("headers")).cast(METADATA)
        return kept.select("key", "place", "partition", F.col("value").alias(side), metadata.alias(f"{side}_metadata"))

    def _stores(self) -> list[DataFrame]:
        old, new = ({s.name: s for s in t.stores} for t in self._topologies)
        self._one_sided("store", set(old), set(new))
        out: list[DataFrame] = []
        for name in sorted(old.keys() & new.keys()):
            forms = [(s.kind, s.segment_ms, s.value_serde.name) for s in (old[name], new[name])]
            if forms[0] != forms[1]:
                self.changes.append(f"store {name} is not compared: its kind, windows or serde were changed")
                continue
            sides = [self._entries(done, name, side) for done, side in zip(self._done, _SIDES, strict=True)]
            out.append(side_by_side("store", name, sides))
        return out

    def _entries(self, done: Replay, store: str, side: str) -> DataFrame:
        stored = F.expr("concat(unhex(lpad(hex(timestamp_ms), 16, '0')), value)")
        parts = [
            self._spark.read.parquet(f"{self._folder}/{f.path}").select(
                F.col("store_key").alias("key"),
                F.lit(1).cast("long").alias("place"),
                F.lit(f.partition).alias("partition"),
                stored.alias(side),
                F.lit(None).cast(METADATA).alias(f"{side}_metadata"),
            )
            for f in done.store_files(store)
        ]
        return reduce(DataFrame.unionByName, parts) if parts else self._none(side)

    def _none(self, side: str) -> DataFrame:
        return self._spark.createDataFrame(
            [], f"key binary, place long, partition int, {side} binary, {side}_metadata {METADATA}"
        )

    def _one_sided(self, kind: str, old: set[str], new: set[str]) -> None:
        self.changes += [f"{kind} {name} is the old topology's alone" for name in sorted(old - new)]
        self.changes += [f"{kind} {name} is the new topology's alone" for name in sorted(new - old)]


def side_by_side(kind: str, name: str, sides: Sequence[DataFrame]) -> DataFrame:
    """Rows of one key and place, and of stores of one partition, side by side."""
    left, right = (side.withColumn("there", F.lit(True)) for side in sides)
    on = left["key"].eqNullSafe(right["key"]) & (left["place"] == right["place"])
    if kind == "store":
        on = on & (left["partition"] == right["partition"])
    return left.join(right, on, "full_outer").select(
        F.lit(kind).alias("kind"),
        F.lit(name).alias("name"),
        F.coalesce(left["partition"], right["partition"]).alias("partition"),
        F.coalesce(left["key"], right["key"]).alias("key"),
        left["left"].alias("left"),
        right["right"].alias("right"),
        F.coalesce(left["place"], right["place"]).alias("place"),
        left["there"].isNotNull().alias("in_left"),
        right["there"].isNotNull().alias("in_right"),
        left["left_metadata"].alias("left_metadata"),
        right["right_metadata"].alias("right_metadata"),
    )


def marked(both: DataFrame, forms: Forms, tolerance: Tolerance) -> DataFrame:
    """Rows of ``ROWS`` with ``differs``, and ``value_differs``: a value does, or one side has no row."""
    unequal = ~F.col("left").eqNullSafe(F.col("right"))
    differs = unequal
    if tolerance:
        values = [F.when(unequal, F.col(side)) for side in _SIDES]
        apart = [
            F.when(F.col("kind") == kind, too_far(forms, tolerance, kind, F.col("name"), *values)) for kind in KINDS
        ]
        differs = unequal & F.coalesce(*apart)
    value_differs = differs | (F.col("in_left") != F.col("in_right"))
    metadata_differs = ~F.col("left_metadata").eqNullSafe(F.col("right_metadata"))
    return both.withColumn("value_differs", value_differs).withColumn("differs", value_differs | metadata_differs)


def subjects_of(rows: DataFrame) -> list[Subject]:
    """The figures of each topic and store in the rows of ``marked``."""
    found = (
        rows.groupBy("kind", "name")
        .agg(
            F.sum(F.col("in_left").cast("int")).alias("old"),
            F.sum(F.col("in_right").cast("int")).alias("new"),
            F.sum(F.col("differs").cast("int")).alias("rows"),
            F.count_distinct(F.when(F.col("differs"), F.struct("key"))).alias("keys"),
            F.sum((F.col("differs") & ~F.col("value_differs")).cast("int")).alias("metadata"),
        )
        .orderBy(F.desc("kind"), "name")
        .collect()
    )
    return [Subject(r["kind"], r["name"], r["old"], r["new"], r["rows"], r["keys"], r["metadata"]) for r in found]


def examples_of(rows: DataFrame, forms: Forms) -> list[Example]:
    """A few of the rows that differ."""
    first = rows.where("value_differs").orderBy(F.desc("kind"), "name", "place", "key").limit(EXAMPLES)
    return [
        Example(r["kind"], r["name"], r["key"], r["old"], r["new"]) for r in texts(first, forms, "old", "new").collect()
    ]
