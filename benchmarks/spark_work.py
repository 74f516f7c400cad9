"""The work that ``benchmarks.spark_jobs`` times: topologies, the jobs by hand, and the checks of both answers."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from benchmarks import data, oracle
from benchmarks.systems import ROOT
from benchmarks.topics import Log
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import TumblingWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.streams.spark.session import SparkSettings

WINDOW_MS = 60_000
RETENTION = "1d"
"""Longer than the clicks take: the answers are compared by what is in the stores in the end."""
_APPLICATION = "spark-jobs"


class Click(msgspec.Struct, frozen=True, gc=False):
    """A click as its JSON has it."""

    user: str
    url: str
    ts: int


class Topic(NamedTuple):
    """A topic of clicks, and the numbers behind it."""

    bootstrap: str
    name: str
    records: int
    keys: int
    base_ms: int


def counted(topic: str) -> Topology:
    """Clicks per user and window."""
    builder = StreamsBuilder("spark-jobs", key=str, value=bytes, emission="per_commit")
    windows = TumblingWindows(WINDOW_MS, grace_ms=WINDOW_MS)
    builder.stream(topic).group_by_key().windowed_by(windows, retention=RETENTION).count(name="counts")
    return builder.build()


def typed(topic: str) -> Topology:
    """Clicks as they are read by fields."""
    builder = StreamsBuilder("spark-jobs-typed", key=str, value=Click)
    builder.stream(topic).to("spark-jobs-out")
    return builder.build()


def tabled(topic: str) -> Topology:
    """Each user's last click."""
    builder = StreamsBuilder("spark-jobs-table", key=str, value=bytes)
    builder.table(topic)
    return builder.build()


# -- in a session --------------------------------------------------------------------------------------------------


def session() -> SparkSettings:
    """Two cores, and as many shuffle partitions as the topic has: what one who knows Spark would set."""
    from penstock.streams.spark.session import SparkSettings

    return SparkSettings(
        master=f"local[{os.environ.get('SPARK_CORES', '2')}]",
        driver_memory="2g",
        conf={"spark.sql.shuffle.partitions": "4"},
    )


Answers = tuple[Callable[[], Any], Callable[[], Any], Callable[[Any, Any], str]]


def pair(part: str, spark: SparkSession, topic: Topic, folder: Path) -> Answers:
    """Penstock's work, the other's, and what says whether an answer of theirs is wrong."""
    return _PAIRS[part](spark, topic, folder)


def _source(spark: SparkSession, topic: Topic) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.bootstrap)
    return reader.option("subscribe", topic.name).option("startingOffsets", "earliest").load()


def _replay(spark: SparkSession, topic: Topic, folder: Path) -> Answers:
    from pyspark.sql import functions as F

    from penstock.streams.spark import Connection, replay

    ours_at, theirs_at = folder / "replay", folder / "by-hand"
    shutil.rmtree(ours_at, ignore_errors=True)

    def ours() -> list[str]:
        done = replay(
            partial(counted, topic.name),
            application_id=_APPLICATION,
            connection=Connection(topic.bootstrap),
            output=str(ours_at),
            to="end",
        )
        return [f"{ours_at}/{file.path}" for file in done.replay.store_files("counts")]

    def theirs() -> None:
        windows = F.window("timestamp", f"{WINDOW_MS} milliseconds")
        counts = _source(spark, topic).groupBy(F.col("key").cast("string").alias("key"), windows).count()
        counts.write.mode("overwrite").parquet(str(theirs_at))

    def wrong(files: list[str], _: Any) -> str:
        replayed = spark.read.parquet(*files).select(
            F.col("key").cast("string").alias("key"),
            F.col("window_start_ms").alias("start"),
            F.conv(F.hex("value"), 16, 10).cast("long").alias("n"),
        )
        start = (F.unix_millis("window.start")).alias("start")
        by_hand = spark.read.parquet(str(theirs_at)).select("key", start, F.col("count").alias("n"))
        total, rows = replayed.agg(F.sum("n"), F.count("n")).first()  # type: ignore[misc]  # an aggregate has a row
        if total != topic.records:
            return f"the replay counted {total:,} of {topic.records:,} clicks"
        same = replayed.join(by_hand, ["key", "start", "n"]).count()
        return "" if same == rows == by_hand.count() else f"{same:,} of {rows:,} counts are equal"

    return ours, theirs, wrong


