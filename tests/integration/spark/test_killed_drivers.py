"""Drivers that are killed with their JVM at each step that changes something: what is there is the old result whole or the
new one, and the same command, given again, finishes with nothing doubled."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.state.snapshots.manifest import StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.spark.lake.catalog import use_catalog
from tests.integration.spark.driver import Driver
from tests.integration.spark.held_topology import build
from tests.integration.spark.holding import Hold
from tests.integration.spark.live import App, Live
from tests.integration.spark.test_catch_up import assert_updated_once, number
from tests.integration.spark.test_cluster import rows, topology_file

QUICK = "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Job:
    """A command in a driver of its own, again and again."""

    def __init__(self, live: Live, folder: Path, *argv: str) -> None:
        self._folder = folder
        self.holds = folder / "holds"
        folder.mkdir()
        self.holds.mkdir()
        name, *more = argv
        self._argv = [
            name,
            topology_file(folder / "work", live, self.holds),
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


def table(spark: SparkSession, warehouse: Path) -> list[tuple[str, int]]:
    """The rows of the table as it is now: a catalog caches what it has loaded."""
    catalog = f"lake_{uuid.uuid4().hex[:8]}"
    use_catalog(spark, f"{catalog}.shop.sold", str(warehouse))
    return [tuple(r) for r in spark.table(f"{catalog}.shop.sold").select("key", "value").orderBy("value").collect()]


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["table-appended"], id="once"),
        pytest.param(["value", "table-appended", "table-expiring"], id="everywhere", marks=pytest.mark.long),
    ],
)
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


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["value"], id="once", marks=pytest.mark.long),
        pytest.param(
            ["value", "snapshot-publishing", "savepoint-publishing", "savepoint-published"],
            id="everywhere",
            marks=pytest.mark.long,
        ),
    ],
)
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
