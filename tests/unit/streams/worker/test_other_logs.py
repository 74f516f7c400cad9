"""A worker with its threads and stores on a log that is not Kafka, given by the public argument."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.events.facts import PurgeFailed
from penstock.streams.ports.log import Deletion, TopicSpec
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.testing.memory_clients import MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.worker.fixed_worker_lock import JOB_CLIENT_ID, presence_group
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology
from tests.memory_worker_log import MemoryWorkerLog
from tests.recorder import Recorder

LIMIT_S = 60.0
KEYS = 20
PARTITIONS = 2


def counted() -> Topology:
    b = ps.StreamsBuilder("counted", value=str)
    b.stream("in").group_by_key().count().to_stream().to("out")
    return b.build()


def add(log: MemoryLog, rounds: int) -> None:
    for turn in range(rounds):
        for key in range(KEYS):
            log.append(TopicPartition("in", key % PARTITIONS), LogEntry(b"k%d" % key, b"v", 1_000 + turn))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("partitions", [None, (0, 1)], ids=["group", "fixed"])
def test_a_worker_runs_on_a_log_of_another_kind(
    tmp_path: Path, guarantee: Guarantee, partitions: tuple[int, ...] | None
) -> None:
    log = MemoryLog()
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, PARTITIONS))
    clients = MemoryWorkerLog(log)
    settings = WorkerSettings(
        application_id="app",
        bootstrap_servers="nowhere:1",
        guarantee=guarantee,
        state_dir=tmp_path,
        commit_interval_ms=20,
    )
    for turn in (1, 2):
        worker = Worker(counted(), settings, partitions=partitions, open_log=lambda *_: clients).start()
        add(log, 3)
        until(lambda expected=KEYS * 3 * turn: len(log.read("out")) >= expected)
        worker.stop()
    per_key: dict[bytes | None, list[int]] = {}
    for _, _, entry in log.read("out"):
        assert entry.value is not None
        per_key.setdefault(entry.key, []).append(int.from_bytes(entry.value, "big"))
    assert per_key == {b"k%d" % key: [1, 2, 3, 4, 5, 6] for key in range(KEYS)}
    assert {"admin", "producer", "reader"} <= set(clients.opened)


def test_with_starts_and_stops_a_worker_and_hides_no_error(tmp_path: Path) -> None:
    log = MemoryLog()
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, PARTITIONS))
    settings = WorkerSettings(application_id="app", state_dir=str(tmp_path))
    clients = MemoryWorkerLog(log)
    with Worker(counted(), settings, open_log=lambda *_: clients) as worker:
        assert worker.running
        add(log, 1)
        until(lambda: len(log.read("out")) == KEYS)
    assert not worker.running
    failing = ps.StreamsBuilder("failing", value=str)
    failing.stream("in").map_values(lambda value: value[99]).to("out")
    empty = MemoryLog()
    for topic in ("in", "out"):
        empty.create(TopicSpec(topic, PARTITIONS))
    others = MemoryWorkerLog(empty)
    elsewhere = WorkerSettings(application_id="app", state_dir=str(tmp_path / "elsewhere"))
    with (
        pytest.raises(TimeoutError, match="the program's own"),
        Worker(failing.build(), elsewhere, open_log=lambda *_: others) as worker,
    ):
        add(empty, 1)
        until(lambda: not worker.running)
        raise TimeoutError("the program's own")


class JobBegins(MemoryWorkerLog):
    """A log where a job joins the fixed workers as soon as one of them opens the id of its partition, not having seen it."""

    def producer(self, transactional_id: str | None = None, *, bulk: bool = False) -> Any:
        if transactional_id == "app-p0":
            job = MemoryConsumer(self._log, presence_group("app"), client_id=JOB_CLIENT_ID)
            job.subscribe(["in"], on_assign=ignore, on_revoke=ignore, on_lost=ignore)
        return super().producer(transactional_id, bulk=bulk)


def ignore(partitions: object) -> None:
    pass


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_fixed_worker_looks_for_a_job_once_more_when_it_has_fenced_others(
    tmp_path: Path, guarantee: Guarantee
) -> None:
    log = MemoryLog()
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, PARTITIONS))
    add(log, 1)
    settings = WorkerSettings(application_id="app", guarantee=guarantee, state_dir=str(tmp_path), commit_interval_ms=20)
    clients = JobBegins(log)
    with pytest.raises(SettingsError, match="a job in Spark does the work of app"):
        worker = Worker(counted(), settings, partitions=(0,), open_log=lambda *_: clients).start()
        until(lambda: not worker.running)
        worker.stop()
    assert not log.read("out")


class RefusesOnce(MemoryWorkerLog):
    """A log that answers the first deletion of records with an error for each partition."""

    refused: frozenset[TopicPartition] = frozenset()

    def admin(self, *, request_timeout_s: float | None = None) -> Any:
        admin = super().admin(request_timeout_s=request_timeout_s)
        deletes = admin.delete_before

        def delete_before(offsets: Mapping[TopicPartition, int]) -> Deletion:
            if not self.refused:
                self.refused = frozenset(offsets)
                return lambda: dict.fromkeys(offsets, "the disk is slow")
            done: Deletion = deletes(offsets)
            return done

        admin.delete_before = delete_before
        return admin


def test_a_deletion_that_fails_is_one_line_and_one_count_by_partition_and_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="penstock")
    log = MemoryLog()
    for topic in ("in", "out"):
        log.create(TopicSpec(topic, PARTITIONS))
    b = ps.StreamsBuilder("counted", value=str)
    b.stream("in").group_by(lambda k, v: f"of {k!r}").count(name="n").to_stream().to("out")
    settings = WorkerSettings(
        application_id="app",
        bootstrap_servers="nowhere:1",
        state_dir=tmp_path,
        commit_interval_ms=20,
        repartition_purge_interval_ms=50,
    )
    clients, recorder = RefusesOnce(log), Recorder()
    worker = Worker(b.build(), settings, open_log=lambda *_: clients, events=recorder).start()
    add(log, 3)
    until(lambda: any(log.partition(tp).first for tp in clients.refused))
    worker.stop()
    failed = recorder.of(PurgeFailed)
    assert {fact.partition for fact in failed} == clients.refused and len(failed) == len(clients.refused)
    assert {fact.cause for fact in failed} == {"the disk is slow"}
    lines = [r for r in caplog.records if r.penstock_line.fact == "PurgeFailed"]  # type: ignore[attr-defined]  # set by the adapter
    counts = [m.value for m in worker.metrics() if m.labels.get("fact") == "PurgeFailed"]
    assert len(lines) == len(failed) and counts == [len(failed)]
