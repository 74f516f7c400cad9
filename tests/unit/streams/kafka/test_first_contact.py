"""Where no broker answers, a worker says so soon, and in the words of the other commands."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka import admin
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.examples import word_count

LIMIT_S = 5.0


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CONTACT_S", 0.3)


def test_a_silent_port_and_a_closed_one_are_no_brokers(silent: str) -> None:
    for servers in (silent, "127.0.0.1:1"):
        began_s = time.monotonic()
        with pytest.raises(EnvironmentFault, match=f"no broker answers at {servers}. Start one with: penstock up"):
            KafkaAdmin({"bootstrap.servers": servers}).require_answer()
        assert time.monotonic() - began_s < LIMIT_S


def test_a_worker_asks_first(silent: str, tmp_path: Path) -> None:
    settings = WorkerSettings(application_id="a", bootstrap_servers=silent, state_dir=str(tmp_path))
    began_s = time.monotonic()
    with pytest.raises(EnvironmentFault, match=f"no broker answers at {silent}. Start one with: penstock up"):
        Worker(word_count.build(), settings).run()
    assert time.monotonic() - began_s < LIMIT_S
    assert list(tmp_path.iterdir()) == []
