"""What somebody on call sees of a worker: its log and its metrics through a start, a restore, a rebalance, an abort, a
poison record, a broker outage and a stop. Both are kept in ``var/on-call/``."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.child_process import started
from tests.integration.worker.application import PARTITIONS, ROOT, Application, free_port, until

LIMIT_S = 300.0
SESSION_TIMEOUT_MS = 15_000
"""The outage must outlast it; a stall of the machine must not."""
KEPT = ROOT / "var" / "on-call"
BY_CHANCE = {
    "Committed", "CommitLate", "TaskCaughtUp", "FallingBehind", "PartitionPaused", "PartitionResumed", "Waiting", "WaitEnded"
}  # fmt: skip
"""Facts whose number depends on how fast the machine is."""


@pytest.fixture
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that may be killed. Groups form at once."""
    with EmbeddedKafka() as cluster:
        yield cluster


class Watched:
    """A worker in a process of its own, whose log is read."""

    def __init__(self, app: Application, name: str, state: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self.text = KEPT / f"{name}.log"
        self.json = KEPT / f"{name}.json"
        self.abort = app.folder / f"{name}.abort"
        self.port = free_port()
        settings = dataclasses.asdict(app.settings(state, session_timeout_ms=session_timeout_ms))
        given = {
            key: settings[key]
            for key in (
                "application_id", "bootstrap_servers", "state_dir", "guarantee", "session_timeout_ms", "commit_interval_ms"
            )
        }  # fmt: skip
        given |= {
            "metrics_port": self.port,
            "policies": {"deserialization": "dead_letter", "dead_letter_topic": f"{app.name}-dead"},
        }
        order = {
            "source": app.source,
            "output": app.output,
            "settings": given,
            "json_log": str(self.json),
            "abort": str(self.abort),
        }
        self.process = started("tests.integration.worker.on_call_process", order, self.text)
        self._seen = 0

    def lines(self) -> list[dict[str, Any]]:
        """Every line of the JSON log."""
        return [json.loads(line) for line in self.json.read_text().splitlines()] if self.json.exists() else []

    def facts(self) -> list[dict[str, Any]]:
        """Those of facts whose number does not depend on chance."""
        return [line for line in self.lines() if line.get("fact", "Committed") not in BY_CHANCE]

    def since(self) -> Counter[str]:
        """The facts since the last ``mark``."""
        return Counter(line["fact"] for line in self.facts()[self._seen :])

    def mark(self) -> list[dict[str, Any]]:
        """The facts since the last one; the next stage begins."""
        facts = self.facts()
        new, self._seen = facts[self._seen :], len(facts)
        return new

    def stage(self, what: str, **expected: int) -> list[dict[str, Any]]:
        """Wait for these facts, and find exactly them."""
        wanted = Counter(expected)
        until(f"{what}: {expected}", lambda: self.process.poll() is not None or not wanted - self.since(), LIMIT_S)
        assert self.since() == wanted, f"{what}\n{self.text.read_text()}"
        return self.mark()

    def page(self, path: str) -> tuple[int, str]:
        """One of the pages: status and text."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """One sample; 0 where there is none."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        found = re.findall(rf"^{name}(?:\{{(.*?)\}})? (\S+)$", self.page("/metrics")[1], re.MULTILINE)
        return sum(float(value) for given, value in found if wanted <= set(re.findall(r'\w+="[^"]*"', given)))

    def stop(self) -> None:
        """SIGTERM; it must end well."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LIMIT_S) == 0, self.text.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_log_and_metrics_tell_the_life_of_a_worker(own_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    app = Application(own_kafka.bootstrap_servers, "on-call", tmp_path)
    app.create("dead", 1)
    workers = [Watched(app, "before", "lost")]
    try:
        app.add_lines(200)
        app.wait()
        workers[0].stop()
        workers.append(worker := Watched(app, "worker", "state"))
        _start_and_restore(app, worker)
        workers.append(_rebalance(app, worker))
        _abort(app, worker)
        _poison(app, worker)
        _outage(own_kafka, worker)
        app.add_lines(50)
        app.wait()
        _metrics_say_the_same(app, worker)
        assert worker.mark() == []
        worker.stop()
        (stopped,) = worker.stage("stop", WorkerStopped=1)
        assert (stopped["reason"], stopped["level"]) == ("requested", "info")
    finally:
        for each in workers:
            each.kill()
    app.assert_exact()


def test_after_a_kill_the_other_says_what_the_group_waits_for(own_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """The dead worker's successor asks to join; until the dead one's session is over, nobody processes anything."""
    KEPT.mkdir(parents=True, exist_ok=True)
    app = Application(own_kafka.bootstrap_servers, "on-call-kill", tmp_path)
    app.create("dead", 1)
    session_timeout_ms = 30_000
    workers = [Watched(app, f"kill-{n}", f"state-{n}", session_timeout_ms) for n in range(2)]

    def told(worker: Watched, fact: str) -> list[dict[str, Any]]:
        return [line for line in worker.lines() if line.get("fact") == fact]

    try:
        until("each has tasks", lambda: all(told(w, "TaskRunning") for w in workers), LIMIT_S)
        until("they share", lambda: sum(len(told(w, "TasksAssigned")[-1]["tasks"]) for w in workers) == 8, LIMIT_S)
        survivor = workers[1]
        workers[0].kill()
        workers.append(Watched(app, "kill-2", "state-0", session_timeout_ms))
        until("it says what it waits for", lambda: bool(told(survivor, "WaitEnded")), LIMIT_S)
    finally:
        for each in workers:
            each.kill()
    (waiting,) = told(survivor, "Waiting")
    assert waiting["doing"] == "joining the group" and waiting["level"] == "warning"
    assert "killed or stands still" in waiting["cause"] and "(30 s, session_timeout_ms)" in waiting["cause"]
    assert 10 <= waiting["waited_s"] < 30
    (ended,) = told(survivor, "WaitEnded")
    assert ended["doing"] == "joining the group" and ended["waited_s"] > waiting["waited_s"]


def _start_and_restore(app: Application, worker: Watched) -> None:
    stores = PARTITIONS
    said = worker.stage(
        "start and restore",
        WorkerStarted=1,
        ClusterFound=1,
        TasksAssigned=1,
        RestoreStarted=stores,
        RestoreFinished=stores,
        TaskRunning=2 * PARTITIONS,
    )
    started, cluster = said[:2]
    assert (started["application"], started["guarantee"]) == (app.name, "exactly_once")
    assert cluster["servers"] == app.bootstrap_servers
    assert sum(line["records"] for line in said if line["fact"] == "RestoreFinished") >= len(app.wanted)
    until("it is ready", lambda: worker.page("/ready")[0] == 200)
    assert worker.page("/health")[0] == 200


def _rebalance(app: Application, worker: Watched) -> Watched:
    other = Watched(app, "other", "state-2")
    given = worker.stage("another joins", TasksRevoked=1, TasksAssigned=1, RestoreFinished=2, TaskRunning=4)
    assert len(given[1]["tasks"]) == 4
    other.stop()
    worker.stage("it leaves", TasksRevoked=1, TasksAssigned=1, RestoreFinished=4, TaskRunning=8)
    return other


def _abort(app: Application, worker: Watched) -> None:
    worker.abort.touch()
    app.add_lines(20)
    (aborted,) = worker.stage("abort", CommitAborted=1)
    assert aborted["cause"] == "AbortableError: the test refuses this commit" and aborted["level"] == "warning"
    app.wait()


def _poison(app: Application, worker: Watched) -> None:
    app.write(app.source, [b"\xff poison"], partition=2)
    (letter,) = worker.stage("poison", RecordDeadLettered=1)
    assert (letter["topic"], letter["partition"]) == (app.source, 2)
    assert "poison" not in worker.text.read_text(), "no record contents in the log"
    until("it is in the dead letters", lambda: len(app.read(f"{app.name}-dead", 1)) == 1)


def _outage(kafka: EmbeddedKafka, worker: Watched) -> None:
    kafka.kill_broker(0)
    worker.stage("outage", WaitingForBrokers=1, TasksLost=1)  # the session ends, too
    until("the metric says so", lambda: worker.metric("penstock_brokers_reachable") == 0, LIMIT_S)
    kafka.start_broker(0)
    back = worker.stage("brokers are back", BrokersFound=1, TasksAssigned=1, RestoreFinished=4, TaskRunning=8)
    assert next(line for line in back if line["fact"] == "BrokersFound")["away_s"] > 1
    until("the metric says so", lambda: worker.metric("penstock_brokers_reachable") == 1, LIMIT_S)
    raw = [line["message"] for line in worker.lines() if line["logger"] == "penstock.kafka"]
    assert len(raw) < 40, "the client's own lines are folded"


def _metrics_say_the_same(app: Application, worker: Watched) -> None:
    (KEPT / "worker.metrics").write_text(worker.page("/metrics")[1])

    def unequal() -> list[str]:
        """Facts that the metrics count otherwise; those that come while they are read are logged first."""
        logged = Counter(line["fact"] for line in worker.lines() if "fact" in line and line["fact"] != "Committed")
        return [fact for fact, n in logged.items() if worker.metric("penstock_facts_total", fact=fact) != n]

    until("log and metrics count the same", lambda: not unequal(), LIMIT_S)
    assert worker.metric("penstock_commit_aborts_total", cause="AbortableError") == 1
    assert worker.metric("penstock_bad_records_total", policy="dead_letter") == 1
    assert worker.metric("penstock_tasks", state="running") == 2 * PARTITIONS
    until("the lag is gone", lambda: worker.metric("penstock_records_lag") == 0)
    assert worker.metric("penstock_records_consumed_total", topic=app.source) > 0
    assert worker.metric("penstock_commit_total") > 0