def _frame(spark: SparkSession, topic: Topic, folder: Path) -> Answers:
    from pyspark.sql import functions as F

    from penstock.spark import Application
    from penstock.streams.spark import Connection

    app = Application(partial(typed, topic.name), _APPLICATION, Connection(topic.bootstrap))
    fields = ("value.user", "value.url", "value.ts", "key", "timestamp")

    def total(frame: DataFrame) -> list[Any]:
        of_all = [F.sum("value.ts"), F.count("*"), F.sum(F.length("value.url")), *map(F.max, fields)]
        return list(frame.agg(*of_all).first() or ())

    def ours() -> list[Any]:
        return total(app.topic(spark, topic.name, columns=["key", "value", "timestamp"]))

    def theirs() -> list[Any]:
        value = F.from_json(F.col("value").cast("string"), "user string, url string, ts long")
        key = F.col("key").cast("string").alias("key")
        return total(_source(spark, topic).select(key, value.alias("value"), "timestamp"))

    def wrong(ours: list[Any], theirs: list[Any]) -> str:
        if ours[1] != topic.records:
            return f"the frame has {ours[1]:,} of {topic.records:,} clicks"
        return "" if ours == theirs else f"{ours} is not {theirs}"

    return ours, theirs, wrong


def _compact(spark: SparkSession, topic: Topic, folder: Path) -> Answers:
    from penstock.streams.spark import Connection, compact

    repository = folder / "snapshots"

    def ours() -> int:
        shutil.rmtree(repository, ignore_errors=True)
        done = compact(
            partial(tabled, topic.name),
            application_id=_APPLICATION,
            connection=Connection(topic.bootstrap),
            repository=str(repository),
            at="end",
        )
        return sum(file.entries for store in done.stores for file in store.manifest.files)

    def theirs() -> int:
        return _source(spark, topic).count()

    def wrong(ours: int, theirs: int) -> str:
        users = len(_users(topic.records, topic.keys))
        if ours != users:
            return f"the snapshots have {ours:,} of {users:,} users"
        return "" if theirs == topic.records else f"Spark counted {theirs:,} of {topic.records:,} clicks"

    return ours, theirs, wrong


_PAIRS = {"replay": _replay, "frame": _frame, "compact": _compact}


@cache
def _users(records: int, keys: int) -> dict[str, int]:
    return oracle.clicks_per_user(records, keys)


# -- a backlog -----------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """That of the processes that ``work_on`` runs in, and of Spark's. They may keep compiled modules, as users' do."""
    ours = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)])}
    ours.pop("PYTHONDONTWRITEBYTECODE", None)
    return ours


def work_on(order: dict[str, Any]) -> None:
    """Work off the topic of an order: by Spark, or by a worker until SIGTERM."""
    settings = WorkerSettings(
        application_id=order["application"],
        bootstrap_servers=order["bootstrap"],
        state_dir=order["state"],
        guarantee="exactly_once",
        commit_interval_ms=1_000,
    )
    if order["catch_up"]:
        from penstock.streams.spark.handover.catch_up import catch_up

        catch_up(partial(counted, order["name"]), settings, session=session())
        return
    worker = Worker(counted(order["name"]), settings)
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.run()


def windows_of(topic: Topic) -> dict[tuple[str, int], int]:
    """How many clicks each user has in each window."""
    out: dict[tuple[str, int], int] = {}
    for block, start, count in data.blocks(topic.records):
        users, _ = data.draw_clicks(block, count, topic.keys)
        windows = (topic.base_ms + (start + np.arange(count)) // data.RECORDS_PER_MS) // WINDOW_MS
        pairs, counts = np.unique(np.stack([users, windows]), axis=1, return_counts=True)
        for (user, window), clicks in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            place = (data.user_key(user).decode(), window * WINDOW_MS)
            out[place] = out.get(place, 0) + clicks
    return out


def wrong_changelog(log: Log, application: str, topic: Topic) -> str:
    """Why the counts in the application's changelog are not those of the data; empty if they are."""
    (changelog,) = log.internal_topics(application, "changelog")
    last: dict[bytes, bytes] = {}
    for key, value in log.read(changelog):
        assert key is not None
        assert value is not None
        last[key] = value
    found = {
        (key[:-12].decode(), int.from_bytes(key[-12:-4], "big")): oracle.big_endian(value)
        for key, value in last.items()
    }
    right = windows_of(topic)
    if found == right:
        return ""
    same = sum(found.get(place) == clicks for place, clicks in right.items())
    return f"{same:,} of {len(right):,} counts are right"
