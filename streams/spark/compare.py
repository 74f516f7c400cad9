"""Compare what the stream wrote with what the batch computed, as DataFrames.

Every comparison gives one row per subject (a topic or a store): the number of rows on either side, how many differ,
and the first difference. ``live`` rows have ``topic, partition, offset, key, value, timestamp_ms, headers``; ``made``
rows have ``subtopology, task, seq`` instead of ``offset``. Places within a partition or a key count from the first
row, or from the last one if the sides may begin at different rows (``Slack``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from penstock.streams.batch.verify_plan import Slack
from penstock.streams.ports.record_traces import SPAN_FROM, SPAN_TO, TRACEPARENT, TRACEPARENT_BYTES
from penstock.streams.task.task_watermarks import HEADER

_CONTENT = ("key", "value", "timestamp_ms", "headers")
_SUBJECT = "topic"
_KEYED = ("topic", "partition", "key")


@dataclasses.dataclass(frozen=True)
class RowDifference:
    """One subject's comparison. ``first``: the row at the first difference, ``None`` if there is none. Its columns
    are those of the sort order, then ``live`` and ``made``, structs that are null if that side has no row."""

    subject: str
    live_rows: int
    made_rows: int
    differences: int
    first: Row | None
    allowed: int = 0


@dataclasses.dataclass
class Scrutiny:
    """How values are judged, and what is kept of rows that differ. ``too_far(kind, name, live, made)``: whether two values
    differ by more than a tolerance; ``None``: they differ when their bytes do. ``rows``: gets the differing rows
    (``difference_table.ROW_SCHEMA``); ``None``: they are not kept. ``loss``: only what the stream lacks counts; the other
    differing rows are counted as allowed."""

    too_far: Callable[[str, Column, Column, Column], Column] | None = None
    rows: list[DataFrame] | None = None
    loss: bool = False

    def silent(self) -> Scrutiny:
        """This scrutiny, with nothing kept."""
        return dataclasses.replace(self, rows=None)

    def differ(self, kind: str, live: Column, made: Column) -> Column:
        """Whether two values differ, each null where its side has no row."""
        different = ~live.eqNullSafe(made)
        if self.too_far is None:
            return different
        return different & self.too_far(kind, F.col(_SUBJECT), F.when(different, live), F.when(different, made))


EXACT = Scrutiny()


def without_bootstrap_marks(rows: DataFrame) -> DataFrame:
    """Rows without the marks with which tasks announce, at each start, that they have caught up: the number of starts
    is not part of the topology's answer. The eighteenth byte of the mark's header tells them apart
    (``WatermarkMark``)."""
    says = f"h.key = '{HEADER}' and hex(substring(h.value, 18, 1)) = '01'"
    return rows.where(F.expr(f"not coalesce(exists(headers, h -> {says}), false)"))


def without_spans(rows: DataFrame) -> DataFrame:
    """Rows whose ``traceparent`` headers lack the id of the span: a worker that traces records writes its own ones there
    (``penstock.streams.ports.record_traces``), and nothing else."""
    cut = f"concat(substring(h.value, 1, {SPAN_FROM}), substring(h.value, {SPAN_TO + 1}))"
    names = f"h.key = '{TRACEPARENT}' and length(h.value) = {TRACEPARENT_BYTES}"
    header = f"if({names}, named_struct('key', h.key, 'value', {cut}), h)"
    return rows.withColumn("headers", F.expr(f"transform(headers, h -> {header})"))


def by_partition(live: DataFrame, made: DataFrame, slack: Slack, scrutiny: Scrutiny = EXACT) -> list[RowDifference]:
    """Compare row by row in each partition that only one task writes."""
    return _in_lanes(live, made, ("topic", "partition"), slack, scrutiny)


def by_key(live: DataFrame, made: DataFrame, slack: Slack, scrutiny: Scrutiny = EXACT) -> list[RowDifference]:
    """Compare row by row for each key in a partition, if only one task writes the key there; skips null keys, and keys
    that several tasks write to one partition."""
    lanes = single_writer_keys(made)
    mine = [side.join(lanes, [*_KEYED], "left_semi") for side in (live, made)]
    return _in_lanes(mine[0], mine[1], _KEYED, slack, scrutiny)


def _in_lanes(
    live: DataFrame, made: DataFrame, lane: Sequence[str], slack: Slack, scrutiny: Scrutiny
) -> list[RowDifference]:
    turned = F.desc if slack.at_begin else F.asc
    left = live.withColumn("idx", F.row_number().over(Window.partitionBy(*lane).orderBy(turned("offset"))))
    right = made.withColumn("idx", F.row_number().over(Window.partitionBy(*lane).orderBy(turned("seq"))))
    return _findings(_joined(left, right, (*lane, "idx")), ("idx", *lane[1:]), slack, scrutiny)


def single_writer_keys(made: DataFrame) -> DataFrame:
    """The keys that only one task writes to a partition: ``topic, partition, key``. Only for these is the order of a
    key's rows known: a task's rows in different partitions have no order in the log."""
    writers = F.count_distinct(F.struct("subtopology", "task"))
    return made.where(F.col("key").isNotNull()).groupBy(*_KEYED).agg(writers.alias("w")).where("w = 1").drop("w")


def as_bags(live: DataFrame, made: DataFrame, slack: Slack, scrutiny: Scrutiny = EXACT) -> list[RowDifference]:
    """Compare records in any order, over all partitions of a topic. ``live`` and ``made`` count records here."""
    keys = ["topic", *_CONTENT]
    left = live.groupBy(*keys).agg(F.count("*").alias("n"), F.min("offset").alias("offset"))
    right = made.groupBy(*keys).agg(
        F.count("*").alias("m"),
        F.min(F.struct("running_max_ms", "subtopology", "task", "seq")).alias("at"),
    )
    on = [left[k].eqNullSafe(right[k]) for k in keys]
    both = left.join(right, on, "full_outer").select(
        F.coalesce(left["topic"], right["topic"]).alias("topic"),
        F.coalesce(left["key"], right["key"]).alias("key"),
        F.when(left["n"].isNotNull(), _live_struct(left)).alias("live"),
        F.when(
            right["m"].isNotNull(),
            F.struct(
                right["at"]["subtopology"].alias("subtopology"),
                right["at"]["task"].alias("task"),
                right["at"]["seq"].alias("seq"),
                right["value"].alias("value"),
                right["timestamp_ms"].alias("timestamp_ms"),
            ),
        ).alias("made"),
        F.coalesce(left["n"], F.lit(0)).alias("n"),
        F.coalesce(right["m"], F.lit(0)).alias("m"),
        F.coalesce(right["at"]["running_max_ms"], left["timestamp_ms"]).alias("time"),
    )
    lacking = F.lit(False) if slack.batch_before else F.col("m") > F.col("n")
    extra = F.lit(False) if slack.stream_before or slack.stream_after else F.col("n") > F.col("m")
    different = lacking | extra
    order = F.struct("time", "key", "live", "made")
    return _aggregated(both, different, order, F.sum("n"), F.sum("m"), scrutiny)


def missing(
    live: DataFrame, made: DataFrame, slack: Slack, scrutiny: Scrutiny = EXACT, *, once: bool = False
) -> list[RowDifference]:
    """Rows that the stream lacks, if it may have done some records twice: keys of which it has fewer rows than the batch.
    Their values may differ, as a count does that counted a record twice. ``once``: commits decide how many rows a key gets,
    so one is enough."""
    keys = ["topic", "key"]
    left = live.groupBy(*keys).agg(F.count("*").alias("n"))
    at = F.struct("running_max_ms", "subtopology", "task", "seq", "value", "timestamp_ms")
    rows = F.least(F.count("*"), F.lit(1 if once else 1 << 62))
    right = made.groupBy(*keys).agg(rows.alias("m"), F.max(at).alias("at"))
    on = [left[k].eqNullSafe(right[k]) for k in keys]
    both = left.join(right, on, "full_outer").select(
        F.coalesce(left["topic"], right["topic"]).alias("topic"),
        F.coalesce(left["key"], right["key"]).alias("key"),
        F.lit(None).cast("struct<offset: bigint, value: binary, timestamp_ms: bigint>").alias("live"),
        F.when(
            right["m"].isNotNull(), F.struct("at.subtopology", "at.task", "at.seq", "at.value", "at.timestamp_ms")
        ).alias("made"),
        F.coalesce(left["n"], F.lit(0)).alias("n"),
        F.coalesce(right["m"], F.lit(0)).alias("m"),
        F.col("at.running_max_ms").alias("time"),
    )
    lacking = F.greatest(F.col("m") - F.col("n"), F.lit(0))
    order = F.struct("time", "key", "live", "made")
    doubled = F.sum(F.greatest(F.col("n") - F.col("m"), F.lit(0)))
    found = _aggregated(both, lacking > 0, order, F.sum("n"), F.sum("m"), scrutiny, F.sum(lacking), doubled)
    return found


def last_values(live: DataFrame, made: DataFrame, slack: Slack, scrutiny: Scrutiny = EXACT) -> list[RowDifference]:
    """Compare the last record of each key in a partition, if only one task writes the key there."""
    lanes = single_writer_keys(made)
    content = F.struct("value", "timestamp_ms", "headers")
    left = (
        live.where(F.col("key").isNotNull())
        .groupBy(*_KEYED)
        .agg(F.max_by(content, "offset").alias("c"), F.max("offset").alias("offset"))
        .select(*_KEYED, "offset", "c.*")
    )
    right = (
        made.join(lanes, [*_KEYED], "left_semi")
        .groupBy(*_KEYED)
        .agg(
            F.max_by(content, "seq").alias("c"),
            F.max_by(F.struct("subtopology", "task", "seq"), "seq").alias("at"),
        )
        .select(*_KEYED, "at.*", "c.*")
    )
    several = made.where(F.col("key").isNotNull()).select(*_KEYED).distinct()
    several = several.join(lanes, [*_KEYED], "left_anti")
    left = left.join(several, [*_KEYED], "left_anti")
    return _findings(_joined(left, right, _KEYED), ("key", "partition"), slack, scrutiny)


def entries(
    live: DataFrame, made: DataFrame, *, shortened: Sequence[str] = (), scrutiny: Scrutiny = EXACT
) -> list[RowDifference]:
    """Compare stores: ``topic`` (the store), ``partition``, ``key`` (the store key) and ``value`` (the stored bytes). Of the
    ``shortened`` stores the stream's side may lack rows."""
    on = ("topic", "partition", "key")
    left = live.select(*on, F.struct("value").alias("live"))
    right = made.select(*on, F.struct("value").alias("made"))
    both = left.join(right, list(on), "full_outer")
    different = scrutiny.differ("store", F.col("live.value"), F.col("made.value"))
    if shortened:
        different = different & ~(F.col("live").isNull() & F.col(_SUBJECT).isin(list(shortened)))
    allowed = F.lit(0)
    if scrutiny.loss:
        allowed = F.sum(F.when(different & F.col("live").isNotNull(), 1).otherwise(0))
        different = different & F.col("live").isNull()
    order = F.struct("partition", "key", "live", "made")
    return _aggregated(
        both, different, order, F.count("live"), F.count("made"), scrutiny, allowed=allowed, kind="store"
    )


