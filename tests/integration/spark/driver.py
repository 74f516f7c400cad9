"""A process that runs commands on Spark, and may be killed with its JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
ANSWER = "the command ended with "


class Driver:
    """A process that runs commands one after the other, on one JVM, in ``cwd``. What they say meanwhile is in ``log``.
    ``holds``: the folder of a test's ``Hold``, see ``commands``."""

    def __init__(self, cwd: Path, *, env: Mapping[str, str] | None = None, holds: Path | None = None) -> None:
        self.log = cwd / "driver.log"
        path = os.pathsep.join([str(ROOT / ".package"), str(ROOT)])
        places = [] if holds is None else [str(holds)]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark.commands", *places],
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": path, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                start_new_session=True,
            )

    def begin(self, *argv: str) -> None:
        """Begin a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(argv)}\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait for the command's end; returns its exit code, and what it has printed."""
        assert self._process.stdout is not None
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return int(line.removeprefix(ANSWER)), "".join(said)
            said.append(line)
        raise AssertionError(f"the driver died:\n{self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill it, and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
