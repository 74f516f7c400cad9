"""The ready-made figures, against plain Python and against the stores of topologies that keep them fresh."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import Application, Connection
from penstock.streams.spark import figures
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.live import App, Live

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
"""A Monday."""


def visits(count: int = 400) -> list[tuple[str, datetime, str, int]]:
    """Key, time, what was done, and how long it took."""
    rng = random.Random(11)
    return [
        (
            f"k{min(rng.randrange(12), rng.randrange(12))}",
            BEGIN + timedelta(minutes=rng.randrange(28 * 24 * 60)),
            rng.choice(["look", "look", "cart", "buy"]),
            rng.randrange(1000),
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = [(k, at, i % 3, what, took) for i, (k, at, what, took) in enumerate(visits())]
    return spark.createDataFrame(rows, "key string, timestamp timestamp, partition int, what string, took int").cache()


def test_counts_and_shares(frame: DataFrame) -> None:
    keys = Counter(k for k, *_ in visits())
    top = figures.top_keys(frame, 3).collect()
    expected = sorted(keys.items(), key=lambda x: (-x[1], x[0]))[:3]
    assert [(r["key"], r["records"], round(r["share"], 6)) for r in top] == [
        (k, n, round(n / 400, 6)) for k, n in expected
    ]
    days: dict[Any, set[str]] = defaultdict(set)
    for key, at, *_ in visits():
        days[at.date()].add(key)
    assert {r["day"]: r["distinct"] for r in figures.distinct_by_day(frame).collect()} == {
        d: len(found) for d, found in days.items()
    }
    loads = figures.skew(frame).collect()
    assert [(r["partition"], r["records"]) for r in loads] == [(0, 134), (1, 133), (2, 133)]
    assert abs(sum(r["load"] for r in loads) - 3) < 1e-9


def test_percentiles_are_exact(frame: DataFrame) -> None:
    found = {r["what"]: r for r in figures.percentiles(frame, "took", ["what"], [0.0, 0.5, 0.999]).collect()}
    for what in ("look", "cart", "buy"):
        took = sorted(t for _, _, w, t in visits() if w == what)
        middle = (took[(len(took) - 1) // 2] + took[len(took) // 2]) / 2
        assert (found[what]["records"], found[what]["p0"], found[what]["p50"]) == (len(took), took[0], middle)


def test_cohorts_of_weeks(frame: DataFrame) -> None:
    weeks: dict[str, set[int]] = defaultdict(set)
    for key, at, *_ in visits():
        weeks[key].add((at - BEGIN).days // 7)
    expected = Counter((min(seen), week - min(seen)) for seen in weeks.values() for week in seen)
    rows = figures.retention(frame).collect()
    assert {((r["cohort"].replace(tzinfo=UTC) - BEGIN).days // 7, r["later"]): r["keys"] for r in rows} == expected
    assert all(r["share"] == 1 for r in rows if r["later"] == 0)


def test_a_funnel_counts_steps_in_their_order(frame: DataFrame) -> None:
    steps = [F.col("what") == what for what in ("look", "cart", "buy")]
    by_key: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for key, at, what, _ in visits():
        by_key[key].append((at, what))
    come = Counter[int]()
    for records in by_key.values():
        after, first = datetime.min.replace(tzinfo=UTC), None
        for i, what in enumerate(("look", "cart", "buy"), 1):
            times = [
                t for t, w in records if w == what and t >= after and (first is None or t <= first + timedelta(days=2))
            ]
            if not times:
                break
            after = min(times)
            first = first or after
            come[i] += 1
    rows = figures.funnel(frame, steps, within="2 days").collect()
    assert [(r["step"], r["keys"]) for r in rows] == [(i, come[i]) for i in (1, 2, 3)] and come[3] < come[1]


def _visits(application_id: str) -> Topology:
    builder = ps.StreamsBuilder("visits", key=str, value=str)
    grouped = builder.stream(f"{application_id}.in").group_by_key()
    grouped.windowed_by(ps.session("3h", grace="1000d")).count(name="sessions")
    return builder.build()


def test_sessions_of_history_are_those_that_the_stream_keeps(
    spark: SparkSession, connection: Connection, live: Live
) -> None:
    app_id = live.application_id
    live.create(2, live.topic("in"))
    # The changelog of windows forgets what is old by the clock.
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(days=29)
    stamped = [(k, now + (at - BEGIN), what) for k, at, what, _ in visits(200)]
    rows = [(k.encode(), what.encode(), round(at.timestamp() * 1000)) for k, at, what in stamped]
    live.produce(live.topic("in"), rows)
    with App(live, _visits(app_id)) as running:
        running.run(commit_every=60)
    app = Application(partial(_visits, app_id), app_id, connection)
    kept = app.store(spark, "sessions").select("key", "window_start", "window_end", F.col("value").alias("records"))
    made = figures.sessions(app.topic(spark, live.topic("in")), "3 hours")
    assert sorted(map(tuple, made.collect())) == sorted(map(tuple, kept.collect())) and kept.count() > 50