def _live_struct(live: DataFrame) -> Column:
    return F.struct(
        live["offset"].alias("offset"), live["value"].alias("value"), live["timestamp_ms"].alias("timestamp_ms")
    )


def _joined(live: DataFrame, made: DataFrame, on: Sequence[str]) -> DataFrame:
    """Both sides at the same place, each as a struct."""
    content = [c for c in _CONTENT if c not in on]
    left = live.select(*on, F.struct("offset", *content).alias("live"))
    right = made.select(*on, F.struct("subtopology", "task", "seq", *content).alias("made"))
    return left.join(right, list(on), "full_outer")


def _findings(both: DataFrame, order: Sequence[str], slack: Slack, scrutiny: Scrutiny) -> list[RowDifference]:
    fields = set(both.select("live.*").columns)
    same = ~scrutiny.differ("topic", F.col("live.value"), F.col("made.value"))
    for name in ("key", "timestamp_ms", "headers"):
        if name in fields:
            same = same & F.col(f"live.{name}").eqNullSafe(F.col(f"made.{name}"))
    missing = F.col("live").isNull()
    extra = F.col("made").isNull()
    different = (
        F.when(missing, F.lit(not slack.batch_before))
        .when(extra, F.lit(not (slack.stream_before or slack.stream_after)))
        .otherwise(~same)
    )
    # Sort by the batch's own order first: the first row that it made is the first difference.
    first = F.struct(*order, "live", "made")
    return _aggregated(both, different, first, F.count("live"), F.count("made"), scrutiny)


