"""Drivers that are killed with their JVM at each step that changes something: what is there is the old result whole or the
new one, and the same command, given again, finishes with nothing doubled."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.snapshots.manifest import StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.published import check_files, kept_replays, load_replay
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.spark.lake.catalog import use_catalog
from tests.integration.spark.driver import Driver
from tests.integration.spark.held_topology import build
from tests.integration.spark.holding import Hold
from tests.integration.spark.live import App, Live, command
from tests.integration.spark.test_catch_up import assert_updated_once, number
from tests.integration.spark.test_cluster import STORES, rows, topology_file
from tests.integration.spark.test_replay import stored

QUICK = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Job:
    """A command in a driver of its own, again and again."""

    def __init__(self, live: Live, folder: Path, name: str, *more: str) -> None:
        self._live, self._folder, self._name, self._more = live, folder, name, more
        self.holds = folder / "holds"
        folder.mkdir()
        self.holds.mkdir()
        self._file = topology_file(folder / "work", live, self.holds)
        self._argv = [
            name,
            self._file,
            *("--application-id", live.application_id, "--bootstrap-server", live.bootstrap_servers),
            *("--guarantee", "exactly_once", "--master", "local[2]", "--spark-conf", QUICK),
            *("--spark-conf", "spark.sql.shuffle.partitions=2"),
            *more,
        ]

    @property
    def work(self) -> Path:
        """Where the command is given."""
        return self._folder / "work"

    def die_at(self, place: str) -> None:
        """Run it until it comes there, and kill it."""
        with Hold(self.holds, place) as hold, Driver(self.work, holds=self.holds) as driver:
            driver.begin(*self._argv)
            hold.wait()
            driver.kill()

    def run(self) -> str:
        """Run it to its end; returns what it has printed."""
        with Driver(self.work) as driver:
            driver.begin(*self._argv)
            code, said = driver.end()
        assert code == 0, driver.log.read_text()[-5000:]
        return said

    def run_here(self) -> None:
        """Run it in the session of the tests, which is there already."""
        assert command(self._name, str(self.work / self._file), self._live, *self._more) == 0


long = pytest.mark.long
Entries = dict[tuple[int, bytes], bytes]


def dying_at(once: Sequence[str], everywhere: Sequence[str], *, in_ci: bool = True) -> pytest.MarkDecorator:
    """Two cases of a test, whose driver dies at one place after the other. The second one is long, and so is the first one
    unless it is for CI."""
    short = pytest.param(once, id="once", marks=() if in_ci else long)
    return pytest.mark.parametrize("places", [short, pytest.param(everywhere, id="everywhere", marks=long)])


class Fed:
    """The application of ``held_topology`` in this process, with what it must have."""

    def __init__(self, live: Live, app: App) -> None:
        self.live, self._app, self.stop = live, app, 0

    def feed(self, more: int = 100) -> None:
        """More records, which it processes."""
        self.live.produce(self.live.topic("in"), rows(self.stop, self.stop + more))
        self.stop += more
        self._app.run(commit_every=70)

    def stores(self) -> dict[str, Entries]:
        return {store: self._app.store(store) for store in STORES}

    def outputs(self) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
        """Partition, key and value of what it has written, by topic."""
        names = map(self.live.topic, ("out", "digits"))
        return {name: sorted((p, k, v) for p, k, v, _ in self.live.read(name)) for name in names}


@contextmanager
def fed(live: Live, holds: Path) -> Iterator[Fed]:
    """The application, with some records behind it."""
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    with App(live, build(live.application_id, str(holds))) as app:
        running = Fed(live, app)
        running.feed(200)
        yield running


def saved_stores(repository: Path, live: Live, folder: Path) -> dict[str, Entries]:
    """The stores as the latest savepoint has them."""
    saved, snapshots = SavepointRepository(str(repository)), open_repository(repository)
    savepoint = saved.load(live.application_id)
    found: dict[str, Entries] = defaultdict(dict)
    for store, partition in ((s.store, s.partition) for s in savepoint.stores):
        manifest = saved.manifest(savepoint, StorePartition(live.application_id, store, partition))
        work = folder / uuid.uuid4().hex
        backend = RocksDBBackend(work / "db", [store])
        backend.ingest(store, snapshots.fetch(manifest, work / "files"))
        found[store] |= {(partition, k): v for k, v in backend.range(store, None, None)}
        backend.close()
    return found


@dying_at(
    ["savepoint-publishing"],
    [
        *("snapshot-publishing", "publish.checked", "publish.done", "savepoint-publishing"),
        *("savepoint-published", "prune.manifests_removed", "prune.done"),
    ],
)
def test_a_savepoint_is_the_old_one_or_the_new_one(
    spark: SparkSession, live: Live, tmp_path: Path, places: Sequence[str]
) -> None:
    repository, fetched = tmp_path / "snapshots", tmp_path / "fetched"
    keep = ["--keep", "1", "--keep-savepoints", "1"]
    job = Job(live, tmp_path / "compact", "compact", "--repository", str(repository), *keep)
    with fed(live, job.holds) as app:
        job.run_here()
        old = app.stores()
        for place in places:
            app.feed()
            job.die_at(place)
            new = app.stores()
            published = place == "savepoint-published" or place.startswith("prune")
            assert assert_whole(live, repository, fetched) == 4
            assert saved_stores(repository, live, fetched) == (new if published else old) != (old if published else new)
            old = new if published else old
        app.feed()
        job.run_here()
        assert saved_stores(repository, live, fetched) == app.stores()
    snapshots = open_repository(repository)
    assert [len(snapshots.find(of).manifests) for of in snapshots.contents(live.application_id)] == [1] * 4
    assert len(SavepointRepository(str(repository)).names(live.application_id)) == 1


def outputs_of(folder: Path) -> dict[str, list[tuple[int, bytes | None, bytes | None]]]:
    """Partition, key and value of the outputs of the replay that is shown, by topic."""
    done = load_replay(str(folder))
    check_files(str(folder), done)
    found: dict[str, list[tuple[int, bytes | None, bytes | None]]] = {}
    for file in (o for task in done.tasks for o in task.outputs):
        made = pq.read_table(folder / file.path).to_pylist()
        found[file.topic] = sorted(found.get(file.topic, []) + [(r["partition"], r["key"], r["value"]) for r in made])
    return found


@dying_at(
    ["replay-publishing"],
    ["value", "snapshot-publishing", "publish.done", "replay-publishing", "replay-published"],
)
def test_a_replay_is_the_old_one_or_the_new_one(
    spark: SparkSession, live: Live, tmp_path: Path, places: Sequence[str]
) -> None:
    replayed = tmp_path / "replayed"
    job = Job(live, tmp_path / "replay", "replay", "--output", str(replayed), "--keep", "1")

    def shown() -> tuple[Any, Any]:
        done, made = load_replay(str(replayed)), outputs_of(replayed)
        outputs = {name: made[name] for name in map(live.topic, ("out", "digits"))}
        return outputs, {store: stored(replayed, done, store) for store in STORES}

    with fed(live, job.holds) as app:
        job.run_here()
        old = app.outputs(), app.stores()
        for place in places:
            app.feed()
            job.die_at(place)
            new = app.outputs(), app.stores()
            published = place == "replay-published"
            assert shown() == (new if published else old) != (old if published else new)
            assert_whole(live, replayed / "snapshots", tmp_path / "fetched")
            old = new if published else old
        app.feed()
        job.run_here()
        assert shown() == (app.outputs(), app.stores())
    assert len(kept_replays(str(replayed))) == 1


@long
def test_a_table_has_the_rows_of_a_store_as_they_were_or_are(spark: SparkSession, live: Live, tmp_path: Path) -> None:
    job = Job(
        live, tmp_path / "lake", "lake", "--store", "counts", "--table", "lake.shop.sold", "--warehouse", "warehouse"
    )

    def counted(stop: int) -> list[tuple[str, int]]:
        return sorted(Counter(str(key, "utf8") for key, _, _ in rows(0, stop) if key).items())

    with fed(live, job.holds) as app:
        job.run()
        old = counted(app.stop)
        for place in ("table-writing", "table-expiring"):
            app.feed()
            job.die_at(place)
            new = counted(app.stop)
            old = old if place == "table-writing" else new
            assert sorted(table(spark, job.work / "warehouse")) == old
        app.feed()
        job.run()
        assert sorted(table(spark, job.work / "warehouse")) == counted(app.stop)


def table(spark: SparkSession, warehouse: Path, name: str = "sold") -> list[tuple[str, int]]:
    """The rows of the table as it is now: a catalog caches what it has loaded."""
    catalog = f"lake_{uuid.uuid4().hex[:8]}"
    use_catalog(spark, f"{catalog}.shop.{name}", str(warehouse))
    return [tuple(r) for r in spark.table(f"{catalog}.shop.{name}").select("key", "value").orderBy("value").collect()]


@dying_at(["table-appended"], ["value", "table-appended", "table-expiring"])
def test_a_table_has_every_record_once(spark: SparkSession, live: Live, tmp_path: Path, places: Sequence[str]) -> None:
    topic, stop = live.topic("in"), 300
    live.create(2, topic, live.topic("out"), live.topic("digits"))
    live.produce(topic, rows(0, stop))
    with App(live, build(live.application_id, str(tmp_path))) as app:
        app.run()  # a commit, by which the cluster knows the application
    lake = ["lake", "--topic", topic, "--table", "lake.shop.sold", "--warehouse", "warehouse", "--keep", "2"]
    job = Job(live, tmp_path / "lake", *lake)
    old: list[tuple[str, int]] = []
    for place in places:
        job.die_at(place)
        new = [(f"k{i % 7}", i) for i in range(stop)]
        found = table(spark, job.work / "warehouse") if (job.work / "warehouse").exists() else []
        assert found in (old, new), f"killed at {place}"
        assert (found == new) == (place != "value")
        old, stop = found, stop + 100
        live.produce(topic, rows(stop - 100, stop))
    said = job.run()
    assert table(spark, job.work / "warehouse") == [(f"k{i % 7}", i) for i in range(stop)]
    assert f"{stop - len(old):,} rows written" in said


@dying_at(["value"], ["value", "snapshot-publishing", "savepoint-publishing", "savepoint-published"], in_ci=False)
def test_a_backlog_is_worked_off_once(live: Live, tmp_path: Path, places: Sequence[str]) -> None:
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    given = rows(0, 1_000)
    live.produce(live.topic("in"), given)
    job = Job(live, tmp_path / "catchup", "catchup", "--repository", "snapshots")
    for place in places:
        job.die_at(place)
        for topic in ("out", "digits"):
            assert_prefix(live, topic)
        assert_whole(live, job.work / "snapshots", tmp_path / "fetched")
    said = job.run()
    assert "savepoint" in said and "no savepoint" not in said
    assert_updated_once(live, "out", [key for key, _, _ in given])
    assert_updated_once(live, "digits", [value[-1:] for _, value, _ in given if value])
    assert assert_whole(live, job.work / "snapshots", tmp_path / "fetched") == 4


def assert_prefix(live: Live, topic: str) -> None:
    """No update was lost or doubled up to the one that was committed last."""
    by_key: dict[bytes | None, list[int]] = {}
    for _, key, value, _ in live.read(live.topic(topic)):
        assert value is not None
        by_key.setdefault(key, []).append(number(value))
    assert by_key == {key: list(range(1, len(found) + 1)) for key, found in by_key.items()}


def assert_whole(live: Live, repository: Path, folder: Path) -> int:
    """Every published snapshot can be fetched, and so can those of every savepoint; how many store partitions have one."""
    snapshots, saved = open_repository(repository), SavepointRepository(str(repository))
    published = snapshots.contents(live.application_id)
    for of in published:
        listing = snapshots.find(of)
        assert listing.manifests and not listing.damaged
        for manifest in listing.manifests:
            assert snapshots.fetch(manifest, folder / uuid.uuid4().hex)
    for name in saved.names(live.application_id):
        savepoint = saved.load(live.application_id, name)
        for store in savepoint.stores:
            saved.manifest(savepoint, StorePartition(live.application_id, store.store, store.partition))
    return len(published)
