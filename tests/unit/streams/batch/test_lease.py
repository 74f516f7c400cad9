"""The lease of scheduled compactions: one has it, one that died does not keep it, and the last of two that ask at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock.streams.batch.lease import HOLD_MS, CompactionLease, Holder


class Clock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def lease(folder: Path, clock: Clock, meanwhile: CompactionLease | None = None) -> CompactionLease:
    """``meanwhile``: asks for it too, while this one waits to look again."""

    def sleep(_: float) -> None:
        if meanwhile is not None:
            meanwhile._write()

    return CompactionLease(str(folder), "app", now_ms=clock.now_ms, sleep=sleep)


def test_a_second_job_is_told_who_has_it_and_gets_it_afterwards(tmp_path: Path) -> None:
    clock = Clock()
    first, second = lease(tmp_path, clock), lease(tmp_path, clock)
    with first.held() as other:
        assert other is None
        with second.held() as holder:
            assert holder is not None and holder.name == first.name
        assert first.holder() is not None, "who was refused has not taken it away"
        assert first.acquire() is None, "and its own holder may ask again"
    assert second.acquire() is None and first.acquire() is not None


def test_one_that_died_holds_it_no_longer_than_it_said(tmp_path: Path) -> None:
    clock = Clock()
    assert lease(tmp_path, clock).acquire() is None
    other = lease(tmp_path, clock)
    clock.ms += HOLD_MS - 1
    assert other.acquire() is not None
    clock.ms += 1
    assert other.acquire() is None


def test_one_that_was_killed_on_this_machine_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = (
        "import sys, time; from penstock.streams.batch.lease import CompactionLease; "
        "assert CompactionLease(sys.argv[1], 'app').acquire() is None; print(flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", holds, str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            mine = CompactionLease(str(tmp_path), "app", sleep=lambda _: None)
            other = mine.acquire()
            assert other is not None and other.pid == process.pid
        finally:
            os.kill(process.pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "elsewhere")
        assert mine.acquire() is not None, "nobody knows of another machine's processes"
    assert mine.acquire() is None


def test_a_lease_without_a_process_holds_as_long_as_it_says(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "compaction.lease").write_bytes(
        msgspec.json.encode(Holder("of an older version", clock.ms + 1))
    )
    assert lease(tmp_path, clock).acquire() is not None


def test_of_two_that_ask_at_once_the_last_has_it(tmp_path: Path) -> None:
    clock = Clock()
    late = lease(tmp_path, clock)
    early = lease(tmp_path, clock, meanwhile=late)
    holder = early.acquire()
    assert holder is not None and holder.name == late.name


def test_a_lease_that_cannot_be_read_is_nobodys(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "compaction.lease").write_bytes(b"{")
    assert lease(tmp_path, clock).acquire() is None
