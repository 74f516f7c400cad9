"""Ready-made heavy aggregations over a whole topic: each takes a DataFrame of records and returns a small one.

They are plain DataFrame programs over what ``Application.topic`` returns, and work on any frame with the columns that
they use: ``key``, ``timestamp``, and those that the caller names. A streaming topology keeps the same figures up to
date; these compute them from history, once, for any range.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def distinct_by_day(frame: DataFrame, of: Column | str = "key") -> DataFrame:
    """The number of distinct values of each day: ``day``, ``distinct``."""
    return frame.groupBy(F.to_date("timestamp").alias("day")).agg(F.count_distinct(of).alias("distinct")).orderBy("day")


def top_keys(frame: DataFrame, count: int = 20) -> DataFrame:
    """The keys with the most records: ``key``, ``records``, ``share`` of all."""
    keys = frame.groupBy("key").agg(F.count("*").alias("records"))
    share = F.col("records") / F.sum("records").over(Window.partitionBy())
    return keys.withColumn("share", share).orderBy(F.desc("records"), "key").limit(count)


def skew(frame: DataFrame) -> DataFrame:
    """How evenly records are distributed: ``partition``, ``records``, ``keys``, and ``load``, which is 1 if a
    partition has as many records as the average of those that have any."""
    parts = frame.groupBy("partition").agg(F.count("*").alias("records"), F.count_distinct("key").alias("keys"))
    load = F.col("records") / F.avg("records").over(Window.partitionBy())
    return parts.withColumn("load", load).orderBy(F.desc("records"), "partition")


def percentiles(
    frame: DataFrame, of: Column | str, by: Sequence[str] = (), at: Sequence[float] = (0.5, 0.9, 0.99)
) -> DataFrame:
    """Exact percentiles of a number: the columns ``by``, ``records``, and one column for each of ``at``, such as
    ``p99``."""
    column = F.col(of) if isinstance(of, str) else of
    found = [F.percentile(column, share).alias(f"p{share * 100:g}".replace(".", "_")) for share in at]
    return frame.groupBy(*by).agg(F.count(column).alias("records"), *found).orderBy(*by)


def sessions(frame: DataFrame, gap: str) -> DataFrame:
    """Each key's runs of records that are no further apart than ``gap`` (as Spark writes intervals, ``30 minutes``):
    ``key``, ``window_start``, ``window_end`` (the last record's time, as a session window's), ``records``."""
    of_key = Window.partitionBy("key").orderBy("timestamp")
    before = F.lag("timestamp").over(of_key)
    begins = F.coalesce(F.col("timestamp") > before + F.expr(f"interval {gap}"), F.lit(True))
    numbered = frame.where(F.col("key").isNotNull()).withColumn("session", F.sum(begins.cast("int")).over(of_key))
    return (
        numbered.groupBy("key", "session")
        .agg(
            F.min("timestamp").alias("window_start"),
            F.max("timestamp").alias("window_end"),
            F.count("*").alias("records"),
        )
        .drop("session")
        .orderBy("key", "window_start")
    )


def retention(frame: DataFrame, period: str = "week") -> DataFrame:
    """Cohorts by the period (``day``, ``week``, ``month``) of each key's first record, and how many of their keys
    have records in each later period: ``cohort``, ``later`` (the number of periods), ``keys``, ``share`` of the
    cohort."""
    at = F.date_trunc(period, "timestamp")
    seen = frame.where(F.col("key").isNotNull()).select("key", at.alias("at")).distinct()
    first = seen.withColumn("cohort", F.min("at").over(Window.partitionBy("key")))
    later = (
        F.round(F.months_between("at", "cohort"))
        if period == "month"
        else F.datediff("at", "cohort") / {"day": 1, "week": 7}[period]
    )
    counted = first.groupBy("cohort", later.cast("int").alias("later")).agg(F.count("*").alias("keys"))
    whole = F.max(F.when(F.col("later") == 0, F.col("keys"))).over(Window.partitionBy("cohort"))
    return counted.withColumn("share", F.col("keys") / whole).orderBy("cohort", "later")


def funnel(frame: DataFrame, steps: Sequence[Column], within: str | None = None) -> DataFrame:
    """How many keys reach each step: ``step`` (from 1), ``keys``, ``share`` of the first step's. A key reaches a step
    if it has a record of it no earlier than one of the step before; ``within``: all within this interval of the first
    step."""
    reached = frame.where(F.col("key").isNotNull()).select(
        "key", "timestamp", *[s.alias(f"s{i}") for i, s in _from(steps)]
    )
    times = reached.where("s1").groupBy("key").agg(F.min("timestamp").alias("t1"))
    for i, _ in _from(steps[1:], 2):
        here = reached.where(f"s{i}").select("key", F.col("timestamp").alias("t"))
        in_time = F.lit(True) if within is None else F.col("t") <= F.col("t1") + F.expr(f"interval {within}")
        after = times.join(here, "key").where((F.col("t") >= F.col(f"t{i - 1}")) & in_time)
        times = times.join(after.groupBy("key").agg(F.min("t").alias(f"t{i}")), "key", "left")
    counts = times.select(*[F.count(f"t{i}").alias(f"t{i}") for i, _ in _from(steps)])
    rows = F.explode(
        F.array(*[F.struct(F.lit(i).alias("step"), F.col(f"t{i}").alias("keys")) for i, _ in _from(steps)])
    )
    found = counts.select(rows.alias("row")).select("row.*")
    first = F.max(F.when(F.col("step") == 1, F.col("keys"))).over(Window.partitionBy())
    return found.withColumn("share", F.col("keys") / first).orderBy("step")


def _from(steps: Sequence[Column], first: int = 1) -> list[tuple[int, Column]]:
    return list(enumerate(steps, first))
