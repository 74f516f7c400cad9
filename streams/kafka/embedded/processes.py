"""Broker processes: distinguished from later processes with the same id, and stopped by id.

Run as a script, this file is the guard of a library cluster. It reads one ``pid<TAB>identity`` per line from standard
input. If the input ends without the word ``done``, because the process at the other end is gone, it kills those
processes and removes the temporary folder given as its argument, if any. It therefore imports only the standard
library.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_POLL_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessHandle:
    """A process that was seen running. ``identity`` is what :func:`process_identity` returned then."""

    pid: int
    identity: str

    @property
    def is_running(self) -> bool:
        return process_identity(self.pid) == self.identity

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process is gone."""
        if self.is_running:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # it ended between the two lines, which is the goal of the signal


def process_identity(pid: int) -> str | None:
    """Return a text that is unique to this process for all time: boot and start time. ``None`` if no such process runs
    (a zombie counts as ended)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _identity_by_ps(pid)
    fields = stat.rpartition(")")[2].split()  # the name before it, in parentheses, may hold spaces
    # When a JVM is killed, its first thread is often a zombie while the others still hold ports and file locks.
    if fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[19]}"


def stop_processes(handles: Iterable[ProcessHandle], *, timeout_s: float) -> bool:
    """Send SIGTERM to all, wait, and send SIGKILL to those left after ``timeout_s``. Returns when none runs any more:
    whether SIGTERM was enough."""
    running = [handle for handle in handles if handle.is_running]
    for handle in running:
        handle.send(signal.SIGTERM)
    clean = _wait_gone(running, timeout_s)
    if not clean:
        kill_processes(running)
    return clean


def kill_processes(handles: Iterable[ProcessHandle]) -> None:
    """Send SIGKILL to all; return when none runs any more (if one is stuck in the kernel: after 10 s)."""
    running = list(handles)
    for handle in running:
        handle.send(signal.SIGKILL)
    _wait_gone(running, 10.0)


def _wait_gone(handles: list[ProcessHandle], timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while any(handle.is_running for handle in handles):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def _identity_by_ps(pid: int) -> str | None:
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def _guard() -> None:
    handles: list[ProcessHandle] = []
    for line in sys.stdin:
        if line == "done\n":
            return
        pid, _, identity = line.rstrip("\n").partition("\t")
        handles.append(ProcessHandle(int(pid), identity))
    kill_processes(handles)
    for folder in sys.argv[1:]:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _guard()
