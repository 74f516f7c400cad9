"""Workers as the command starts them, with failpoints armed, and the word count that they do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.worker.failpoint_actions import VARIABLE
from tests.integration.worker.application import LIMIT_S, ROOT, SESSION_TIMEOUT_MS, Application, until

NOTE = "*=note"


def passed_in(said: str) -> set[str]:
    """The failpoints that a process says it has passed."""
    return set(re.findall(r"^failpoint (\S+) passed$", said, re.MULTILINE))


class StruckApplication(Application):
    """A word count whose workers are ``penstock worker``. ``before``: what their module does before it builds it."""

    def __init__(
        self, bootstrap_servers: str, name: str, folder: Path, guarantee: Guarantee = "exactly_once", before: str = ""
    ) -> None:
        super().__init__(bootstrap_servers, name, folder, guarantee)
        self.snapshots: Path | None = None
        """A repository that its workers restore from, if there is one."""
        (folder / "counting.py").write_text(
            f"{before}\n"
            "from penstock.topologies.examples import word_count\n"
            f"topology = word_count.build({self.source!r}, {self.output!r})\n"
        )

    def worker(self, state: str, strike: str = "", *, prefix: Sequence[str] = (), **more: Any) -> CommandWorker:
        """A worker with this state folder; ``strike``: see ``failpoint_actions``; ``prefix``: what its command begins with;
        ``more``: settings, and tables of them."""
        return CommandWorker(self, state, strike, prefix, more)


class CommandWorker:
    """A process. Everything it passes is noted in its log."""

    def __init__(
        self, app: StruckApplication, state: str, strike: str, prefix: Sequence[str], more: dict[str, Any]
    ) -> None:
        self.log = app.folder / f"worker-{state}-{time.time_ns():x}.log"
        settings: dict[str, Any] = {
            "application_id": app.name,
            "bootstrap_servers": app.bootstrap_servers,
            "state_dir": str(app.folder / state),
            "guarantee": app.guarantee,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "commit_interval_ms": 50,
            "batch_max_records": 200,
            "state_flush_interval_ms": 200,
            **({"snapshots": str(app.snapshots)} if app.snapshots else {}),
            **more,
        }
        config = self.log.with_suffix(".toml")
        lines = [f"{name} = {value!r}" for name, value in settings.items() if not isinstance(value, dict)]
        for table, of in settings.items():
            if isinstance(of, dict):
                lines += [f"[penstock.{table}]", *(f'"{name}" = {value!r}' for name, value in of.items())]
        config.write_text("\n".join(["[penstock]", *lines, ""]))
        command = [
            *prefix,
            sys.executable,
            "-m",
            "penstock.streams.cli.main",
            "worker",
            f"{app.folder / 'counting.py'}:topology",
        ]
        env = {**os.environ, "PYTHONPATH": str(ROOT / ".package"), VARIABLE: ";".join(filter(None, (NOTE, strike)))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--config", str(config), "--log-format", "json"],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
            )

    @property
    def said(self) -> str:
        """Its log."""
        return self.log.read_text()

    @property
    def passed(self) -> set[str]:
        """The failpoints that it has passed."""
        return passed_in(self.said)

    @property
    def struck(self) -> list[str]:
        """Where failpoints have acted, and how."""
        return re.findall(r"^failpoint (\S+: \S+)", self.said, re.MULTILINE)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What it has reported."""
        lines = [
            json.loads(line) for line in self.said.splitlines() if line.startswith('{"time"') and line.endswith("}")
        ]
        return [line for line in lines if "fact" in line]

    def reported(self, fact: str) -> list[dict[str, Any]]:
        """The facts of one kind."""
        return [line for line in self.facts if line["fact"] == fact]

    @property
    def restores(self) -> list[tuple[str, int, str]]:
        """Task, first offset and reason of each restore that it began."""
        return [(str(r["task"]), int(r["from_offset"]), str(r["reason"])) for r in self.reported("RestoreStarted")]

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit status; negative: the signal that ended it."""
        try:
            return self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {LIMIT_S} s; it said:\n{self.said}") from None

    def stop(self) -> None:
        """SIGTERM, and wait for its end, which must be well."""
        until("it has a place", lambda: not self.alive or "assign.taken" in self.passed)
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.said

    def kill(self) -> None:
        """SIGKILL, also where it is stopped."""
        if self.alive:
            self._process.kill()
        self._process.wait()
