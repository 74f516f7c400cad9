"""One benchmark: its broker, its log, where it works, and how a system's program is started."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes import usage
from benchmarks.systems import GUARANTEES, ROOT, System, UnavailableError
from benchmarks.topics import Log, topic_of
from benchmarks.workloads import WORKLOADS, Variant


@dataclasses.dataclass
class Bench:
    """``broker_pid`` is the broker's process, whose CPU is counted apart; ``extra`` is added to every program's
    environment; ``results`` gets one line of JSON per run and per figure, ``kept`` the figures only."""

    log: Log
    broker_pid: int | None
    work: Path
    peers: Path
    results: Path
    threads: int = 1
    limit_s: float = 300.0
    extra: dict[str, str] = dataclasses.field(default_factory=dict)
    kept: Path | None = None
    _commands: dict[Callable[..., list[str]], list[str] | UnavailableError] = dataclasses.field(default_factory=dict)
    _started: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))

    @property
    def variant(self) -> Variant:
        """What the log's topics are made for."""
        return self.log.variant

    def command(self, system: System, workload: str) -> list[str]:
        """The system's command, made ready on first use; ``UnavailableError`` each time if that failed. Systems share it if
        they are made ready by one function, and not because workloads name them alike: two checkouts are one program."""
        made = self._commands
        if system.make_ready not in made:
            try:
                made[system.make_ready] = system.make_ready(self.work, self.peers)
            except UnavailableError as error:
                made[system.make_ready] = error
        command = made[system.make_ready]
        if isinstance(command, UnavailableError):
            raise command
        return [*command, system.words.get(workload, workload)]

    def new_application(self, system: System, workload: str) -> str:
        """A name never used before: a new group, new internal topics, a new state folder."""
        return f"{system.name[:2]}-{workload}-{int(time.time())}-{next(self._started)}"

    def state_folder(self, application: str) -> Path:
        """Where the application keeps its stores."""
        return self.work / "state" / application

    def broker_cpu_s(self) -> float:
        """CPU-seconds of the broker so far; not a number if its process is unknown."""
        return usage([self.broker_pid]).cpu_s if self.broker_pid is not None else float("nan")

    def start(
        self, system: System, workload: str, guarantee: str, application: str, topic_in: str, more: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start the program; what it prints goes to a file of the application's name."""
        command = self.command(system, workload)
        table = WORKLOADS[workload].table
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)]),
            "APP_ID": application,
            "STATE_DIR": str(self.state_folder(application)),
            "BOOTSTRAP": self.log.bootstrap,
            "TOPIC_IN": topic_in,
            "TOPIC_TABLE": topic_of(table, WORKLOADS[workload].table_rows(self.variant), self.variant) if table else "",
            "TOPIC_OUT": f"{application}-out",
            "GUARANTEE": GUARANTEES[guarantee],
            "COMMIT_MS": "1000",
            "THREADS": str(self.threads),
            "WINDOW_MS": str(self.variant.window_ms),
            **system.environment,
            **self.extra,
            **more,
        }
        logs = self.work / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{application}.log").open("ab") as output:
            return subprocess.Popen(command, env=environment, cwd=self.work, stdout=output, stderr=subprocess.STDOUT)

    def load(self, workload: str, records: int) -> str:
        """Fill the workload's input topic and table; the input's name."""
        declared = WORKLOADS[workload]
        if declared.table is not None:
            self.log.load(declared.table, declared.table_rows(self.variant))
        return self.log.load(declared.data_set, records)

    def clean(self, application: str) -> None:
        """Remove the application's state, topics and group."""
        shutil.rmtree(self.state_folder(application), ignore_errors=True)
        self.log.remove_application(application)

    def write(self, kind: str, result: Mapping[str, Any]) -> None:
        """Add a line to the results."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"kind": kind, "at": at, **result}) + "\n"
        for path in (self.results, self.kept if kind != "run" else None):
            if path is not None:
                with path.open("a") as out:
                    out.write(line)
