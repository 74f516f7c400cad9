"""Worker processes of the demo: the command ``penstock worker``, killed and stopped by their own ids.

Whatever way the demo ends, they end: at the end of the ``with`` block, or, when the demo itself is killed, by the guard,
a process that waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.state.errors import PenstockError
from penstock.streams.kafka.embedded import processes
from penstock.streams.worker.load_settings import ENV_PREFIX

STOP_LIMIT_S = 300.0
"""A worker that has not ended by then hangs; a busy machine may need a minute."""
SESSION_TIMEOUT_MS = 6_000
# Positions that a killed worker had not yet committed are in doubt until its open transaction times out.
TRANSACTION_TIMEOUT_MS = 6_000
_LOG_LINES = 12


class Fleet:
    """Starts workers, and ends those that are left."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self.folder = folder
        self.bootstrap_servers = bootstrap_servers
        self._guard: subprocess.Popen[str] | None = None
        self._running: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", processes.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._running:
            worker.kill()
        if self._guard is not None:
            # An empty list of running workers is all that the guard may still be asked to end.
            self._guard.communicate("done\n")

    def settings(self, application_id: str, worker: str, **more: str | int) -> dict[str, str | int]:
        """The settings of a worker by its name, as ``WorkerSettings`` takes them."""
        return {
            "application_id": application_id,
            "bootstrap_servers": self.bootstrap_servers,
            "state_dir": str(self.folder / "state" / worker),
            "guarantee": "exactly_once",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            **more,
        }

    def start(self, topology: str, application_id: str, worker: str, **more: str | int) -> WorkerProcess:
        """``worker`` is also its ``client.id``, by which the group's members are told apart."""
        config = self.folder / "settings" / f"{application_id}-{worker}.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        lines = ["[penstock]"]
        # JSON's strings and numbers are TOML's.
        lines += [f"{k} = {json.dumps(v)}" for k, v in self.settings(application_id, worker, **more).items()]
        lines += ["", "[penstock.common]", f'"client.id" = {json.dumps(worker)}', ""]
        config.write_text("\n".join(lines), encoding="utf-8")
        with interrupts_held():
            process = WorkerProcess(worker, topology, config, self.folder / "logs" / f"{application_id}-{worker}.log")
            self._running.append(process)
            if self._guard is not None and self._guard.stdin is not None:
                identity = processes.process_identity(process.pid)
                self._guard.stdin.write(f"{process.pid}\t{identity}\n")
                self._guard.stdin.flush()
        return process

    def forget_state(self, application_id: str, worker: str) -> None:
        """Delete what a worker remembers on disk."""
        shutil.rmtree(self.folder / "state" / worker / application_id)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """SIGINT and SIGTERM come into effect at the end of the block: between the start of a process and the note of it they
    would leave it behind. Signals are blocked in no child. Outside the main thread, which they never reach, nothing is
    held."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {n: signal.signal(n, lambda number, _: held.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in held:
            signal.raise_signal(caught)


class WorkerProcess:
    """One ``penstock worker``. Its output goes to a file."""

    def __init__(self, name: str, topology: str, config: Path, log: Path) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        words = ["worker", topology, "--config", str(config)]
        with log.open("ab") as output:
            # A session of its own: a Ctrl-C in the terminal is for the demo, which then ends its workers.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.streams.cli.main", *words],
                # Settings of the user's own work are stronger than the file's and have no business here.
                env={name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process itself."""
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Does nothing to one that has ended."""
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> float:
        """SIGTERM, and how many seconds it took to commit and leave. Raises ``PenstockError`` when it did not end well."""
        began = time.monotonic()
        self.require_alive()
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired as exc:
            self.kill()
            raise PenstockError(
                f"{self.name} did not end within {STOP_LIMIT_S:.0f} s of SIGTERM; see {self._log}"
            ) from exc
        if status != 0:
            raise PenstockError(self._ended(status))
        return time.monotonic() - began

    def require_alive(self) -> None:
        """Raises ``PenstockError`` with the end of its log when it has ended."""
        status = self._process.poll()
        if status is not None:
            raise PenstockError(self._ended(status))

    def _ended(self, status: int) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return f"{self.name} ended with status {status}; the end of {self._log}:\n" + "\n".join(lines)
