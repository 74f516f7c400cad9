"""What ``up`` leaves behind for ``down`` and ``status``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from penstock.state.errors import SettingsError, UserError
from penstock.streams.kafka.embedded import running_bootstrap_servers, status_of, stop_detached
from penstock.streams.kafka.embedded.processes import ProcessHandle, process_identity
from penstock.streams.kafka.embedded.state_file import (
    BrokerRecord,
    ClusterRecord,
    decode,
    encode,
    read_state,
    state_path,
    write_state,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def broker(node_id: int, identity: str) -> BrokerRecord:
    """A broker whose process id is ours."""
    return BrokerRecord(node_id, f"127.0.0.1:{20000 + node_id}", ProcessHandle(os.getpid(), identity))


def live_identity() -> str:
    """This process's identity."""
    identity = process_identity(os.getpid())
    assert identity is not None
    return identity


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = ClusterRecord(tmp_path, True, (broker(0, "a:1"), broker(1, "b:2")))
    write_state(state_path("x"), record)
    assert read_state(state_path("x")) == record
    assert record.bootstrap_servers == "127.0.0.1:20000,127.0.0.1:20001"


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"broker_count": 2}, {"brokers": []}, {"brokers": [{}]}, {"brokers": None}]
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    value = json.loads(encode(ClusterRecord(tmp_path, False, (broker(0, "a:1"),))))
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode(json.dumps(value | change).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_a_broken_file_is_an_error_with_what_to_do(data: bytes) -> None:
    path = state_path("x")
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x\.json cannot be understood .* rm '"):
        status_of("x")


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "a\n"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a cluster's name"):
        state_path(name)


def test_nothing_is_down(tmp_path: Path) -> None:
    assert status_of("x").state == "down"
    assert running_bootstrap_servers("x") is None
    assert stop_detached("x").state == "down"


def test_all_some_or_none_of_the_brokers_run(tmp_path: Path) -> None:
    live, gone = broker(0, live_identity()), broker(1, "another boot:1")
    for brokers, state in [((live,), "running"), ((live, gone), "degraded"), ((gone,), "dead")]:
        write_state(state_path("x"), ClusterRecord(tmp_path, False, brokers))
        assert status_of("x").state == state
        assert (running_bootstrap_servers("x") is None) == (state == "dead")


@pytest.mark.parametrize("temporary", [True, False])
def test_a_stale_file_is_cleared_away_and_the_process_that_has_the_id_now_is_not_harmed(
    tmp_path: Path, temporary: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_state(state_path("x"), ClusterRecord(data, temporary, (broker(0, "another boot:1"),)))
    assert stop_detached("x").state == "dead"
    assert not state_path("x").exists()
    assert data.exists() != temporary
