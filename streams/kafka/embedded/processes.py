"""Broker processes: told apart from later ones with the same id, and stopped by id.

Run as a script this file is the guard of a library cluster: it reads one ``pid<TAB>identity`` per line from its
standard input, and when that ends without the word ``done``, because the process that held the other end is gone, it
kills what it was told of and removes the temporary folder that is its argument, if there is one. It therefore imports
nothing but the standard library.
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
    """A process that was seen running. ``identity`` is what :func:`process_identity` said of it then."""

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
                return  # it ended between the two lines, which is what a signal to it was to bring about


def process_identity(pid: int) -> str | None:
    """A text that no other process, before or after, has: boot and start time. ``None`` if no such process
    runs (one that has ended and waits for its parent counts as ended)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _identity_by_ps(pid)
    fields = stat.rpartition(")")[2].split()  # the name before it, in parentheses, may hold spaces
    # Of a killed JVM the first thread is often a zombie while the others still hold ports and file locks.
    if fields[0] == "X" or (fields[0] == "Z" and int(fields[17]) <= 1):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{fields[19]}"


def stop_processes(handles: Iterable[ProcessHandle], *, timeout_s: float) -> bool:
    """SIGTERM to all, wait, SIGKILL to what is left after ``timeout_s``. Whether SIGTERM was enough. Returns
    when none of them runs any more."""
    running = [handle for handle in handles if handle.is_running]
    for handle in running:
        handle.send(signal.SIGTERM)
    clean = _wait_gone(running, timeout_s)
    if not clean:
        kill_processes(running)
    return clean


def kill_processes(handles: Iterable[ProcessHandle]) -> None:
    """SIGKILL to all; returns when none of them runs any more (or, for one stuck in the kernel, after 10
    s)."""
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
