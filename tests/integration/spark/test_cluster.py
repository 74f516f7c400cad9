"""Jobs on a standalone cluster of local processes: Python workers and executors are killed in the middle of each, and the
result is that of local mode."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.state import native
from penstock.streams.batch.published import load_replay
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.spark.lake.catalog import use_catalog
from tests.integration.spark.driver import Driver
from tests.integration.spark.held_topology import build
from tests.integration.spark.holding import LIMIT_S, Hold
from tests.integration.spark.live import App, Live, Row, command
from tests.integration.spark.standalone import Standalone, executor_of, until
from tests.integration.spark.test_catch_up import assert_updated_once
from tests.integration.spark.test_compact import ingested
from tests.integration.spark.test_replay import stored

STORES = ("counts", "digits")


def rows(start: int, stop: int) -> list[Row]:
    return [(b"k%d" % (i % 7), b"%d" % i, 1000 + i) for i in range(start, stop)]


def topology_file(folder: Path, live: Live, holds: Path) -> str:
    folder.mkdir()
    (folder / "shop.py").write_text(
        "from tests.integration.spark.held_topology import build\n"
        f"\n\ndef topology():\n    return build({live.application_id!r}, {str(holds)!r})\n"
    )
    return "shop.py"


def named(topology: str, live: Live) -> list[str]:
    """The topology and its application, as commands take them."""
    where = ["--application-id", live.application_id, "--bootstrap-server", live.bootstrap_servers]
    return [topology, *where, "--guarantee", "exactly_once"]


def strike(cluster: Standalone, hold: Hold) -> None:
    """Kill a Python worker that is held, and then the executor of one that is held."""
    python = _held(cluster, hold)
    os.kill(python, signal.SIGKILL)
    os.kill(executor_of(_held(cluster, hold, python)), signal.SIGKILL)


def _held(cluster: Standalone, hold: Hold, *besides: int) -> int:
    """A Python worker that is held. One whose executor was killed before runs on for a moment, and does not count."""
    passed = list(besides)
    while True:
        python = hold.wait(*passed)
        with suppress(OSError):  # it has just ended
            if executor_of(python) in cluster.executors():
                return python
        passed.append(python)


def struck(cluster: Standalone, driver: Driver, place: str, *argv: str) -> str:
    """Run a command on the cluster, and strike in the middle; returns what it has printed."""
    with Hold(cluster.holds, place) as hold:
        driver.begin(*argv, *cluster.options, "--report", f"{argv[0]}.html")
        strike(cluster, hold)
    code, said = driver.end()
    assert code == 0, driver.log.read_text()[-5000:]
    return said


def outputs(folder: Path) -> list[tuple[Any, ...]]:
    """The rows of a replay's outputs, by partition, in their order."""
    done = load_replay(str(folder))
    return sorted(
        (o.topic, o.subtopology, o.task, [tuple(r.items()) for r in pq.read_table(folder / o.path).to_pylist()])
        for t in done.tasks
        for o in t.outputs
    )


def table(spark: SparkSession, catalog: str, warehouse: Path) -> list[tuple[Any, ...]]:
    use_catalog(spark, f"{catalog}.shop.sold", str(warehouse))
    return [tuple(r) for r in spark.table(f"{catalog}.shop.sold").orderBy("partition", "offset").collect()]


def test_killed_executors_change_no_result_and_leave_nothing_behind(
    spark: SparkSession, cluster: Standalone, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_cluster, local = tmp_path / "cluster", tmp_path / "local"
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    live.produce(live.topic("in"), rows(0, 400))
    name = topology_file(on_cluster, live, cluster.holds)
    with App(live, build(live.application_id, str(cluster.holds))) as app:
        app.run(commit_every=70)
    lake = ["--topic", live.topic("in"), "--table", "lake.shop.sold", "--warehouse"]
    with cluster.driver(on_cluster) as driver:
        of = named(name, live)
        # Relative places are those of the driver, whatever the folder of an executor.
        struck(cluster, driver, "value", "lake", *of, *lake, "warehouse")
        struck(cluster, driver, "snapshot", "compact", *of, "--repository", "snapshots")
        struck(cluster, driver, "value", "replay", *of, "--output", "replayed")
        verified = json.loads(struck(cluster, driver, "value", "verify", *of, "--json"))
    seen = [note.read_text().split("\n") for note in cluster.holds.glob("seen-*")]

    local.mkdir()
    place = str(on_cluster / name)
    for argv in (
        ["lake", *lake, str(local / "warehouse")],
        ["compact", "--repository", str(local / "snapshots")],
        ["replay", "--output", str(local / "replayed")],
    ):
        assert command(argv[0], place, live, *argv[1:]) == 0
    capsys.readouterr()
    assert command("verify", place, live, "--json") == 0
    wanted = json.loads(capsys.readouterr().out)

    catalog = f"lake_{live.application_id.replace('-', '_')}"
    found = table(spark, f"{catalog}_c", on_cluster / "warehouse")
    assert len(found) == 400 and found == table(spark, f"{catalog}_l", local / "warehouse")
    for store in STORES:
        assert ingested(on_cluster, live, store) == ingested(local, live, store) != {}
        made = [stored(f / "replayed", load_replay(str(f / "replayed")), store) for f in (on_cluster, local)]
        assert made[0] == made[1] != {}
    saved = [SavepointRepository(str(f / "snapshots")).load(live.application_id) for f in (on_cluster, local)]
    assert saved[0].inputs == saved[1].inputs and saved[0].outputs == saved[1].outputs
    assert outputs(on_cluster / "replayed") == outputs(local / "replayed") != []
    assert verified["same"] and verified["records"] == 800 and {**verified, "seconds": 0} == {**wanted, "seconds": 0}
    assert "records in<b>800</b>" in (on_cluster / "replay.html").read_text()

    # Executors run the Penstock that the driver has shipped, with its compiled part. Their folder is their working folder;
    # what the driver itself runs so has another one.
    shipped = [module for package, module, _ in seen if package.startswith("./penstock.zip")]
    assert shipped, seen
    if native.compiled() is not None:
        assert all(module.startswith(str(cluster.folder)) for module in shipped), shipped
    until("folders of killed executors stay", lambda: None if left_behind(cluster) else True)


def left_behind(cluster: Standalone) -> list[Path]:
    return [p for name in ("local", "tmp") for p in (cluster.folder / name).rglob("penstock-*")]


@pytest.mark.long
def test_a_backlog_is_worked_off_once_by_executors_that_are_killed(
    cluster: Standalone, live: Live, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    given = rows(0, 3_000)
    live.produce(live.topic("in"), given)
    name = topology_file(work, live, cluster.holds)
    # As OPERATING.md says it.
    (work / "run.py").write_text("import sys\nfrom penstock.streams.cli.main import main\n\nsys.exit(main())\n")
    with Hold(cluster.holds, "value") as hold:
        job = cluster.submitted(work, "run.py", "catchup", *named(name, live), "--repository", "snapshots")
        try:
            strike(cluster, hold)
        except BaseException:
            job.kill()
            raise
    said, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, said[-5000:]
    assert "savepoint" in said and "no savepoint" not in said
    assert_updated_once(live, "out", [key for key, _, _ in given])
    assert_updated_once(live, "digits", [value[-1:] for _, value, _ in given if value])
    counts = {key[-2:]: value for (_, key), value in ingested(work, live, "counts").items()}
    assert len(counts) == 7
    until("folders of killed executors stay", lambda: None if left_behind(cluster) else True)
