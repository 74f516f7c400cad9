"""Replay against real Kafka: what the live application made, from the start, from a savepoint, and recomputed."""

from __future__ import annotations

import random
import time
from functools import partial
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, IncompatibleError, SettingsError
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.published import Replay, load_replay
from penstock.streams.batch.replay_plan import plan_replay
from penstock.streams.batch.replay_run import make_job
from penstock.streams.batch.stateless_pieces import in_pieces
from penstock.streams.spark import Connection, compact, replay, replay_job, verify
from penstock.streams.spark.output_rows import output_rows
from penstock.streams.spark.replay_job import run_replay
from penstock.streams.spark.shipping import ship
from penstock.streams.task.task_options import TaskOptions
from tests.integration.spark.live import App, Live
from tests.integration.spark.topologies import joined, kept_halves, windowed

Entries = dict[tuple[int, bytes], bytes]


def stored(folder: Path, done: Replay, store: str) -> Entries:
    """A replayed store, by partition and store key."""
    return {
        (f.partition, r["store_key"]): r["timestamp_ms"].to_bytes(8, "big") + r["value"]
        for f in done.store_files(store)
        for r in pq.read_table(folder / f.path).to_pylist()
    }


def burst(live: Live, rng: random.Random, base_ms: int) -> None:
    rows = [(b"k%d" % rng.randrange(20), b"%d" % i, base_ms + rng.randrange(2000)) for i in range(200)]
    live.produce(live.topic("t"), rows[:50])
    live.produce(live.topic("a"), [(b"k1", b"never", base_ms)], abort=True)
    live.produce(live.topic("a"), rows[50:])


def test_outputs_and_stores_are_the_live_ones_from_the_start_and_from_a_savepoint(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, out = live.application_id, live.topic("out")
    live.create(2, live.topic("a"), live.topic("t"), out)
    rng = random.Random(5)
    with App(live, joined(app_id)()) as app:
        for k in range(2):
            burst(live, rng, 1000 * k)
            app.run(commit_every=60)
        repository = str(tmp_path / "snapshots")
        compact(joined(app_id), application_id=app_id, connection=connection, repository=repository)
        before = len(live.read(out))
        burst(live, rng, 1500)
        app.run(commit_every=60)
        stores = {name: app.store(name) for name in ("seen", live.topic("t"))}
    wrote = live.read(out)

    whole = replay(joined(app_id), application_id=app_id, connection=connection, output=str(tmp_path / "whole"))
    assert load_replay(str(tmp_path / "whole")) == whole.replay
    assert {name: stored(tmp_path / "whole", whole.replay, name) for name in stores} == stores
    made = [
        (r["partition"], r["key"], r["value"], r["timestamp_ms"])
        for f in whole.replay.output_files(out)
        for r in pq.read_table(tmp_path / "whole" / f.path).to_pylist()
    ]
    assert sorted(made, key=lambda r: r[0]) == sorted(wrote, key=lambda r: r[0])
    assert not any(b"never" in r[2] for r in made)
    ends = {s.snapshot.changelog_offset for t in whole.replay.tasks for s in t.stores if s.snapshot is not None}
    assert len(ends) == 4, "every store partition that ends at the commit is a snapshot too"

    tail = replay(
        joined(app_id),
        application_id=app_id,
        connection=connection,
        output=str(tmp_path / "tail"),
        from_="savepoint:latest",
        repository=repository,
    )
    assert tail.replay.records == 200 and whole.replay.records == 600
    assert {name: stored(tmp_path / "tail", tail.replay, name) for name in stores} == stores
    assert sum(f.rows for f in tail.replay.output_files(out)) == len(wrote) - before

    with pytest.raises(SettingsError, match="the stores there are not known"):
        replay(joined(app_id), application_id=app_id, connection=connection, output="unused", from_="12")


def test_a_recomputed_repartition_gives_the_same_stores(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id = live.application_id
    live.create(2, live.topic("a"), live.topic("out"))
    # The changelog of windows forgets what is old by the clock.
    now_ms = int(time.time() * 1000)
    live.produce(live.topic("a"), [(b"k%d" % (i % 9), b"%d" % i, now_ms + 10 * i) for i in range(400)])
    with App(live, windowed(app_id)()) as app:
        app.run(commit_every=50)
        windows = app.store("per-window")
    for recompute in (False, True):
        output = tmp_path / f"recompute-{recompute}"
        done = replay(
            windowed(app_id), application_id=app_id, connection=connection, output=str(output), recompute=recompute
        )
        assert stored(output, done.replay, "per-window") == windows


def test_lost_records_fail_the_job_and_nothing_is_published(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, output = live.application_id, str(tmp_path / "o")
    live.create(1, live.topic("a"), live.topic("t"), live.topic("out"))
    live.produce(live.topic("a"), [(b"k", b"%d" % i, i) for i in range(50)])
    with App(live, joined(app_id)()) as app:
        app.run()
    with open_cluster(connection, app_id) as cluster:
        plan = plan_replay(joined(app_id)(), app_id, cluster)
    live.delete_records(live.topic("a"), 10)
    job = make_job(plan, ship(joined(app_id)), output, TaskOptions(), {}, None)
    with pytest.raises(EnvironmentFault, match="no longer in Kafka"):
        run_replay(spark, connection, plan, job)
    with pytest.raises(IncompatibleError, match="begins at offset 10"):
        replay(joined(app_id), application_id=app_id, connection=connection, output=output)
    with pytest.raises(SettingsError, match="no finished replay"):
        load_replay(output)


def test_a_stateless_task_is_processed_in_pieces(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_job, "in_pieces", partial(in_pieces, piece_records=2_000))
    source, out, name = live.topic("a"), live.topic("out"), live.application_id
    live.create(1, source, out)
    live.produce(source, [(b"k%d" % (i % 7), b"%d" % i, i // 3) for i in range(6_000)])
    with App(live, kept_halves(name)()) as app:
        app.run(commit_every=1_000)
    done = replay(kept_halves(name), application_id=name, connection=connection, output=str(tmp_path)).replay
    files = done.output_files(out)
    assert len(files) == 3, "one of each piece"
    rows = output_rows(spark, str(tmp_path), files).orderBy("seq").collect()
    wrote = live.read(out)
    assert [(r["partition"], r["key"], r["value"], r["timestamp_ms"]) for r in rows] == wrote
    assert [r["seq"] for r in rows] == list(range(len(wrote)))
    assert [r["running_max_ms"] for r in rows] == list(accumulate((ms for *_, ms in wrote), max))
    (task,) = done.tasks
    assert task.records == 6_000
    same = verify(kept_halves(name), application_id=name, connection=connection)
    assert same.same and [c.mode for c in same.comparisons] == ["sequence"], same
    other = verify(kept_halves(name, left_out=b"5002"), application_id=name, connection=connection)
    (compared,) = other.comparisons
    assert compared.first is not None and compared.first.input == (source, 0, 5_002)
