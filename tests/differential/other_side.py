"""The other side: a long-lived process, most often of Java, that plays runs and answers with what they put out."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.differential.maven import beam_command, java_command
from tests.differential.outcomes import Outcome, outcome_of

TMPFS = Path("/dev/shm")
OPTIONS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Of a Java process: many short topologies, so that compiling them well does not pay."""


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for sides. In memory, where the machine has that: what Kafka Streams keeps on disk is gone after each run,
    and its stores open several times as fast."""
    return tempfile.TemporaryDirectory(dir=TMPFS if TMPFS.is_dir() else None, ignore_cleanup_errors=True)


def command_of(project: str, *options: str) -> list[str]:
    """The command of a program of this folder, which is built first if it has to be; ``options``: of a Java process.
    Raises ``CannotBuild``."""
    if project == "beam":
        return beam_command()
    return java_command(project, "differential.Main", *OPTIONS, *options)


class OtherSide:
    """A program of this folder that answers JSON lines. ``ask`` sends, ``answer`` waits; answers come in order. ``folder``
    is for what it keeps on disk, and stays the caller's to remove."""

    def __init__(self, project: str, folder: Path) -> None:
        own = tempfile.mkdtemp(dir=folder)
        self._errors = Path(own, "errors")
        self._process = subprocess.Popen(
            command_of(project, f"-Djava.io.tmpdir={own}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors.open("w"),
            text=True,
            encoding="utf-8",
        )
        self.knows: dict[str, list[str]] = self._read()

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def _read(self) -> Any:
        line = self._pipes[1].readline()
        if not line:
            raise RuntimeError(
                f"the other side ended with code {self._process.wait()}:\n{self._errors.read_text()[-4000:]}"
            )
        return json.loads(line)

    def ask(self, runs: Sequence[dict[str, Any]]) -> None:
        """Send runs to be played."""
        to, _ = self._pipes
        to.write(json.dumps({"runs": list(runs)}) + "\n")
        to.flush()

    def answer(self) -> list[Outcome]:
        """What the oldest unanswered question's runs put out."""
        return [outcome_of(run) for run in self._read()["runs"]]

    def end(self) -> None:
        """End the process."""
        for pipe in self._pipes:
            pipe.close()
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> OtherSide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
