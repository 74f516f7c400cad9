"""Python workers and executors that are killed at each phase of a job on a cluster: while it runs, the old result is there
whole; in the end the new one, with nothing doubled and nothing left behind. The phases are failpoints and the places of
``holding`` and ``commands``; at each, first a Python worker dies and then the executor of another one."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.streams.batch.cluster import ClusterAddress, open_cluster
from penstock.streams.batch.published import load_replay
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.worker.worker import Worker
from tests.integration.spark import test_cluster as on_cluster
from tests.integration.spark import test_rescale as shops
from tests.integration.spark.driver import Driver
from tests.integration.spark.held_topology import HELD, build
from tests.integration.spark.holding import Hold
from tests.integration.spark.live import App, Live
from tests.integration.spark.standalone import Standalone, executor_of, until
from tests.integration.spark.test_catch_up import assert_updated_once
from tests.integration.spark.test_compact import ingested
from tests.integration.spark.test_killed_drivers import assert_prefix, assert_whole, outputs_of, table
from tests.integration.spark.test_replay import stored
from tests.integration.worker.application import UNDISTURBED
from tests.integration.worker.application import until as until_true

PATIENT = ["--spark-conf", "spark.task.maxFailures=100"]
"""More of the test's deaths meet one task than Spark puts up with."""
long = pytest.mark.long


def strike_at(cluster: Standalone, places: Sequence[str], check: Callable[[], None] = lambda: None) -> None:
    """Strike at one place after the other, which a job comes to in this order; none gets past the next place meanwhile.
    ``check`` is called while everybody is held."""
    holds: list[Hold] = []
    try:
        for place in places:
            holds.append(Hold(cluster.holds, place).__enter__())
            if len(holds) > 1:
                holds[-2].__exit__()
            on_cluster.strike(cluster, holds[-1])
            check()
    finally:
        for hold in holds:
            hold.__exit__()


class Job:
    """An application with commands on the cluster, given by one driver."""

    def __init__(self, live: Live, cluster: Standalone, driver: Driver, folder: Path, name: str) -> None:
        self._live, self._cluster, self._driver, self.work, self._name = live, cluster, driver, folder, name

    def begin(self, command: str, *argv: str) -> None:
        given = on_cluster.named(self._name, self._live)
        self._driver.begin(command, *given, *argv, *self._cluster.options, *PATIENT)

    def end(self) -> str:
        code, said = self._driver.end()
        assert code == 0, self._driver.log.read_text()[-5000:]
        return said

    def run(self, command: str, *argv: str) -> str:
        self.begin(command, *argv)
        return self.end()

    def struck(self, places: Sequence[str], command: str, *argv: str, check: Callable[[], None]) -> str:
        self.begin(command, *argv)
        strike_at(self._cluster, places, check)
        return self.end()


def assert_nothing_left(cluster: Standalone) -> None:
    until("folders of killed executors stay", lambda: None if on_cluster.left_behind(cluster) else True)


@long
def test_old_results_stay_whole_until_the_new_ones_are_there(
    spark: SparkSession, cluster: Standalone, live: Live, tmp_path: Path
) -> None:
    """Compaction, replay and a table in a lake, each with a result of an earlier run."""
    work = tmp_path / "work"
    topic, repository, replayed = live.topic("in"), str(work / "snapshots"), work / "replayed"
    live.create(2, topic, live.topic("out"), live.topic("digits"))
    live.produce(topic, on_cluster.rows(0, HELD))
    name = on_cluster.topology_file(work, live, cluster.holds)
    warehouse = ["--warehouse", str(work / "warehouse")]
    lake = ["--topic", topic, "--table", "lake.shop.sold", *warehouse]
    store_to_lake = ["--store", "counts", "--table", "lake.shop.counts", *warehouse]
    with App(live, build(live.application_id, str(cluster.holds))) as app, cluster.driver(work) as driver:
        job = Job(live, cluster, driver, work, name)
        app.run(commit_every=70)
        job.run("lake", *lake)  # first, since its jars must be there when the JVM starts
        job.run("lake", *store_to_lake)
        job.run("compact", "--repository", repository)
        job.run("replay", "--output", str(replayed))
        old_savepoint = SavepointRepository(repository).load(live.application_id)
        old_run, old_outputs = load_replay(str(replayed)).run, outputs_of(replayed)
        live.produce(topic, on_cluster.rows(HELD, 400))
        app.run(commit_every=70)

        def compaction_is_old() -> None:
            assert SavepointRepository(repository).load(live.application_id) == old_savepoint
            assert assert_whole(live, Path(repository), tmp_path / "fetched") == 4

        def replay_is_old() -> None:
            assert load_replay(str(replayed)).run == old_run and outputs_of(replayed) == old_outputs

        def store_table_is_old() -> None:
            assert dict(table(spark, work / "warehouse", "counts")) == counted(HELD)

        def table_is_old() -> None:
            assert [value for _, value in table(spark, work / "warehouse")] == list(range(HELD))

        compacting = ["changes", "snapshot", "publish.uploaded"]
        job.struck(compacting, "compact", "--repository", repository, check=compaction_is_old)
        assert SavepointRepository(repository).load(live.application_id) != old_savepoint
        job.struck(["value", "put"], "replay", "--output", str(replayed), check=replay_is_old)
        job.begin("lake", *lake)
        with Hold(cluster.holds, "value") as hold:
            strike_finished(cluster, executor_of(hold.wait()))
            table_is_old()
        assert "250 rows written" in job.end()
        job.struck(["rows"], "lake", *store_to_lake, check=store_table_is_old)
        for store in on_cluster.STORES:
            assert ingested(work, live, store) == app.store(store)
            assert stored(replayed, load_replay(str(replayed)), store) == app.store(store)
    for output in ("out", "digits"):
        wrote = [(p, k, v) for p, k, v, _ in live.read(live.topic(output))]
        assert sorted(outputs_of(replayed)[live.topic(output)]) == sorted(wrote)
    assert [value for _, value in table(spark, work / "warehouse")] == list(range(400))
    assert dict(table(spark, work / "warehouse", "counts")) == counted(400)
    assert_nothing_left(cluster)


