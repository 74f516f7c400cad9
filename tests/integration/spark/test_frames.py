"""The log and the state as DataFrames: what the application wrote and holds, typed, as of an exact place."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import Application, Connection, compact, register, write_topic
from penstock.state.errors import EnvironmentFault, SerdeError
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.live import App, Live

AT_MS = 1_700_000_000_000


class Sale(msgspec.Struct, frozen=True):
    """What is sold."""

    amount: float
    tags: list[str]
    note: str | None = None


def _sales(application_id: str) -> Topology:
    builder = ps.StreamsBuilder("sales", key=str, value=Sale)
    sales = builder.stream(f"{application_id}.in")
    sales.group_by_key().aggregate(float, lambda k, v, total: total + v.amount, value=float, name="totals")
    windows = ps.tumbling("1m", grace="4000d")
    counts = sales.group_by_key().windowed_by(windows).count(name="per-minute")
    counts.to_stream().to(f"{application_id}.out")
    return builder.build()


def sales(application_id: str) -> Any:
    return partial(_sales, application_id)


def rows(start: int, stop: int) -> list[tuple[bytes, bytes, int]]:
    encode = msgspec.json.Encoder().encode
    return [
        (b"k%d" % (i % 5), encode(Sale(i / 2, ["x"] * (i % 3), None if i % 2 else "n")), AT_MS + 1000 * i)
        for i in range(start, stop)
    ]


def kept(folder: Path, app: Application, spark: SparkSession, as_of: str) -> dict[str, float]:
    return {r["key"]: r["value"] for r in app.store(spark, "totals", as_of=as_of).collect()}


def totals(stop: int) -> dict[str, float]:
    return {f"k{k}": sum(i / 2 for i in range(stop) if i % 5 == k) for k in range(5)}


def test_topics_stores_and_changelogs_are_what_the_application_wrote_and_holds(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, repository = live.application_id, str(tmp_path / "snapshots")
    live.create(2, live.topic("in"), live.topic("out"))
    live.produce(live.topic("in"), rows(0, 200))
    live.produce(live.topic("in"), [(b"k1", b"never", 1)], abort=True)
    app = Application(sales(app_id), app_id, connection, repository)
    with App(live, _sales(app_id)) as running:
        running.run(commit_every=50)
        compact(sales(app_id), application_id=app_id, connection=connection, repository=repository)
        live.produce(live.topic("in"), rows(200, 300))
        running.run(commit_every=50)
        windows = {k: v for (_, k), v in running.store("per-minute").items()}

    frame = app.topic(spark, live.topic("in"))
    fields = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    assert fields["value"] == "struct<amount:double,tags:array<string>,note:string>" and fields["key"] == "string"
    found = frame.orderBy("timestamp").select("key", "value.*", F.unix_millis("timestamp").alias("ms")).collect()
    assert [(r["key"], r["amount"], len(r["tags"]), r["note"], r["ms"]) for r in found] == [
        (f"k{i % 5}", i / 2, i % 3, None if i % 2 else "n", AT_MS + 1000 * i) for i in range(300)
    ]
    # The store now, at the commit of the savepoint, and folded from its changelog alone.
    assert kept(tmp_path, app, spark, "committed") == totals(300) == kept(tmp_path, app, spark, "end")
    assert kept(tmp_path, app, spark, "savepoint:latest") == totals(200)
    assert kept(tmp_path, Application(sales(app_id), app_id, connection), spark, "committed") == totals(300)
    minutes = app.store(spark, "per-minute").where("window_end = window_start + interval 1 minute").collect()
    assert {(r["key"], r["window_start"].timestamp() * 1000, r["value"]) for r in minutes} == {
        (k[8:].decode(), int.from_bytes(k[:8], "big"), int.from_bytes(v[8:], "big")) for k, v in windows.items()
    }
    changes = app.changelog(spark, "per-minute")
    assert changes.count() >= len(windows) and {"key", "window_start", "value", "offset"} <= set(changes.columns)
    outputs = app.topic(spark, live.topic("out"), columns=["key", "window_start", "value"])
    assert outputs.columns == ["key", "window_start", "value"] and outputs.count() == len(live.read(live.topic("out")))

    # Exact places: a time, a savepoint, offsets and partitions.
    later = datetime.fromtimestamp(AT_MS / 1000 + 200, UTC)
    assert app.topic(spark, live.topic("in"), since=later).count() == 100
    assert app.topic(spark, live.topic("in"), as_of="savepoint:latest").count() == 200
    assert app.topic(spark, live.topic("in"), since={0: 10, 1: 1 << 40}, as_of={0: 20, 1: 0}).count() == 10
    one = app.topic(spark, live.topic("in"), partitions=[1], columns=["partition"])
    assert {r["partition"] for r in one.collect()} == {1}


MODULE = """
import msgspec
import penstock as ps

class Sale(msgspec.Struct):
    amount: float

builder = ps.StreamsBuilder("sales", key=str, value=Sale)
builder.stream("{topic}").group_by_key().count(name="counts")
topology = builder.build()
"""


def test_the_data_source_reads_by_its_options(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    module = tmp_path / "sold.py"
    module.write_text(MODULE.format(topic=live.topic("in")))
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 50))
    reader = (
        register(spark)
        .read.format("penstock")
        .option("topology", str(module))
        .option("application_id", live.application_id)
        .option("bootstrap_servers", live.bootstrap_servers)
        .option("topic", live.topic("in"))
    )
    assert reader.load().agg(F.sum("value.amount")).first()[0] == sum(i / 2 for i in range(50))
    assert reader.option("columns", "key").load().distinct().count() == 5
    with pytest.raises(Exception, match="no column"):
        reader.option("columns", "colour").load().count()


def test_a_frame_is_written_once_however_often_the_job_runs(
    spark: SparkSession, connection: Connection, live: Live
) -> None:
    app_id, into = live.application_id, live.topic("out")
    live.create(3, live.topic("in"), into)
    live.produce(live.topic("in"), rows(0, 90))
    app = Application(sales(app_id), app_id, connection)
    frame = app.topic(spark, live.topic("in")).select("key", "value", "timestamp")
    how: dict[str, Any] = {"key": str, "value": Sale, "job": f"{app_id}-copy", "connection": connection}
    # An attempt that dies before its end leaves nothing to see, and nothing in the way.
    doomed = frame.withColumn("key", F.expr("if(value.amount > 40, raise_error('lost'), key)"))
    with pytest.raises(EnvironmentFault, match="lost"):
        write_topic(doomed, into, **how)
    assert live.read(into) == []
    assert write_topic(frame, into, **how).rows == 90
    again = write_topic(frame, into, **how)
    assert again.rows == 0 and again.skipped == (0, 1, 2)
    live.settled(into)
    assert sorted(live.read(into)) == sorted(live.read(live.topic("in"))), "bytes and partitions are the producers' own"

    wrong = frame.withColumn("value", F.struct(F.lit("much").alias("amount"), F.lit(0).alias("tags")))
    with pytest.raises(SerdeError, match="column value: serde json:Sale cannot write"):
        write_topic(wrong, into, **{**how, "job": "other"})
