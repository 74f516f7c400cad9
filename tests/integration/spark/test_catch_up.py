"""Spark works off a backlog and hands it back: nothing doubled wherever it is killed, and no restore afterwards."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, SettingsError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.state.serdes.serde import serde_of
from penstock.streams.batch.cluster import ClusterAddress, open_cluster, open_consumer, open_transactional, retried
from penstock.streams.batch.handover import worker_exclusion
from penstock.streams.batch.handover.piece import SNAPSHOTS, PieceJob, run_piece
from penstock.streams.batch.handover.rounds import Rounds
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.events.facts import Fact, RestoreFinished, SnapshotUsed
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.fixed_fence import fixed_id, mark_fixed
from penstock.streams.spark.handover.catch_up import catch_up
from penstock.streams.spark.handover.job import Handover, executors_settings, work_off_held
from penstock.streams.spark.shipping import ship
from penstock.streams.worker.fixed_worker_lock import presence_group
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.spark.live import App, Live, Row
from tests.integration.spark.topologies import counted
from tests.integration.worker.application import UNDISTURBED, until

PARTITIONS = 2
DEATHS = ("sent", "offsets_added", "committed", SNAPSHOTS[0])
number = serde_of(int).deserialize


def rows(start: int, stop: int) -> list[Row]:
    return [(b"k%d" % (i % 50), b"%d" % i, 1000 + i) for i in range(start, stop)]


def assert_updated_once(live: Live, topic: str, keys: Iterable[bytes | None]) -> None:
    """Every update of every count stands in the topic once, in its order: as often as its key is in ``keys``."""
    by_key: dict[bytes | None, list[int]] = {}
    for _, key, value, _ in live.read(live.topic(topic)):
        assert value is not None
        by_key.setdefault(key, []).append(number(value))
    assert by_key == {key: list(range(1, n + 1)) for key, n in Counter(keys).items()}


def assert_counted_once(live: Live, given: list[Row]) -> None:
    """Every update of both counts stands in the outputs once."""
    assert_updated_once(live, "out", [key for key, _, _ in given])
    assert_updated_once(live, "ends", [v[-1:] for _, v, _ in given if v])


class Seen:
    """The facts of a worker."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def emit(self, fact: Fact) -> None:
        self.facts.append(fact)

    def measure(self, measurement: object) -> None:
        pass


def test_what_a_killed_job_left_open_ends_before_the_next_one_plans(live: Live) -> None:
    app_id, partition = live.application_id, TopicPartition(live.topic("in"), 0)
    live.create(1, partition.topic, live.topic("out"))
    address = ClusterAddress(live.bootstrap_servers)
    killed = open_transactional(address, fixed_id(app_id, 0), timeout_ms=600_000)
    retried(lambda: killed.init_transactions(60.0))
    marks = open_consumer(address, presence_group(app_id))
    retried(lambda: mark_fixed(marks, [partition]))
    marks.close()
    killed.begin()
    killed.send(live.topic("out"), [b"k"], [b"v"], [1])
    killed.flush(60.0)
    killed.send_offsets({partition: OffsetAndMetadata(7, "")}, app_id, 60.0)
    settings = WorkerSettings(application_id=app_id, bootstrap_servers=live.bootstrap_servers, guarantee="exactly_once")
    written = TopicPartition(live.topic("out"), 0)
    with open_cluster(address, app_id) as cluster:
        assert cluster.open_transactions(cluster.ends([written]))
        with kept_away(settings, [partition]):
            assert not cluster.open_transactions(cluster.ends([written]))
            assert cluster.committed([partition]) == {}
    with pytest.raises(TaskMigratedError):
        killed.commit(60.0)
    killed.close()


