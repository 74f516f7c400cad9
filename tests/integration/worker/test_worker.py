"""Workers as objects and as commands: start, stop, restore, sharing a host, and how much memory they take."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault, ProcessingError, RetriableError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.memory_budget import BUFFERED_MAX_BYTES, LEAST_BYTES, RECEIVED_MAX_BYTES, SENT_MAX_BYTES
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples import celsius, keyed_count
from tests.integration.worker.application import (
    LIMIT_S,
    PARTITIONS,
    ROOT,
    UNDISTURBED,
    Application,
    Cluster,
    free_port,
    until,
)
from tests.integration.worker.test_refusals import settings, tenths

KEYS = 200_000
STATELESS_RECORDS = 1_000_000
PROGRAM_MAX_MB = 90
"""A worker with its libraries, clients and batches in work."""
STATELESS_MEMORY_MAX_MB = PROGRAM_MAX_MB + ((RECEIVED_MAX_BYTES + BUFFERED_MAX_BYTES + SENT_MAX_BYTES) >> 20)
"""What else the machine does decides how full the queues get, so the limit admits full ones."""


def test_worker_is_an_object_in_any_process(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "library", tmp_path)
    port = free_port()
    worker = Worker(app.topology, app.settings(metrics_port=port, **UNDISTURBED))
    assert not worker.running
    assert not [m for m in worker.metrics() if "task" in m.labels]
    assert worker.status().state == "starting"
    assert worker.start() is worker
    assert worker.running
    app.add_lines(300)
    app.wait()
    assert {m.labels["topic"] for m in worker.metrics() if m.name == "penstock_buffered_records"} >= {app.source}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
        lines = answer.read().decode().splitlines()
        assert f'penstock_buffered_records{{task="0_0",topic="{app.source}"}} 0.0' in lines
        assert f'penstock_records_consumed_total{{topic="{app.source}"}} 300.0' in lines
    assert worker.status().state == "running"
    with pytest.raises(EnvironmentFault, match=f"127.0.0.1:{port}"):
        Worker(app.topology, app.settings(metrics_port=port, **UNDISTURBED)).start()
    worker.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S)
    assert not worker.running
    assert not [t for t in threading.enumerate() if t.name.startswith("penstock")]
    assert app.admin.group_members(app.name) == 0
    app.assert_exact()
    before = gc.get_threshold()
    swift = Worker(app.topology, app.settings(latency="low")).start()
    assert gc.get_threshold()[:2] == (5_000, 100)
    app.add_lines(300)
    app.wait()
    swift.stop()
    assert gc.get_threshold() == before
    app.assert_exact()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_what_was_read_of_repartition_topics_is_purged_and_nothing_else(
    kafka: str, tmp_path: Path, guarantee: Guarantee
) -> None:
    app = Application(kafka, "purged", tmp_path, guarantee)
    repartition = next(t for t in app.topology.source_topics(app.name) if t != app.source)
    consumer = KafkaConsumer(consumer_config(kafka, f"{app.name}-look", {}))

    def first_offsets(topic: str) -> list[int]:
        return [consumer.watermarks(TopicPartition(topic, p))[0] for p in range(PARTITIONS)]

    worker = Worker(app.topology, app.settings(repartition_purge_interval_ms=200)).start()
    for _ in range(2):
        app.add_lines(300)
        app.wait()
    until("all partitions are purged", lambda: all(first_offsets(repartition)))
    worker.stop()
    reader = KafkaConsumer(consumer_config(kafka, app.name, {}))
    committed = reader.committed([TopicPartition(repartition, p) for p in range(PARTITIONS)])
    reader.close()
    for p, first in enumerate(first_offsets(repartition)):
        at = committed[TopicPartition(repartition, p)]
        assert at is not None and first <= at.offset
    assert first_offsets(app.source) == first_offsets(app.output) == [0] * PARTITIONS
    assert first_offsets(f"{app.name}-counts-changelog") == [0] * PARTITIONS
    consumer.close()
    again = Worker(app.topology, app.settings()).start()
    app.add_lines(100)
    app.wait()
    again.stop()
    if guarantee == "exactly_once":
        app.assert_exact()


def test_error_of_the_run_surfaces_in_stop(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "surface")
    source, out = cluster.create("in", 1), cluster.create("out", 1)
    worker = Worker(tenths(source, out), settings(cluster, tmp_path)).start()
    cluster.write(source, [b"0"])
    until("it ended", lambda: not worker.running)
    with pytest.raises(ProcessingError, match="ZeroDivisionError"):
        worker.stop()


def test_stop_that_takes_too_long_says_so(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "slow")
    source, out = cluster.create("in", 1), cluster.create("out", 1)
    entered, gate = threading.Event(), threading.Event()

    def wait(value: float) -> float:
        entered.set()
        gate.wait(300)
        return value

    builder = StreamsBuilder("slow", value="json")
    builder.stream(source).map_values(wait).to(out)
    worker = Worker(builder.build(), settings(cluster, tmp_path)).start()
    cluster.write(source, [b"1.5"])
    assert entered.wait(LIMIT_S)
    with pytest.raises(RetriableError, match="has not stopped within"):
        worker.stop(timeout_s=0.2)
    gate.set()
    worker.stop()
    assert len(cluster.read(out, 1)) == 1


def test_two_workers_of_one_host_share_a_state_folder(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "shared", tmp_path)
    first = Worker(app.topology, app.settings()).start()
    app.add_lines(200)
    second = Worker(app.topology, app.settings()).start()
    until("both own tasks", lambda: all(w.runtime and w.runtime.tasks for w in (first, second)))
    app.add_lines(200)
    app.wait()
    first.stop()
    app.add_lines(200)
    app.wait()
    until("it runs all", lambda: second.runtime and len(second.runtime.tasks) == 2 * PARTITIONS)
    second.stop()
    app.assert_exact()


def test_group_protocol_of_the_broker(kafka: str, tmp_path: Path) -> None:
    """``group.protocol=consumer``: assignments come and go in parts."""
    app = Application(kafka, "protocol", tmp_path)
    more = {"consumer": {"group.protocol": "consumer"}}
    first = Worker(app.topology, app.settings("a", **more)).start()
    app.add_lines(300)
    app.wait()
    second = Worker(app.topology, app.settings("b", **more)).start()
    app.add_lines(300)
    until("both own tasks", lambda: all(w.runtime and w.runtime.tasks for w in (first, second)))
    app.add_lines(300)
    app.wait()
    second.stop()
    app.add_lines(300)
    app.wait()
    first.stop()
    app.assert_exact()


def test_at_most_once_never_does_anything_twice(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "amo")
    source, out = cluster.create("in"), cluster.create("out")
    topology = celsius.build(source, out)
    given = settings(cluster, tmp_path, guarantee="at_most_once", batch_max_records=500, **UNDISTURBED)
    total = 15_000

    def more_than(count: int) -> bool:
        return len(cluster.read(out)) > count

    for start in range(0, total, 5_000):
        cluster.write(source, [b"%d" % n for n in range(start, start + 5_000)])
        before = len(cluster.read(out))
        worker = Worker(topology, given).start()
        until("some are out", partial(more_than, before), every_s=0.05)
        worker.stop()
    worker = Worker(topology, given).start()
    until("all are out", lambda: len(cluster.read(out)) >= total)
    worker.stop()
    values = [w.value for w in cluster.read(out)]
    assert len(values) == len(set(values)) == total


def test_restore_shows_its_progress_and_a_warm_start_needs_none(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "restore")
    source = cluster.create("in", 2)
    topology = keyed_count.build(source)
    given = settings(cluster, tmp_path, batch_max_records=10_000, **UNDISTURBED)
    seen: dict[TaskId, list[RestoreProgress]] = {}

    def started() -> Worker:
        seen.clear()
        worker = Worker(topology, given, on_progress=lambda task, _, p: seen.setdefault(task, []).append(p)).start()
        until("restored", lambda: worker.runtime and len(worker.runtime.tasks) == 2)
        return worker

    def entries(worker: Worker) -> int:
        assert worker.runtime is not None
        return sum(sum(1 for _ in t.backend.range("counts", None, None)) for t in worker.runtime.tasks.values())

    cluster.write(source, [b"v"] * KEYS, keys=[b"key-%d" % n for n in range(KEYS)])
    worker = started()
    until("all is counted", lambda: cluster.committed(cluster.name, source, 2) >= KEYS)
    worker.stop()
    shutil.rmtree(tmp_path / cluster.name)
    worker = started()
    assert sum(p[-1].records for p in seen.values()) == KEYS
    for steps in seen.values():
        assert len(steps) > 2
        assert [p.fraction for p in steps] == sorted(p.fraction for p in steps)
        assert steps[0].fraction == 0.0
        assert steps[-1].done
    worker.stop()
    worker = started()
    assert sum(p[-1].records for p in seen.values()) == 0
    assert entries(worker) == KEYS
    worker.stop()


def test_supervised_processes_one_killed_is_started_again(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "supervised", tmp_path)
    said = tmp_path / "said"
    port = free_port()
    supervisor = supervised(
        app, said, **{"metrics-port": str(port), "log-format": "json", "session-timeout-ms": "12000"}
    )
    try:
        # What one has read and another takes over is read twice.
        until("both are members", lambda: app.admin.group_members(app.name) == 2)
        until("both processes are ready", lambda: page(port, "/ready")[0] == 200)
        app.add_lines(500)
        app.wait()
        assert page(port, "/health")[0] == 200
        shown = page(port, "/metrics")[1]
        consumed = re.findall(rf'penstock_records_consumed_total{{process="(\d)",topic="{app.source}"}} (\d+)', shown)
        assert sum(int(count) for _, count in consumed) == 500 and {n for n, _ in consumed} <= {"0", "1"}
        children = children_of(supervisor.pid)
        assert len(children) == 2
        os.kill(children[0], signal.SIGKILL)
        app.add_lines(500)
        app.wait()
        until("it was started again", lambda: len(children_of(supervisor.pid)) == 2)
        until("both are members", lambda: app.admin.group_members(app.name) == 2)
        until("both processes are ready again", lambda: page(port, "/ready")[0] == 200)
        restarts = re.findall(r'penstock_process_restarts_total{process="\d"} (\d)', page(port, "/metrics")[1])
        assert sorted(restarts) == ["0", "1"]
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(LIMIT_S) == 0, said.read_text()
    finally:
        if supervisor.poll() is None:
            supervisor.terminate()
            supervisor.wait()
    ended = [line for line in map(json.loads, said.read_text().splitlines()) if line.get("fact") == "ProcessEnded"]
    assert [(line["pid"], line["status"], line["restart_s"]) for line in ended] == [(children[0], -9, 0.5)]
    until("the killed one is forgotten", lambda: app.admin.group_members(app.name) == 0)
    app.assert_exact()


def test_supervised_processes_do_not_outlive_a_killed_supervisor(kafka: str, tmp_path: Path) -> None:
    """They commit and leave, as by SIGTERM."""
    app = Application(kafka, "orphans", tmp_path)
    said = tmp_path / "said"
    supervisor = supervised(app, said, **{"session-timeout-ms": "120000"})
    children: list[int] = []
    try:
        app.add_lines(200)
        app.wait()
        until("both are members", lambda: app.admin.group_members(app.name) == 2)
        children = children_of(supervisor.pid)
        assert len(children) == 2
        supervisor.kill()
        supervisor.wait()
        until("the processes are gone", lambda: not any(map(runs, children)))
        until("they have left, not died", lambda: app.admin.group_members(app.name) == 0, 60)
    finally:
        supervisor.kill()
        supervisor.wait()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert said.read_text().count("the supervisor is gone") == 2
    app.assert_exact()


def page(port: int, path: str) -> tuple[int, str]:
    """One of the pages of an endpoint: status and text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def supervised(app: Application, said: Path, **more: str) -> subprocess.Popen[bytes]:
    """``penstock worker --processes 2`` of the word count, which writes to ``said``."""
    module = app.folder / "counting.py"
    module.write_text(
        f"from penstock.topologies.examples import word_count\ntopology = word_count.build({app.source!r}, {app.output!r})\n"
    )
    command = [sys.executable, "-m", "penstock.streams.cli.main", "worker", f"{module}:topology", "--processes", "2"]
    options = {
        "application-id": app.name,
        "bootstrap-server": app.bootstrap_servers,
        "state-dir": str(app.folder / "state"),
        "guarantee": "exactly_once",
        "session-timeout-ms": "6000",
        **more,
    }
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".package")}
    with said.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)


