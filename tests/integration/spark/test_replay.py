"""Replay against real Kafka: the outputs and stores of the live application, record for record."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from penstock.streams.spark.cluster import Connection
from penstock.streams.spark.published import load_replay
from penstock.streams.spark.replay_job import replay
from tests.integration.spark.live import App, Live
from tests.integration.spark.topologies import joined


def test_outputs_and_stores_are_those_of_the_live_run(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    random.seed(5)
    live.create(2, live.topic("a"), live.topic("t"), live.topic("out"))
    build = joined(live.application_id)
    with App(live, build()) as app:
        for k in range(4):
            rows = [(b"k%d" % random.randrange(20), b"%d" % i, 1000 * k + random.randrange(2000)) for i in range(400)]
            live.produce(live.topic("t"), rows[:100])
            live.produce(live.topic("a"), rows[100:])
            app.run(commit_every=100)
        result = replay(build, application_id=live.application_id, connection=connection, output=str(tmp_path / "o"))
        print(result)
        assert load_replay(str(tmp_path / "o")) == result.replay
        stores = app.store("seen"), app.store(live.topic("t"))
    replayed = {}
    for name in ("seen", live.topic("t")):
        for f in result.replay.store_files(name):
            for r in pq.read_table(tmp_path / "o" / f.path).to_pylist():
                replayed[name, f.partition, r["store_key"]] = r["timestamp_ms"].to_bytes(8, "big") + r["value"]
    live_stores = {("seen", *k): v for k, v in stores[0].items()} | {
        (live.topic("t"), *k): v for k, v in stores[1].items()
    }
    assert replayed == live_stores
    out = [(p, k, v, ts) for p, k, v, ts in live.read(live.topic("out"))]
    again = [
        (r["partition"], r["key"], r["value"], r["timestamp_ms"])
        for f in result.replay.output_files(live.topic("out"))
        for r in pq.read_table(tmp_path / "o" / f.path).to_pylist()
    ]
    assert sorted(out, key=lambda r: r[0]) == sorted(again, key=lambda r: r[0])