def test_a_job_that_was_frozen_begins_nothing_more_when_it_wakes(
    spark: SparkSession, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would drop outputs, as a bootstrap does, of what those who came have to answer."""
    live.create(PARTITIONS, *map(live.topic, ("in", "out", "ends")))
    given = rows(0, 200)
    live.produce(live.topic("in"), given)
    settings = WorkerSettings(
        application_id=live.application_id, bootstrap_servers=live.bootstrap_servers, guarantee="exactly_once"
    )
    build = counted(live.application_id, tmp_path / "die")
    dropping = Handover(build, settings, {live.topic("out"): None, live.topic("ends"): None})
    layout, until_end = dropping.prepare(), live.settled(live.topic("in"))
    with open_cluster(ClusterAddress(live.bootstrap_servers), live.application_id) as cluster:
        rounds = Rounds(build(), live.application_id, layout, cluster, until_end)
        with kept_away(settings, dropping.inputs(layout)) as hold:
            job = PieceJob(ship(build), executors_settings(dropping), hold.member, dropping.outputs, None)
            late = rounds.pieces(rounds.levels[0])
            monkeypatch.setattr(worker_exclusion, "SESSION_MS", 0)
            with pytest.raises(TaskMigratedError, match="start it again"):
                work_off_held(spark, dropping, layout, until_end, hold)
            monkeypatch.undo()
            admin = worker_exclusion.open_admin(ClusterAddress(live.bootstrap_servers))
            until("it has left", lambda: admin.group_members(presence_group(live.application_id)) == 0)
        # Executors that Spark sends work to when nobody is there, and when another job is.
        for piece in late:
            with pytest.raises(TaskMigratedError, match="start it again"):
                run_piece(job, piece)
        with kept_away(settings, dropping.inputs(layout)) as hold:
            for piece in late:
                with pytest.raises(TaskMigratedError, match="start it again"):
                    run_piece(job, piece)
            present = dataclasses.replace(job, member=hold.member, outputs={})
            for level in rounds.levels:
                pieces = rounds.pieces(level)
                for piece in pieces:
                    run_piece(present, piece)
                rounds.done(pieces)
    assert_counted_once(live, given)


def test_a_backlog_goes_to_spark_and_back_exactly_once_wherever_it_is_killed(
    spark: SparkSession, live: Live, tmp_path: Path
) -> None:
    app_id, flag, repository = live.application_id, tmp_path / "die", str(tmp_path / "snapshots")
    build = counted(app_id, flag)
    live.create(PARTITIONS, live.topic("in"), live.topic("out"), live.topic("ends"))
    given = rows(0, 500)
    live.produce(live.topic("in"), given)
    with App(live, build()) as app:
        app.run(commit_every=100)
    backlog = rows(500, 12_000)
    live.produce(live.topic("in"), backlog)
    given += backlog
    settings = WorkerSettings(
        application_id=app_id,
        bootstrap_servers=live.bootstrap_servers,
        guarantee="exactly_once",
        state_dir=str(tmp_path / "state"),
        snapshots=repository,
        session_timeout_ms=6_000,
    )
    with pytest.raises(SettingsError, match="exactly_once only"):
        catch_up(build, WorkerSettings(application_id=app_id, bootstrap_servers=live.bootstrap_servers))

    for step in DEATHS:
        flag.write_text(step)
        with pytest.raises(EnvironmentFault, match="handover"):
            catch_up(build, settings)
        assert not flag.exists(), f"no process came to {step}"
    done = catch_up(build, settings)
    assert done.savepoint is not None, done.no_savepoint
    assert_counted_once(live, given)
    # Nothing is left to do, and that is not done again.
    assert catch_up(build, settings).work.records == 0

    late = rows(12_000, 12_600)
    seen = Seen()
    undisturbed = dataclasses.replace(settings, **UNDISTURBED)
    worker = Worker(build(), undisturbed, events=seen)
    worker.start()
    try:
        until(
            "the worker has its stores",
            lambda: sum(isinstance(f, RestoreFinished) for f in seen.facts) == 2 * PARTITIONS,
        )
        assert sum(isinstance(f, SnapshotUsed) for f in seen.facts) == 2 * PARTITIONS
        assert all(f.records == 0 for f in seen.facts if isinstance(f, RestoreFinished))
        with pytest.raises(SettingsError, match="stop the group's workers first"):
            catch_up(build, settings)
        live.produce(live.topic("in"), late)
        given += late
        until("the worker has done it", lambda: len(live.read(live.topic("ends"))) == len(given), every_s=2.0)
    finally:
        worker.stop()
    assert_counted_once(live, given)