def counted(stop: int) -> dict[str, int]:
    """Records by key, of the first ones."""
    return dict(Counter(str(key, "utf8") for key, _, _ in on_cluster.rows(0, stop) if key))


def strike_finished(cluster: Standalone, busy: int) -> None:
    """Kill the executor that has done its part and written it for a shuffle, while the other one is held."""

    def look() -> int | None:
        others = [pid for pid in cluster.executors() if pid != busy]
        written = [p for p in (cluster.folder / "local").rglob("shuffle_*.data") if p.stat().st_size]
        return others[0] if others and written else None

    os.kill(until("no executor has done its part", look), signal.SIGKILL)


COMMITTING = ["commit.sent", "commit.offsets_added", "commit.committed", "snapshot", "publish.uploaded"]


@pytest.mark.parametrize(
    "places", [pytest.param(["commit.offsets_added"], id="once"), pytest.param(COMMITTING, id="everywhere", marks=long)]
)
def test_a_backlog_is_worked_off_once(cluster: Standalone, live: Live, tmp_path: Path, places: Sequence[str]) -> None:
    work = tmp_path / "work"
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    given = on_cluster.rows(0, 3_000)
    live.produce(live.topic("in"), given)
    name = on_cluster.topology_file(work, live, cluster.holds)

    def nothing_doubled() -> None:
        for output in ("out", "digits"):
            assert_prefix(live, output)

    with cluster.driver(work) as driver:
        job = Job(live, cluster, driver, work, name)
        said = job.struck(places, "catchup", "--repository", "snapshots", check=nothing_doubled)
    assert "savepoint" in said and "no savepoint" not in said
    assert_updated_once(live, "out", [key for key, _, _ in given])
    assert_updated_once(live, "digits", [value[-1:] for _, value, _ in given if value])
    assert assert_whole(live, work / "snapshots", tmp_path / "fetched") == 4
    live.settled(*map(live.topic, ("out", "digits")))
    assert_nothing_left(cluster)


MOVING = ["commit.offsets_added", "entries", "write-opened", "write-written"]


@long
def test_two_partitions_become_three(cluster: Standalone, live: Live, tmp_path: Path) -> None:
    shop = shops.Shop(live, tmp_path)
    shops.begin(shop, 2)
    old_id, new_id, repository = live.application_id, f"{live.application_id}-3", str(tmp_path / "snapshots")
    (tmp_path / "shops.py").write_text(
        f"from tests.integration.spark.topologies import resized\n"
        f"old = resized({old_id!r}, '')\nnew = resized({old_id!r}, '-3')\n"
    )
    with App(live, shop.topology()()) as app:
        app.run()
        shop.produce(shops.rows(0, 1_000, 19_000))
        shop.produce(shops.marks(20_000))
        app.run(commit_every=500)
        # More is joined, and stands in the repartition topic.
        shop.produce(shops.rows(1_000, 1_400, 20_000))
        app.tasks = [task for task in app.tasks if shop.topic("events") in task.topics]
        app.run(commit_every=100)
    shop.produce(shops.rows(1_400, 1_600, 20_000))

    def positions_are_old() -> None:
        inputs = list(live.settled(shop.topic("events") + "-3"))
        with open_cluster(ClusterAddress(live.bootstrap_servers), new_id) as found:
            assert not found.committed(inputs)

    with cluster.driver(tmp_path) as driver:
        # The check and the move read the entries of snapshots, and the changelog behind them.
        Job(live, cluster, driver, tmp_path, "shops.py:old").run("compact", "--repository", repository)
        job = Job(dataclasses.replace(live, application_id=new_id), cluster, driver, tmp_path, "shops.py:new")
        replaced = ["--replaces", "shops.py:old", "--replaced-id", old_id, "--partitions", "3"]
        job.struck(MOVING, "rescale", *replaced, "--repository", repository, check=positions_are_old)
    shop.assert_answered_once()
    shop.suffix = "-3"
    worker = Worker(shop.topology("-3")(), shop.settings(new_id, snapshots=repository, **UNDISTURBED))
    worker.start()
    try:
        shop.produce(shops.rows(1_600, 2_000, 20_500))
        until_true(
            "all is answered", lambda: len(live.read(live.topic("views"))) == sum(shop.views.values()), every_s=0.5
        )
    finally:
        worker.stop()
    shop.assert_answered_once()
    assert_nothing_left(cluster)
