"""Where no broker answers, commands say so soon, and a worker says it in the same words and waits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.kafka import admin
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.examples import word_count

LIMIT_S = 25.0
"""Less than the 30 s after which other requests give up."""


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


def test_a_worker_waits_and_says_so_once(silent: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And stops at once when it is told to, whatever it waits for."""
    settings = WorkerSettings(application_id="a", bootstrap_servers=silent, state_dir=str(tmp_path))
    worker = Worker(word_count.build(), settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    until = time.monotonic() + 60
    while not caplog.messages:
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(3.0)  # several attempts
    assert thread.is_alive()
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.worker"]
    assert len(lines) == 1, lines
    assert f"no broker answers at {silent}. Start one with: penstock up" in lines[0]
    worker.request_stop()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_wrong_are_told_before_any_broker_is_asked(silent: str, tmp_path: Path) -> None:
    settings = WorkerSettings(application_id="a b", bootstrap_servers=silent, state_dir=str(tmp_path))
    with pytest.raises(SettingsError, match="application_id='a b'"):
        Worker(word_count.build(), settings).run()
