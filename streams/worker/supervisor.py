"""Several worker processes under one supervisor: started fresh (never forked), restarted when they die, stopped together.

The processes share one state folder; each takes a slot of it, so that their transactional ids differ and a restarted one
finds its own again. A process that ends with an error of the user's (exit status 1) is not restarted: it would meet the
same record again. One that was killed is, after a pause that doubles up to ``PAUSE_MAX_S``.

Each process holds the read end of a pipe whose write end the supervisor alone has, and stops when it reads its end: so none
stays behind when the supervisor is killed, however that happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.streams.events.facts import ProcessEnded
from penstock.streams.events.logging_adapter import LoggingEvents

if TYPE_CHECKING:
    from penstock.streams.metrics_gateway import MetricsGateway

PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
STOP_S = 30.0
_POLL_S = 0.1
LIFELINE = "PENSTOCK_LIFELINE_FD"
"""The environment variable by which a supervised process learns its end of the pipe."""


def supervise(
    argv: Sequence[str], processes: int, partitions: Sequence[int] | None, gateway: MetricsGateway | None = None
) -> int:
    """Run the command ``penstock ARGV`` in this many processes until a signal; returns the exit status. With fixed
    partitions each process gets its share of them. ``gateway`` serves their metrics."""
    from penstock.state.errors import SettingsError

    if partitions is not None and len(partitions) < processes:
        raise SettingsError(f"--processes {processes} with {len(partitions)} partitions; start at most one for each")
    commands = [_command(argv, None if partitions is None else partitions[n::processes]) for n in range(processes)]
    if gateway is not None:
        commands = gateway.commands(commands)
    events = LoggingEvents()
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stopping.append(n))
    lifeline, held = os.pipe()  # neither is inherited but by those that are given it
    running: list[subprocess.Popen[bytes] | None] = [_start(c, lifeline) for c in commands]
    pauses = [PAUSE_S] * processes
    starts = [time.monotonic()] * processes
    status = 0
    try:
        while not stopping and any(p is not None for p in running):
            time.sleep(_POLL_S)
            for n, process in enumerate(running):
                if process is None or process.poll() is None:
                    continue
                running[n] = None
                if process.returncode >= 0:
                    if process.returncode:
                        events.emit(ProcessEnded(n, process.pid, process.returncode, None))
                        status = process.returncode
                        stopping.append(signal.SIGTERM)
                    continue
                if time.monotonic() - starts[n] > PAUSE_MAX_S:
                    pauses[n] = PAUSE_S
                events.emit(ProcessEnded(n, process.pid, process.returncode, pauses[n]))
                if gateway is not None:
                    gateway.restarted(n)
                until = time.monotonic() + pauses[n]
                while not stopping and time.monotonic() < until:
                    time.sleep(_POLL_S)
                pauses[n] = min(pauses[n] * 2, PAUSE_MAX_S)
                if not stopping:
                    running[n], starts[n] = _start(commands[n], lifeline), time.monotonic()
    finally:
        status = max(status, _stop([p for p in running if p is not None]))
        os.close(lifeline)
        os.close(held)
    return status


def _command(argv: Sequence[str], partitions: Sequence[int] | None) -> list[str]:
    """The same command for one process: with its own share of the partitions, and with ``--processes 1`` at its end, which
    wins over any before it: a process that supervised others would start them without end."""
    out: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word in ("--processes", "--partitions"):
            skip = True
        elif not word.startswith(("--processes=", "--partitions=")):
            out.append(word)
    if partitions is not None:
        out += ["--partitions", ",".join(map(str, partitions))]
    return [sys.executable, "-m", "penstock.streams.cli.main", *out, "--processes", "1"]


def _start(command: list[str], lifeline: int) -> subprocess.Popen[bytes]:
    # a session of its own: a Ctrl-C in the terminal reaches the supervisor alone, which then stops them in order
    env = {**os.environ, LIFELINE: str(lifeline)}
    return subprocess.Popen(command, start_new_session=True, pass_fds=[lifeline], env=env)


def on_supervisor_gone(stop: Callable[[], None]) -> None:
    """In a supervised process: call ``stop``, in a thread, once the supervisor is no more, and end the process if it has
    not ended ``STOP_S`` later. Elsewhere nothing."""
    given = os.environ.pop(LIFELINE, "")  # not for processes that this one starts
    if not given:
        return
    lifeline = int(given)
    os.set_inheritable(lifeline, False)

    def wait() -> None:
        while os.read(lifeline, 1):
            pass
        print("penstock: the supervisor is gone; stopping", file=sys.stderr)
        stop()
        time.sleep(STOP_S)
        os._exit(1)  # as the supervisor would have killed it

    threading.Thread(target=wait, name="penstock-lifeline", daemon=True).start()


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    status = 0
    for process in processes:
        try:
            status = max(status, process.wait(max(deadline - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = 1
    return status
