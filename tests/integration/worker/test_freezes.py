"""Workers that are stopped (SIGSTOP) for longer than their session and transaction, replaced, and woken up again."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.runtime.fixed_fence import FENCED
from penstock.streams.worker.fixed_worker_lock import presence_group
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import PARTITIONS, SESSION_TIMEOUT_MS, Application, until

FROZEN_S = 14.0
"""Longer than a session and a transaction timeout."""


def test_woken_worker_restores_what_another_one_did_meanwhile(kafka: str, tmp_path: Path) -> None:
    """Its transaction is over, so it aborts before the group tells it that it has lost its tasks."""
    app = Application(kafka, "frozen", tmp_path)
    app.add_lines(300)
    swift = {"state_flush_interval_ms": 100}
    with app.process("first", signal_at=("sent", 3, signal.SIGSTOP), settings=swift) as first:
        app.feed("the first worker is frozen", lambda: "signal at" in first.said)
        started = time.monotonic()
        with app.process("second", settings=swift) as second:
            app.add_lines(300)
            app.wait()
            time.sleep(max(FROZEN_S - (time.monotonic() - started), 0))
            first.signal(signal.SIGCONT)
            until("the zombie is a member again", lambda: not first.alive or app.admin.group_members(app.name) == 2)
            second.stop()
        app.add_lines(300)
        app.wait()
        first.stop()
    app.assert_exact()


def test_woken_worker_does_not_take_its_old_stores_for_young(kafka: str, tmp_path: Path) -> None:
    """Frozen, with nothing to do, for longer than its changelog keeps deletions: it may lack some, so it restores all."""
    app = Application(kafka, "aged", tmp_path)
    app.add_lines(100)
    swift = {"state_flush_interval_ms": 100}
    with app.process("first", settings=swift) as first:
        app.wait()
        (changelog,) = (t for t in app.admin.topics(app.name) if t.endswith("-changelog"))
        configure(kafka, changelog, "delete.retention.ms", "5000")
        time.sleep(1.0)
        before = len(first.said)
        first.signal(signal.SIGSTOP)
        started = time.monotonic()
        with app.process("second", settings=swift) as second:
            until("it has the tasks", lambda: len(set(re.findall(r"restored \S+ of \S+", second.said))) == PARTITIONS)
            app.add_lines(100)
            app.wait()
            whole = len(app.read(changelog))
            time.sleep(max(FROZEN_S - (time.monotonic() - started), 0))
            first.signal(signal.SIGCONT)
            until("the zombie is a member again", lambda: app.admin.group_members(app.name) == 2)
            second.stop()
        app.add_lines(100)
        app.wait()
        first.stop()
    app.assert_exact()
    restored = [int(line.split()[-2]) for line in first.said[before:].splitlines() if line.startswith("restored")]
    assert sum(restored) >= whole, first.said


def test_what_a_woken_worker_wrote_at_least_once_does_not_become_state(kafka: str, tmp_path: Path) -> None:
    """It is frozen in a commit and writes old counts over newer ones when it wakes up. Counts may be too high, as records
    on their way between its tasks were sent twice, but none may be lost."""
    app = Application(kafka, "stale", tmp_path, "at_least_once")
    app.add_lines(300)
    with app.process("first", signal_at=("prepared", 3, signal.SIGSTOP)) as first:
        app.feed("the first worker is frozen", lambda: "signal at" in first.said)
        started = time.monotonic()
        with app.process("second") as second:
            app.add_lines(300)
            app.wait()
            time.sleep(max(SESSION_TIMEOUT_MS / 1000 + 3 - (time.monotonic() - started), 0))
            app.wait()
            first.signal(signal.SIGCONT)
            until("the zombie is a member again", lambda: not first.alive or app.admin.group_members(app.name) == 2)
            first.kill()
            second.kill()
    with app.process("third") as third:
        app.add_lines(100)
        app.wait()
        third.stop()
    last = {word: found[-1] for word, found in app.counts().items()}
    assert {word: n for word, n in last.items() if n < app.wanted[word]} == {}


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_fixed_worker_ends_when_it_wakes_up_beside_the_group(kafka: str, tmp_path: Path, guarantee: Guarantee) -> None:
    """It had nothing to do when it was frozen, and was not a member of anything for a while."""
    app = Application(kafka, f"beside-{guarantee.replace('_', '-')}", tmp_path, guarantee)
    app.add_lines(100)
    with app.process("first", partitions=list(range(PARTITIONS))) as first:
        app.wait()
        first.signal(signal.SIGSTOP)
        until("it is not a member", lambda: app.admin.group_members(presence_group(app.name)) == 0)
        with app.process("second") as second:
            app.add_lines(100)
            app.wait()
            assert marks(app) == {FENCED}
            first.signal(signal.SIGCONT)
            app.feed("the fixed worker ends", lambda: not first.alive)
            assert first.wait() == 1
            assert "fixed partitions" in first.said
            app.add_lines(100)
            app.wait()
            second.stop()
    if guarantee == "exactly_once":
        app.assert_exact()
    last = {word: found[-1] for word, found in app.counts().items()}
    assert {word: n for word, n in last.items() if n < app.wanted[word]} == {}


def test_fixed_worker_ends_when_it_wakes_up_beside_a_job(kafka: str, tmp_path: Path) -> None:
    """It had nothing to do when it was frozen, so nothing but the job's presence shows that it is not alone."""
    app = Application(kafka, "beside-a-job", tmp_path)
    app.add_lines(20)
    settings = app.settings()
    inputs = [TopicPartition(app.source, p) for p in range(PARTITIONS)]
    with app.process("first", partitions=[0, 1, 2, 3]) as first:
        app.wait()
        first.signal(signal.SIGSTOP)
        until("it is not a member", lambda: app.admin.group_members(presence_group(app.name)) == 0)
        with kept_away(settings, inputs) as hold:
            for partitions in (None, [0]):
                with pytest.raises(SettingsError, match="a job in Spark does the work"):
                    Worker(app.topology, settings, partitions=partitions).start()
            hold.check()
            first.signal(signal.SIGCONT)
            until("the fixed worker ended", lambda: not first.alive)
            assert first.wait() == 1
            assert "a job in Spark does the work" in first.said
    Worker(app.topology, settings, partitions=[0]).start().stop()
    app.assert_exact()


def marks(app: Application) -> set[str]:
    """What the group of fixed workers says of the application's input."""
    consumer = KafkaConsumer(consumer_config(app.bootstrap_servers, presence_group(app.name), {}))
    try:
        found = consumer.committed([TopicPartition(app.source, p) for p in range(PARTITIONS)])
    finally:
        consumer.close()
    return {"none" if mark is None else mark.metadata for mark in found.values()}


def configure(kafka: str, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": kafka})
    for done in client.incremental_alter_configs([resource]).values():
        done.result()