def runs(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children_of(pid: int) -> list[int]:
    """The worker processes of a supervisor."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def test_memory_of_a_stateless_worker_under_load(kafka: str, tmp_path: Path) -> None:
    cluster = Cluster(kafka, "memory")
    source, out = cluster.create("in"), cluster.create("out")
    values = [b'{"id": %d, "text": "%s"}' % (n, b"x" * 80) for n in range(STATELESS_RECORDS // 10)]
    for _ in range(10):
        cluster.write(source, values)
    module = tmp_path / "through.py"
    module.write_text(
        "from penstock.topologies.dsl.builder import StreamsBuilder\n"
        "builder = StreamsBuilder('through', key=bytes, value=bytes)\n"
        f"builder.stream({source!r}).filter_values(lambda value: True).to({out!r})\n"
        "topology = builder.build()\n"
    )
    assert peak_memory_mb(cluster, source, module, "through") < STATELESS_MEMORY_MAX_MB


def test_memory_of_a_worker_with_many_keys_stays_within_its_bound(kafka: str, tmp_path: Path) -> None:
    """Without a bound the same worker takes a third more, and so more than this one."""
    cluster = Cluster(kafka, "bounded")
    source = cluster.create("in")
    for start in range(0, STATELESS_RECORDS, 100_000):
        cluster.write(source, [b"v"] * 100_000, keys=[b"key-%d" % n for n in range(start, start + 100_000)])
    module = tmp_path / "counts.py"
    module.write_text(
        f"from penstock.topologies.examples import keyed_count\ntopology = keyed_count.build({source!r})\n"
    )
    bound = ("--memory-max-bytes", str(LEAST_BYTES))
    assert peak_memory_mb(cluster, source, module, "bounded", *bound) <= LEAST_BYTES >> 20


def peak_memory_mb(cluster: Cluster, source: str, module: Path, name: str, *more: str) -> float:
    """The most resident memory, in MiB, of a worker process that runs the module's topology over the source."""
    application_id = f"{cluster.name}-{name}"
    command = [sys.executable, "-m", "penstock.streams.cli.main", "worker", f"{module}:topology"]
    command += ["--application-id", application_id, "--bootstrap-server", cluster.bootstrap_servers]
    command += ["--state-dir", str(module.parent / name)]
    command += ["--guarantee", "exactly_once", *more]
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".package")}
    worker = subprocess.Popen(command, env=env)
    try:
        until("all is through", lambda: cluster.committed(application_id, source) >= STATELESS_RECORDS)
        status = Path(f"/proc/{worker.pid}/status").read_text()
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT_S) == 0
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    peak_mb = int(peak[1]) / 1024
    print(f"peak resident memory: {peak_mb:.0f} MiB")
    return peak_mb
