"""Processes are known by more than their id, and the guard does its work only when it is left alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from penstock.streams.kafka.embedded import processes
from penstock.streams.kafka.embedded.processes import ProcessHandle, kill_processes, process_identity, stop_processes

Start = Callable[[str], tuple["subprocess.Popen[str]", ProcessHandle]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Run a Python program that prints a line when it is ready."""
    children: list[subprocess.Popen[str]] = []

    def run(program: str) -> tuple[subprocess.Popen[str], ProcessHandle]:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        identity = process_identity(child.pid)
        assert identity is not None
        return child, ProcessHandle(child.pid, identity)

    yield run
    for child in children:
        child.kill()
        child.communicate()


SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


def test_the_identity_of_a_process_stays() -> None:
    assert process_identity(os.getpid()) == process_identity(os.getpid()) is not None


def test_a_handle_of_an_earlier_process_with_this_id_does_not_run() -> None:
    assert not ProcessHandle(os.getpid(), "another boot:1").is_running


def test_an_ended_process_that_nobody_has_waited_for_does_not_run(start: Start) -> None:
    child, handle = start(SLEEP)
    assert handle.is_running
    assert stop_processes([handle], timeout_s=120)
    assert not handle.is_running
    assert child.wait() == -15


def test_a_process_that_ignores_sigterm_is_killed(start: Start) -> None:
    child, handle = start(STUBBORN)
    assert not stop_processes([handle], timeout_s=0.2)
    assert not handle.is_running
    assert child.wait() == -9


def test_another_process_with_the_id_is_left_alone(start: Start) -> None:
    child, handle = start(SLEEP)
    stale = ProcessHandle(handle.pid, "another boot:1")
    assert stop_processes([stale], timeout_s=120)
    kill_processes([stale])
    assert child.poll() is None


@pytest.mark.parametrize(("last", "killed"), [("", True), ("done\n", False)])
def test_the_guard_kills_when_its_owner_is_gone_and_not_when_it_is_told_all_is_done(
    start: Start, last: str, killed: bool
) -> None:
    _, handle = start(SLEEP)
    told = f"{handle.pid}\t{handle.identity}\n{last}"
    subprocess.run([sys.executable, "-I", "-S", processes.__file__], input=told, text=True, timeout=300, check=True)
    assert handle.is_running != killed
