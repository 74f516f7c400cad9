"""Jobs that keep what they make on an object store, with credentials everywhere: a worker restores from it, and no secret is
in anything that the jobs print, log, show or keep."""

from __future__ import annotations

import base64
import re
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.streams.batch.published import load_replay
from penstock.streams.events.facts import RestoreFinished, SnapshotUsed
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.driver import Driver
from tests.integration.spark.held_topology import build
from tests.integration.spark.holding import Hold
from tests.integration.spark.live import App, Live
from tests.integration.spark.test_catch_up import Seen
from tests.integration.spark.test_cluster import rows, topology_file
from tests.integration.worker.application import UNDISTURBED, until
from tests.s3_server import S3Server, s3_server

CANARIES = {
    name: f"canary{number}x9f3e71d{number}"
    for number, name in enumerate(("s3", "kafka", "connector", "executor", "hadoop"))
}
"""A secret of its own for each way in which one reaches a job."""
PAGES = ("environment/", "jobs/", "stages/", "executors/", "SQL/")
API = ("environment", "sql?details=true&planDescription=true&length=100", "stages?details=true", "allexecutors")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server(CANARIES["s3"]) as running:
        yield running


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


def pages_of(ui: str) -> dict[str, bytes]:
    """What Spark shows of the application that runs."""
    (app,) = re.findall(rb'"id" : "([^"]+)"', fetched(f"{ui}/api/v1/applications"))
    found = {name: fetched(f"{ui}/{name}") for name in PAGES}
    return found | {name: fetched(f"{ui}/api/v1/applications/{app.decode()}/{name}") for name in API}


def forms(secret: str) -> list[bytes]:
    """The secret as it is, and as it stands within base64, wherever it begins there."""
    raw = secret.encode()
    return [raw, *(base64.b64encode(b"\0" * shift + raw)[4 if shift else 0 : -4] for shift in range(3))]


def leaks(where: Mapping[str, bytes]) -> list[tuple[str, str]]:
    return [
        (name, kind) for name, data in where.items() for kind, s in CANARIES.items() if any(f in data for f in forms(s))
    ]


def settings_file(folder: Path) -> str:
    (folder / "worker.toml").write_text(
        f'[penstock.common]\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "me"\n"sasl.password" = "{CANARIES["kafka"]}"\n'
    )
    return "worker.toml"


class Jobs:
    """Commands in a driver that knows secrets in every way, with Spark's event log and pages on. ``said``: what they have
    printed, and what the pages have shown."""

    def __init__(self, server: S3Server, live: Live, folder: Path, holds: Path) -> None:
        self.work = folder
        self.said: dict[str, bytes] = {}
        name = topology_file(folder, live, holds)
        self.config = settings_file(folder)
        (folder / "events").mkdir()
        port = free_port()
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (folder / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(port),
            "spark.sql.shuffle.partitions": "2",
            # Options of the storage, as fsspec takes them.
            "spark.executorEnv.FSSPEC_S3_KEY": "tests",
            "spark.executorEnv.FSSPEC_S3_SECRET": CANARIES["executor"],
            "spark.hadoop.fs.s3a.secret.key": CANARIES["hadoop"],
        }
        self._common = [
            name,
            *("--config", self.config, "--application-id", live.application_id),
            *("--bootstrap-server", live.bootstrap_servers, "--guarantee", "exactly_once", "--master", "local[2]"),
            *(x for pair in conf.items() for x in ("--spark-conf", "=".join(pair))),
        ]
        self._ui = f"http://127.0.0.1:{port}"
        self._holds = holds
        self._env = {**server.env, "TMPDIR": str(folder)}

    def __enter__(self) -> Jobs:
        self._driver = Driver(self.work, env=self._env)
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.__exit__()

    def run(self, name: str, *more: str) -> None:
        """Run a command to its end."""
        self._begin(name, *more)
        self._end(name)

    def shown(self, name: str, *more: str) -> None:
        """The same, with a look at Spark's pages in the middle."""
        with Hold(self._holds, "value") as hold:
            self._begin(name, *more)
            hold.wait()
            self.said |= {f"{page} of {name}": data for page, data in pages_of(self._ui).items()}
        self._end(name)

    def _begin(self, name: str, *more: str) -> None:
        self._driver.begin(name, *self._common, *more, "--report", f"{name}.html")

    def _end(self, name: str) -> None:
        code, said = self._driver.end()
        assert code == 0, self._driver.log.read_text()[-5000:]
        self.said[name] = said.encode()


def assert_restored(live: Live, topology: Topology, state: Path, snapshots: str) -> None:
    """A worker begins with the snapshots."""
    seen = Seen()
    settings = WorkerSettings(
        application_id=live.application_id,
        bootstrap_servers=live.bootstrap_servers,
        guarantee="exactly_once",
        state_dir=str(state),
        snapshots=snapshots,
        **UNDISTURBED,
    )
    worker = Worker(topology, settings, events=seen)
    worker.start()
    try:
        until("the stores are there", lambda: sum(isinstance(f, RestoreFinished) for f in seen.facts) == 4)
    finally:
        worker.stop()
    assert sum(isinstance(f, SnapshotUsed) for f in seen.facts) == 4


@pytest.mark.long
def test_a_worker_restores_from_s3_and_no_secret_is_anywhere(
    server: S3Server, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, holds, url = tmp_path / "work", tmp_path / "holds", f"s3://{server.bucket}"
    holds.mkdir()
    topology = build(live.application_id, str(holds))
    live.create(2, *map(live.topic, ("in", "out", "digits")))
    live.produce(live.topic("in"), rows(0, 400))
    with App(live, topology) as app:
        app.run(commit_every=100)
    with Jobs(server, live, work, holds) as jobs:
        # First the one whose jars the driver needs from its start; it reads by Penstock's own source, verify by Spark's.
        jobs.shown("lake", "--topic", live.topic("in"), "--table", "lake.shop.sold", "--warehouse", "warehouse")
        option = ["--kafka-option", f"kafka.ssl.truststore.password={CANARIES['connector']}"]
        jobs.run("compact", "--repository", f"{url}/snapshots", *option)
        jobs.run("replay", "--output", f"{url}/replayed")
        jobs.shown("verify")

    for variable, value in server.env.items():
        monkeypatch.setenv(variable, value)
    assert_restored(live, topology, tmp_path / "state", f"{url}/snapshots")
    assert load_replay(f"{url}/replayed").records == 800

    files = {str(p): p.read_bytes() for p in work.rglob("*") if p.is_file() and p.name != jobs.config}
    assert any(b"SparkListenerSQLExecutionStart" in data for path, data in files.items() if "events" in path)
    assert all(str(work / f"{job}.html") in files for job in ("lake", "compact", "replay", "verify"))
    kept = server.objects()
    assert any(name.endswith(".sst") for name in kept) and any(name.endswith(".parquet") for name in kept)
    assert not leaks(files) and not leaks(jobs.said) and not leaks(kept)


def test_a_secret_is_found_wherever_it_begins_in_base64() -> None:
    secret = CANARIES["kafka"]
    for before in range(6):
        assert leaks({"x": base64.b64encode(b"?" * before + secret.encode() + b"!!")}) == [("x", "kafka")]