def _aggregated(
    both: DataFrame,
    different: Column,
    order: Column,
    live: Column,
    made: Column,
    scrutiny: Scrutiny,
    count: Column | None = None,
    allowed: Column | None = None,
    kind: str = "topic",
) -> list[RowDifference]:
    """``count``: what counts as the number of differences; rows, where it is not given."""
    both = both.withColumn("differs", different)
    rows = (
        both.groupBy(_SUBJECT)
        .agg(
            live.alias("live_rows"),
            made.alias("made_rows"),
            (F.sum(F.when(F.col("differs"), 1).otherwise(0)) if count is None else count).alias("differences"),
            F.min(F.when(F.col("differs"), order)).alias("first"),
            (F.lit(0) if allowed is None else allowed).alias("allowed"),
        )
        .collect()
    )
    found = [
        RowDifference(r[_SUBJECT], r["live_rows"], r["made_rows"], r["differences"], r["first"], r["allowed"])
        for r in rows
    ]
    if scrutiny.rows is not None and any(f.differences for f in found):
        scrutiny.rows.append(_differing(both, kind))
    return found


def _differing(both: DataFrame, kind: str) -> DataFrame:
    """The rows that differ, both values of each."""
    key = F.col("key") if "key" in both.columns else F.coalesce("made.key", "live.key")
    partition = F.col("partition") if "partition" in both.columns else F.lit(None).cast("int")
    return both.where("differs").select(
        F.lit(kind).alias("kind"),
        F.col(_SUBJECT).alias("name"),
        partition.alias("partition"),
        key.alias("key"),
        F.col("live.value").alias("left"),
        F.col("made.value").alias("right"),
    )
