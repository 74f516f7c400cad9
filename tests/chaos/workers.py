"""Worker processes: the command ``penstock worker`` on the application under test, with its log as JSON lines."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SESSION_TIMEOUT_MS = 6_000
USER_ERROR = 2


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all workers of an application share. ``topology`` is a name as ``penstock worker`` takes it."""

    application: str
    bootstrap_servers: str
    guarantee: str
    folder: Path
    topology: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class WorkerProcess:
    """One worker, over its lives: its state folder and its log stay. ``name`` begins the ids of all its clients.

    ``state``: the state folder, below that of the application; several workers may share one.
    """

    def __init__(self, setup: Setup, name: str, state: str | None = None, **settings: Any) -> None:
        self.name = name
        self.state = state or name
        self.log = setup.folder / f"{name}.log"
        self.lives = 0
        self.frozen = False
        self._setup = setup
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> WorkerProcess:
        """Start it, in a life of its own."""
        setup = self._setup
        given: dict[str, Any] = {
            "application_id": setup.application,
            "bootstrap_servers": setup.bootstrap_servers,
            "guarantee": setup.guarantee,
            "state_dir": setup.folder / "state" / self.state,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "commit_interval_ms": 100,
            "state_flush_interval_ms": 1_000,
            "common__client_id": self.name,
            **setup.settings,
            **self._settings,
        }
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)])}
        env |= {f"PENSTOCK_{name.upper()}": str(value) for name, value in given.items()}
        command = [sys.executable, "-m", "penstock.streams.cli.main", "worker", setup.topology, "--log-format", "json"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.lives += 1
        self.frozen = False
        return self

    @property
    def alive(self) -> bool:
        """Whether its process runs; a frozen one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def status(self) -> int | None:
        """The exit status of its last life, negative for a signal; ``None`` while it lives."""
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.frozen = False

    def freeze(self) -> None:
        """SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self.frozen = False

    def stop(self, limit_s: float = 60.0) -> int:
        """SIGTERM; its exit status. A worker that does not end in time is killed, which the status shows."""
        assert self._process is not None
        if self.frozen:
            self.thaw()
        self._process.terminate()
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -int(signal.SIGKILL)

    def facts(self, *names: str) -> list[dict[str, Any]]:
        """The facts of its log in their order, of all lives: those with these names, or all."""
        return [f for f in facts_of(self.log) if not names or f["fact"] in names]

    def said(self, last_bytes: int = 8_000) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-last_bytes:].decode(errors="replace") if self.log.exists() else ""

    def __enter__(self) -> WorkerProcess:
        return self if self.alive else self.start()

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.kill()


def facts_of(log: Path) -> list[dict[str, Any]]:
    """The facts in a log. Lines that a kill cut off, and those of other libraries, are passed over."""
    out = []
    for line in log.read_bytes().splitlines() if log.exists() else []:
        if b'"fact":' in line:
            try:
                out.append(json.loads(line))
            except ValueError:
                continue
    return out


def until(what: str, condition: Any, limit_s: float = 120.0, every_s: float = 0.2) -> None:
    """Wait for a condition; fails with its name."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {limit_s:g} s: {what}"
        time.sleep(every_s)
