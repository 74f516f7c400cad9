"""Compaction against real Kafka: what a worker ingests is what the changelog says, whoever else compacts or dies."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, IncompatibleError
from penstock.state.log import TopicPartition
from penstock.state.recovery.position import decode_position
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.compact_executor import CompactTarget
from penstock.streams.batch.compaction_plan import CompactResult, plan_compaction
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.batch.split_compaction import ChangelogPiece, pieces
from penstock.streams.spark import Connection, compact
from penstock.streams.spark.compaction import run_compaction
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.spark.live import LIMIT_S, App, Live, command
from tests.integration.spark.topologies import last, windowed
from tests.integration.worker.application import until

Entries = dict[tuple[int, bytes], bytes]


def ingested(tmp_path: Path, live: Live, store: str) -> Entries:
    """The newest snapshots of both partitions, through RocksDB."""
    repository = open_repository(tmp_path / "snapshots")
    out: Entries = {}
    for p in range(2):
        manifest = repository.newest(StorePartition(live.application_id, store, p))
        assert manifest is not None
        work = tmp_path / uuid.uuid4().hex
        backend = RocksDBBackend(work / "db", [store])
        backend.ingest(store, repository.fetch(manifest, work / "files"))
        position = decode_position(backend.position(store) or b"")
        assert position.changelog_offset == manifest.changelog_offset
        assert position.input_offsets == (manifest.offsets() or {})
        out |= {(p, k): v for k, v in backend.range(store, None, None)}
        backend.close()
    return out


def rows(start: int, stop: int) -> list[tuple[bytes, bytes, int]]:
    """250 keys of all byte values; every seventh record deletes its key."""
    return [(bytes([i * 7 % 250, 255 - i % 250]), b"x" if i % 7 == 0 else b"%d" % i, i) for i in range(start, stop)]


def test_snapshots_equal_the_live_store_first_whole_and_then_over_a_snapshot(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, repository = live.application_id, str(tmp_path / "snapshots")
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 2000))
    live.produce(live.topic("in"), [(b"aborted", b"never", 1)], abort=True)
    # A part of the changelog that no commit covers: readers of committed records never see it.
    with App(live, last(app_id)()) as app:
        app.run(commit_every=300)
        live.produce(f"{app_id}-last-changelog", [(b"aborted", b"never", 1)], abort=True)
        first = compact(last(app_id), application_id=app_id, connection=connection, repository=repository)
        assert [s.read_from for s in first.stores] == [0, 0]
        assert ingested(tmp_path, live, "last") == app.store("last")
        assert all(b"aborted" not in k for _, k in app.store("last"))

        again = compact(last(app_id), application_id=app_id, connection=connection, repository=repository)
        assert [s.read_from for s in again.stores] == [None, None], "nothing new was read, so nothing is rewritten"
        assert [s.manifest for s in again.stores] == [s.manifest for s in first.stores]

        live.produce(live.topic("in"), rows(2000, 2600))
        app.run(commit_every=300)
        over = compact(last(app_id), application_id=app_id, connection=connection, repository=repository)
        offsets = [s.manifest.changelog_offset for s in first.stores]
        assert [s.read_from for s in over.stores] == offsets
        assert ingested(tmp_path, live, "last") == app.store("last")
        saved = SavepointRepository(repository).load(app_id)
        assert saved.name == over.savepoint
        assert {i.offset for i in saved.inputs} == {
            offset for s in over.stores for _, _, offset in s.manifest.input_offsets or ()
        }

        # The same again by two at once, from the beginning: either one's snapshots are whole.
        failures: list[BaseException] = []

        def job() -> None:
            try:
                compact(
                    last(app_id),
                    application_id=app_id,
                    connection=connection,
                    repository=repository,
                    full=True,
                    at="end",
                )
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=job) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not failures
        assert ingested(tmp_path, live, "last") == app.store("last")


def test_a_store_that_was_lost_with_its_snapshots_is_rebuilt_in_pieces(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, repository = live.application_id, str(tmp_path / "snapshots")
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 2000))
    cut: list[ChangelogPiece] = []

    def split(targets: Sequence[CompactTarget], slots: int) -> list[ChangelogPiece]:
        # Of one partition only: the other one goes to an executor alone, in the same job.
        cut.extend(pieces([t for t in targets if t.partition == 0], 5, piece_records=20))
        return cut

    with App(live, last(app_id)()) as app:
        app.run(commit_every=300)
        live.produce(f"{app_id}-last-changelog", [(b"aborted", b"never", 1)], abort=True)
        with open_cluster(connection, app_id) as cluster:
            plan = plan_compaction(last(app_id)(), app_id, cluster, repository, now_ms=1)
        done = run_compaction(spark, connection, repository, plan, file_bytes=500, split=split)
        assert len(cut) == 5 and {piece.target.partition for piece in cut} == {0}
        for manifest in done.values():
            open_repository(repository).publish(manifest)
        assert ingested(tmp_path, live, "last") == app.store("last")
        assert len(done[cut[0].target.place].files) > 5, "a file with the position, and some of each range"


def test_a_changelog_is_trimmed_behind_its_snapshot(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, repository, topic = (
        live.application_id,
        str(tmp_path / "snapshots"),
        f"{live.application_id}-last-changelog",
    )
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 2000))

    def compacted() -> CompactResult:
        return compact(last(app_id), application_id=app_id, connection=connection, repository=repository, trim=True)

    def begins() -> list[int]:
        with open_cluster(connection, app_id) as cluster:
            return [begin for begin, _ in cluster.ends([TopicPartition(topic, p) for p in range(2)]).values()]

    def worker(**more: str) -> Worker:
        return Worker(
            last(app_id)(),
            WorkerSettings(
                application_id=app_id,
                bootstrap_servers=live.bootstrap_servers,
                state_dir=str(tmp_path / "state"),
                guarantee="exactly_once",
                **more,  # type: ignore[arg-type]  # settings that are texts
            ),
        )

    with App(live, last(app_id)()) as app:
        app.run(commit_every=300)
        first = compacted()
        assert begins() == [s.manifest.changelog_offset for s in first.stores]
        live.produce(live.topic("in"), rows(2000, 2600))
        app.run(commit_every=300)
        compacted()
        assert begins() == [s.manifest.changelog_offset for s in first.stores], "both are kept"
        assert ingested(tmp_path, live, "last") == app.store("last")
        # Each value continues the one that was restored; a store has 8 bytes of time before it.
        expected = {place: (value[8:] + b"+")[-20:] for place, value in app.store("last").items()}
    with pytest.raises(IncompatibleError, match="does not hold the whole store"):
        worker().run()
    restored = worker(snapshots=repository)
    restored.start()
    try:
        live.produce(live.topic("in"), [(key, b"+", 9_999) for _, key in expected])

        def now() -> dict[tuple[int, bytes], bytes]:
            compacted()
            return {place: value[8:] for place, value in ingested(tmp_path, live, "last").items()}

        until("all that was sent is in the store", lambda: now() == expected, LIMIT_S)
    finally:
        restored.stop()


def test_window_stores_are_keyed_by_start(spark: SparkSession, live: Live, tmp_path: Path) -> None:
    app_id = live.application_id
    live.create(2, live.topic("a"), live.topic("out"))
    # The changelog of windows forgets what is old by the clock.
    now_ms = int(time.time() * 1000)
    live.produce(live.topic("a"), [(b"k", b"%d" % i, now_ms + 10 * i) for i in range(300)])
    with App(live, windowed(app_id)()) as app:
        app.run()
        (tmp_path / "windows.py").write_text(
            f"from tests.integration.spark.topologies import windowed\ntopology = windowed({app_id!r})\n"
        )
        assert command("compact", f"{tmp_path}/windows.py", live, "--repository", str(tmp_path / "snapshots")) == 0
        assert ingested(tmp_path, live, "per-window") == app.store("per-window")


def published(tmp_path: Path, live: Live) -> list[Manifest]:
    repository = open_repository(tmp_path / "snapshots")
    return [m for p in range(2) for m in repository.find(StorePartition(live.application_id, "last", p)).manifests]


def test_a_job_that_dies_publishes_nothing_and_lost_records_are_refused(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, repository = live.application_id, str(tmp_path / "snapshots")
    changelog = f"{app_id}-last-changelog"
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 600))
    with App(live, last(app_id)()) as app:
        app.run(commit_every=50)
        expected = app.store("last")
    with open_cluster(connection, app_id) as cluster:
        plan = plan_compaction(last(app_id)(), app_id, cluster, repository, now_ms=1)
    # Every file is uploaded, and the driver dies before it publishes.
    run_compaction(spark, connection, repository, plan)
    assert list((tmp_path / "snapshots").rglob("*.sst")) and not published(tmp_path, live)
    compact(last(app_id), application_id=app_id, connection=connection, repository=repository)
    assert ingested(tmp_path, live, "last") == expected

    # Records vanish between the decision and the reading.
    live.delete_records(changelog, 40)
    with pytest.raises(EnvironmentFault, match="no longer in Kafka"):
        run_compaction(spark, connection, str(tmp_path / "other"), plan)
    assert not list((tmp_path / "other").rglob("manifest*"))
    # And before the decision: what was compacted earlier still helps, without it there is no whole store.
    with pytest.raises(IncompatibleError, match="no longer holds the whole store"):
        compact(last(app_id), application_id=app_id, connection=connection, repository=str(tmp_path / "other"))
    compact(last(app_id), application_id=app_id, connection=connection, repository=repository)
    assert ingested(tmp_path, live, "last") == expected
