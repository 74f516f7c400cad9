"""What processes cost: CPU time and memory of a tree of processes, from ``/proc`` (Linux)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

# Fields of /proc/<pid>/stat after the command's name: parent, user and system time with those of children that ended.
_PARENT, _TIMES, _PAGES = 1, slice(11, 15), 21
STOP_S = 25.0


class Usage(NamedTuple):
    """CPU-seconds since the start, children that ended included, and resident bytes now."""

    cpu_s: float
    resident_bytes: int


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None:
            children.setdefault(int(stat[_PARENT]), []).append(int(entry))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def usage(pids: list[int]) -> Usage:
    """The sum over the processes; one that is gone counts nothing."""
    ticks = pages = 0
    for pid in pids:
        if (stat := _stat(pid)) is not None:
            ticks += sum(int(value) for value in stat[_TIMES])
            pages += int(stat[_PAGES])
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE"))


def machine_cpu_s() -> float:
    """CPU-seconds that the machine has spent on anything since its start, time taken by its host included."""
    user, nice, system, _idle, _wait, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def stolen_cpu_s() -> float:
    """CPU-seconds, since the machine's start, for which something was ready to run on it and its host ran others; 0 where
    there is no host. ``machine_cpu_s`` holds them too."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def stop(process: subprocess.Popen[bytes]) -> float:
    """End the process by SIGTERM, and what remains of its tree by SIGKILL. Returns the CPU-seconds that it used to its very
    end, with those of children that it waited for; 0 if it had ended before."""
    if process.poll() is not None:
        return 0.0
    members = tree(process.pid)
    process.send_signal(signal.SIGTERM)
    if not _ended(process.pid, STOP_S):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _ended(process.pid, STOP_S)
    cpu_s = usage([process.pid]).cpu_s
    process.wait()
    return cpu_s


def _ended(pid: int, within_s: float) -> bool:
    """Whether a child has ended, without collecting it: its times can still be read then."""
    until_s = time.monotonic() + within_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > until_s:
            return False
        time.sleep(0.02)
    return True
