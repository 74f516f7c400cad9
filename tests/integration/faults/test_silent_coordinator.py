"""A group's coordinator that answers late does not end the process that asked it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.streams.kafka import coordinator_requests
from penstock.streams.kafka.embedded import EmbeddedKafka

LIMIT_S = 120.0
ASKER = """
import sys
from penstock.state.errors import RetriableError
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config

admin = KafkaAdmin(admin_config(sys.argv[1], {}), request_timeout_s=1.0)
admin.require_answer()
print("ready", flush=True)
sys.stdin.readline()
try:
    admin.group_clients("nobody")
except RetriableError as exc:
    print("silent:", exc, flush=True)
sys.stdin.readline()
print("asked again:", admin.group_clients("nobody"), flush=True)
"""


class Asker:
    """A process that describes a group, one line of its output at a time."""

    def __init__(self, servers: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", ASKER, servers], stdin=pipe, stdout=pipe, stderr=pipe, text=True
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
    asker = Asker(broker.bootstrap_servers)
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
    asker = Asker(broker.bootstrap_servers)
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
