"""DataFrames become the state that an application begins with: wholly or not at all, and its workers go on from there."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark import Application, Connection
from penstock.state.errors import EnvironmentFault, PenstockError, SerdeError, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import ClusterAddress, open_cluster
from penstock.streams.events.facts import RestoreFinished, SnapshotUsed
from penstock.streams.spark.handover.catch_up import catch_up
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.child_process import started
from tests.integration.spark.live import App, Live, Row
from tests.integration.spark.test_bootstrap import counts_from, rows, updates
from tests.integration.spark.test_catch_up import Seen
from tests.integration.spark.test_stream_kills import Job, alive
from tests.integration.spark.topologies import counted
from tests.integration.worker.application import UNDISTURBED, until

PARTITIONS = 2


def state_of(spark: SparkSession, given: list[Row]) -> dict[str, DataFrame]:
    """What the application would have counted of these."""
    counts = Counter(k for k, _, _ in given)
    ends = Counter(v[-1:] for _, v, _ in given if v is not None)
    return {name: spark.createDataFrame(list(c.items()), "key binary, value long") for name, c in
            (("counts", counts), ("ends", ends))}  # fmt: skip


def offsets(live: Live) -> Mapping[TopicPartition, int]:
    return live.settled(live.topic("in"))


def test_a_worker_goes_on_from_frames_wherever_the_job_is_killed(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    flag, repository = tmp_path / "die", str(tmp_path / "snapshots")
    build = counted(live.application_id, flag)
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends")))
    before = rows(0, 500)
    live.produce(live.topic("in"), before)
    begin, frames = offsets(live), state_of(spark, before)
    app = Application(build, live.application_id, connection, repository)
    settings = WorkerSettings(
        application_id=live.application_id,
        bootstrap_servers=live.bootstrap_servers,
        guarantee="exactly_once",
        state_dir=str(tmp_path / "state"),
        snapshots=repository,
        **UNDISTURBED,
    )
    for death in ("offsets_added", "committed"):
        flag.write_text(death)
        with pytest.raises(EnvironmentFault, match="initial state"):
            app.write_initial_state(frames, begin=begin)
        assert not flag.exists(), f"it was not killed at {death}"
    # Part of the state is there, and nobody runs with it.
    for unfinished in (Worker(build(), settings), Worker(build(), settings, partitions=[0])):
        with pytest.raises(SettingsError, match="has not ended"):
            unfinished.run()
    with pytest.raises(SettingsError, match="has not ended"):
        catch_up(build, settings)

    done = app.write_initial_state(frames, begin=begin)
    assert done.savepoint is not None and done.skipped, "a killed run had committed some of it"
    assert {bytes(r["key"]): r["value"] for r in app.store(spark, "counts").collect()} == Counter(
        k for k, _, _ in before
    )
    more = rows(500, 900)
    live.produce(live.topic("in"), more)
    seen = Seen()
    worker = Worker(build(), settings, events=seen)
    worker.start()
    try:
        until("the worker has done it", lambda: sum(map(len, updates(live, "out").values())) == len(more))
        until("all of it", lambda: sum(map(len, updates(live, "ends").values())) == len(more))
    finally:
        worker.stop()
    assert updates(live, "out") == counts_from(before, more, None)
    assert updates(live, "ends") == counts_from(before, more, slice(-1, None))
    assert sum(isinstance(f, SnapshotUsed) for f in seen.facts) == 2 * PARTITIONS
    assert all(f.records == 0 for f in seen.facts if isinstance(f, RestoreFinished))
    with pytest.raises(SettingsError, match="so it has run, or has its initial state"):
        app.write_initial_state(frames, begin=begin)


@pytest.mark.long
def test_the_next_run_ends_what_a_killed_driver_left_open(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    """Its transactions last for 15 minutes, and those who read committed records would wait for them."""
    flag, log = tmp_path / "die", tmp_path / "killed.log"
    build = counted(live.application_id, flag)
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends")))
    live.produce(live.topic("in"), rows(0, 100))
    begin, counts = offsets(live), {f"k{i}": i for i in range(40)}
    flag.write_text("freeze offsets_added")
    order = {
        "application_id": live.application_id,
        "bootstrap_servers": live.bootstrap_servers,
        "flag": str(flag),
        "begin": [(*tp, at) for tp, at in begin.items()],
        "counts": counts,
    }
    killed = Job(started("tests.integration.spark.initial_state_process", order, log), log)
    try:
        until("it has frozen", alive(killed, lambda: not flag.exists() and killed.frozen()))
    finally:
        killed.signal_all(signal.SIGKILL)
        killed.process.wait(60)
    changelog = f"{live.application_id}-counts-changelog"
    written = [TopicPartition(changelog, p) for p in range(PARTITIONS)]
    with open_cluster(ClusterAddress(live.bootstrap_servers), live.application_id) as cluster:
        assert cluster.open_transactions(cluster.ends(written))
        app = Application(build, live.application_id, connection)
        frame = spark.createDataFrame([(k.encode(), n) for k, n in counts.items()], "key binary, value long")
        app.write_initial_state({"counts": frame}, begin=begin)
        _, settled = cluster.settled_ends(written, 60.0)
        assert settled
    assert {bytes(r["key"]).decode(): r["value"] for r in app.store(spark, "counts").collect()} == counts
    assert len(live.read(changelog)) == len(counts)


def test_state_that_does_not_fit_is_refused_and_nothing_is_written(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends")))
    app = Application(counted(live.application_id, tmp_path / "die"), live.application_id, connection)
    counts = state_of(spark, rows(0, 100))["counts"]
    wrong: list[tuple[dict[str, DataFrame], type[PenstockError], str]] = [
        ({"counts": counts.drop("value")}, SettingsError, "no column value"),
        ({"other": counts}, SettingsError, "has no store 'other'"),
        (
            {"counts": counts.withColumn("value", F.lit("many"))},
            SerdeError,
            "column value: serde int cannot write 'many'",
        ),
        ({"counts": counts.union(counts)}, SettingsError, "have a key of their own"),
    ]
    for frames, error, text in wrong:
        with pytest.raises(error, match=text):
            app.write_initial_state(frames, begin="end")
    with pytest.raises(SettingsError, match="is not a point"):
        app.write_initial_state({"counts": counts}, begin="now")
    assert live.read(f"{live.application_id}-counts-changelog") == []
    # None of them committed anything, so the right frame is taken.
    assert app.write_initial_state({"counts": counts}, begin="end").rows == counts.count()

    other = dataclasses.replace(app, application_id=f"{live.application_id}-2")
    live.create(PARTITIONS, f"{other.application_id}-counts-changelog")
    live.produce(f"{other.application_id}-counts-changelog", [(b"k", bytes(8), 1)], partition=1)
    with pytest.raises(SettingsError, match=r"changelog \[1\] holds a record at offset 0"):
        dataclasses.replace(
            other, topology=counted(other.application_id, tmp_path / "die", prefix=live.application_id)
        ).write_initial_state({"counts": counts}, begin="end")


def test_an_application_that_has_run_is_refused(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends")))
    live.produce(live.topic("in"), rows(0, 100))
    build = counted(live.application_id, tmp_path / "die")
    with App(live, build()) as running:
        running.run()
    app = Application(build, live.application_id, connection)
    with pytest.raises(SettingsError, match="so it has run"):
        app.write_initial_state(state_of(spark, rows(0, 100)), begin="end")
