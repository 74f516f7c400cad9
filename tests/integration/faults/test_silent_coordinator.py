"""A coordinator that answers late, or never, neither ends nor holds up the process that asked it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.kafka import bounded_calls, coordinator_requests
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, producer_config
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import OffsetAndMetadata, ProducerRetiredError, TopicSpec
from tests.chaos.log_reading import LogReader

LIMIT_S = 120.0
ASKER = """
import sys
import time
from penstock.state.errors import EnvironmentFault, RetriableError
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config

admin = KafkaAdmin(admin_config(sys.argv[1], {}), request_timeout_s=1.0)
until = time.monotonic() + 100
while True:
    try:
        admin.require_answer()
        break
    except EnvironmentFault:
        if time.monotonic() > until:
            raise
print("ready", flush=True)
sys.stdin.readline()
try:
    admin.group_clients("nobody")
except RetriableError as exc:
    print("silent:", exc, flush=True)
sys.stdin.readline()
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        print("asked again:", admin.group_clients("nobody"), flush=True)
        break
    except RetriableError:
        if time.monotonic() > until:
            raise
"""


class Asker:
    """A process that describes a group, one line of its output at a time."""

    def __init__(self, servers: str, again_s: float) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKER, servers, str(again_s)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], LIMIT_S)[0], "the process says nothing"
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(heap="320m") as cluster:
        yield cluster


def test_a_late_answer_ends_nothing(broker: EmbeddedKafka) -> None:
    asker = Asker(broker.bootstrap_servers, LIMIT_S / 2)
    assert asker.line() == "ready"
    os.kill(broker.pid(0), signal.SIGSTOP)
    try:
        asker.go_on()
        assert asker.line().startswith("silent: ")
    finally:
        os.kill(broker.pid(0), signal.SIGCONT)
    asker.go_on()
    out, err = asker.process.communicate(timeout=LIMIT_S)
    assert (asker.process.returncode, out.strip()) == (0, "asked again: []"), err


def test_a_process_ends_while_its_question_is_open(broker: EmbeddedKafka) -> None:
    asker = Asker(broker.bootstrap_servers, 0)
    assert asker.line() == "ready"
    os.kill(broker.pid(0), signal.SIGSTOP)
    try:
        asker.go_on()
        assert asker.line().startswith("silent: ")
        asker.go_on()
        _, err = asker.process.communicate(timeout=LIMIT_S)
        assert asker.process.returncode == 1
        assert "RetriableError" in err
    finally:
        os.kill(broker.pid(0), signal.SIGCONT)


class Blocked:
    """A producer whose positions are never added, as where the client waits for a coordinator that it does not find."""

    def __init__(self, client: Any) -> None:
        self._client, self.goes_on = client, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self.goes_on.wait(LIMIT_S)


def test_a_transactional_call_that_does_not_return_is_left_behind(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_calls, "GRACE_S", 0.1)
    monkeypatch.setattr(bounded_calls, "WOKEN_S", 0.1)
    servers = broker.bootstrap_servers
    KafkaAdmin(admin_config(servers, {})).create_topics([TopicSpec("stuck-in", 1), TopicSpec("stuck-out", 1)])
    config = producer_config(servers, {}, transactional_id="stuck")
    at = {TopicPartition("stuck-in", 0): OffsetAndMetadata(5, "")}

    def sent(value: bytes) -> KafkaProducer:
        producer = KafkaProducer(config)
        producer.init_transactions(LIMIT_S)
        producer.begin()
        producer.send("stuck-out", [b"k"], [value], [1], partition=0)
        producer.flush(LIMIT_S)
        return producer

    stuck = sent(b"of the stuck one")
    blocked = Blocked(stuck._client)
    stuck._client = blocked  # type: ignore[assignment]  # the same client but for one call
    with pytest.raises(RetriableError, match="did not return"):
        stuck.send_offsets(at, "stuck-group", 0.1)
    with pytest.raises(ProducerRetiredError, match="did not return"):
        stuck.abort(LIMIT_S)
    stuck.close()
    following = sent(b"of the next one")
    following.send_offsets(at, "stuck-group", LIMIT_S)
    following.commit(LIMIT_S)
    following.close()
    blocked.goes_on.set()
    assert [r.value for r in LogReader(servers).read(["stuck-out"])["stuck-out"][0]] == [b"of the next one"]


def test_every_question_to_a_coordinator_takes_the_long_time_out() -> None:
    """The client ends the process when a shorter one is over: no call may set its own."""
    asking = ("describe_consumer_groups(", "alter_consumer_group_offsets(", "delete_consumer_groups(")
    asking += ("list_consumer_group_offsets(", "delete_consumer_group_offsets(")
    calls = 0
    for path in sorted(Path(coordinator_requests.__file__).parents[1].rglob("*.py")):
        text = path.read_text()
        for name in asking:
            for rest in text.split("." + name)[1:]:
                calls += 1
                assert "request_timeout=COORDINATOR_TIMEOUT_S" in rest[:200], f"{path.name}: {name}"
    assert calls >= 4
