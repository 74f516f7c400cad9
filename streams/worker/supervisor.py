"""Several worker processes under one supervisor: started fresh (never forked), restarted when they end, stopped
together.

The processes share one state folder. Each takes a slot of it, so that their transactional ids differ and a restarted
one finds its own again. A process that ends with a user error (``exit_codes.USER_ERROR``) is not restarted:
it would meet the same record or setting again, and so would the others, so all are stopped. One that was killed, or
ended with another error, is started again after a pause that doubles up to ``PAUSE_MAX_S``, while the others
continue.

Each process holds the read end of a pipe whose only write end is the supervisor's, and stops when it reads the end of
file. So no process is left behind, however the supervisor is killed.
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
from penstock.streams.events.port import EventSink
from penstock.streams.worker import exit_codes

if TYPE_CHECKING:
    from penstock.streams.worker.metrics_gateway import MetricsGateway

PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
STOP_S = 30.0
_POLL_S = 0.1
PROCESS_OPTION = "--process-number"
"""The option that tells a supervised process its number."""
LIFELINE = "PENSTOCK_LIFELINE_FD"
"""The environment variable that names a supervised process's end of the pipe."""


def supervise(
    argv: Sequence[str], processes: int, partitions: Sequence[int] | None, gateway: MetricsGateway | None = None
) -> int:
    """Run the command ``penstock ARGV`` in this many processes until a signal; returns the exit status. With fixed
    partitions each process gets its share of them. ``gateway`` serves their metrics."""
    from penstock.state.errors import SettingsError

    if partitions is not None and len(partitions) < processes:
        raise SettingsError(f"--processes {processes} with {len(partitions)} partitions; start at most one for each")
    shares = [None if partitions is None else partitions[n::processes] for n in range(processes)]
    commands = [[*_command(argv, share), PROCESS_OPTION, str(n)] for n, share in enumerate(shares)]
    if gateway is not None:
        commands = gateway.commands(commands)
    events = LoggingEvents()
    stopping: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: stopping.append(n))
    lifeline, held = os.pipe()  # only processes that are given it inherit either end
    restarted = (lambda process: None) if gateway is None else gateway.restarted
    children = [_Child(n, command, lifeline, events, restarted) for n, command in enumerate(commands)]
    status = 0
    try:
        while not stopping and not all(child.done for child in children):
            for child in children:
                if child.look() == exit_codes.USER_ERROR:
                    status = exit_codes.USER_ERROR
                    stopping.append(signal.SIGTERM)
            time.sleep(_POLL_S)
    finally:
        status = max(status, _stop([c.process for c in children if c.process is not None]))
        os.close(lifeline)
        os.close(held)
    return status


class _Child:
    """One of the processes. ``process``: while it runs; ``done``: it ended without an error, as by
    ``ctx.shutdown()``."""

    def __init__(
        self, number: int, command: list[str], lifeline: int, events: EventSink, restarted: Callable[[int], None]
    ) -> None:
        self.done = False
        self._number = number
        self._events = events
        self._restarted = restarted
        self._command = command
        self._lifeline = lifeline
        self._pause_s = PAUSE_S
        self._due_s = 0.0
        self._start()

    def _start(self) -> None:
        self.process: subprocess.Popen[bytes] | None = _start(self._command, self._lifeline)
        self._started_s = time.monotonic()

    def look(self) -> int | None:
        """Start it again if it is due; returns the exit status of one that has just ended."""
        if self.process is None:
            if not self.done and time.monotonic() >= self._due_s:
                self._restarted(self._number)
                self._start()
            return None
        status = self.process.poll()
        if status is None:
            return None
        pid, self.process, now_s = self.process.pid, None, time.monotonic()
        self.done = status in (0, exit_codes.USER_ERROR)
        if not self.done:
            if now_s - self._started_s > PAUSE_MAX_S:
                self._pause_s = PAUSE_S
            self._due_s = now_s + self._pause_s
            self._events.emit(ProcessEnded(self._number, pid, status, self._pause_s))
            self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
        elif status:
            self._events.emit(ProcessEnded(self._number, pid, status, None))
        return status


def _command(argv: Sequence[str], partitions: Sequence[int] | None) -> list[str]:
    """The command of one process: with its own share of the partitions, and with ``--processes 1`` as last
    argument, which overrides earlier ones: a process that supervised others would start them without end."""
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
    # a session of its own: a Ctrl-C in the terminal reaches only the supervisor, which then stops them in order
    env = {**os.environ, LIFELINE: str(lifeline)}
    return subprocess.Popen(command, start_new_session=True, pass_fds=[lifeline], env=env)


def on_supervisor_gone(stop: Callable[[], None]) -> None:
    """In a supervised process: call ``stop``, in a thread, when the supervisor is gone, and end the process if it has
    not ended ``STOP_S`` later. Elsewhere do nothing."""
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
        os._exit(exit_codes.FAILED)  # as the supervisor would have killed it

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
            status = max(status, exit_codes.FAILED)
    return status
