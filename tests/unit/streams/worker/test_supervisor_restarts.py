"""What a supervisor does when its processes end, with real processes that end as they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.streams.worker import exit_codes

ROOT = Path(__file__).parents[4]
LIMIT_S = 60.0

SUPERVISE = """
import sys
from penstock.streams.worker import supervisor
programs = iter(sys.argv[2:])
supervisor.PAUSE_S = float(sys.argv[1])
supervisor._command = lambda argv, partitions: [sys.executable, "-c", next(programs)]
sys.exit(supervisor.supervise([], len(sys.argv) - 2, None))
"""
"""Supervises one process for each program that it is given, behind the first pause."""

WORKS = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, lambda *_: exit(0))
pathlib.Path({mark!r}).write_text("")
time.sleep(600)
"""
ENDS = """
import os, pathlib
with pathlib.Path({mark!r}).open("a") as file:
    file.write("x")
os.kill(os.getpid(), -{status}) if {status} < 0 else exit({status})
"""


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def supervise(*programs: str, pause_s: float = 0.2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, str(pause_s), *programs],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".package")},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("status", [exit_codes.FAILED, 120, -signal.SIGKILL])
def test_a_process_that_fails_is_started_again_and_again_and_the_others_go_on(tmp_path: Path, status: int) -> None:
    works, fails = tmp_path / "works", tmp_path / "fails"
    programs = (WORKS.format(mark=str(works)), ENDS.format(mark=str(fails), status=int(status)))
    with supervise(*programs) as supervisor:
        try:
            until(works.exists)
            works.unlink()
            until(lambda: fails.exists() and len(fails.read_text()) >= 4)
            assert supervisor.poll() is None
            assert not works.exists(), "the healthy one was not touched"
            supervisor.send_signal(signal.SIGTERM)
            said = supervisor.communicate(timeout=LIMIT_S)[1]
        finally:
            supervisor.kill()
    for pause in ("0.2", "0.4", "0.8"):
        assert f"status={int(status)} restart_s={pause}" in said


def test_a_stop_does_not_wait_for_a_pause(tmp_path: Path) -> None:
    fails = tmp_path / "fails"
    with supervise(ENDS.format(mark=str(fails), status=1), pause_s=600.0) as supervisor:
        try:
            assert supervisor.stderr is not None
            assert "restarting it. process=0" in supervisor.stderr.readline()
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(LIMIT_S) == 0
        finally:
            supervisor.kill()
    assert fails.read_text() == "x"


def test_what_the_user_is_to_correct_ends_all(tmp_path: Path) -> None:
    works, fails = tmp_path / "works", tmp_path / "fails"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(works)!r}).exists(): time.sleep(0.02)\n"
    program = waits + ENDS.format(mark=str(fails), status=exit_codes.USER_ERROR)
    with supervise(WORKS.format(mark=str(works)), program) as supervisor:
        try:
            said = supervisor.communicate(timeout=LIMIT_S)[1]
        finally:
            supervisor.kill()
    assert supervisor.returncode == exit_codes.USER_ERROR
    assert fails.read_text() == "x", "once"
    assert "restarting it" not in said
