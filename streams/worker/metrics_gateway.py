"""One port for several processes: a supervisor serves the metrics of the processes that it started, each sample with
the label ``process``, and their health.

Each process listens on a socket in a folder that only this user can enter. A process that does not answer in time is
left out, and ``penstock_process_up`` shows it.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from penstock.streams.events.measurements import Metric
from penstock.streams.events.metrics_adapter import exposition, families
from penstock.streams.worker.metrics_endpoint import MetricsEndpoint, Report

ANSWER_LIMIT_S = 2.0
_ANSWER_MAX_BYTES = 64 << 20
SOCKET_OPTION = "--metrics-socket"


class MetricsGateway:
    """Serves the metrics of ``processes`` processes on host and port ``at``. Raises ``EnvironmentFault`` if it
    cannot."""

    def __init__(self, at: tuple[str, int], processes: int, *, answer_limit_s: float = ANSWER_LIMIT_S) -> None:
        self._answer_limit_s = answer_limit_s
        self._restarts = [0] * processes
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        try:
            self._endpoint = MetricsEndpoint(at, self)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._endpoint.port

    def socket(self, process: int) -> Path:
        """The sockets that the processes listen on."""
        return self._folder / f"{process}.sock"

    def commands(self, commands: Sequence[list[str]]) -> list[list[str]]:
        """The commands that start the processes, with the sockets as last arguments."""
        return [[*command, SOCKET_OPTION, str(self.socket(n))] for n, command in enumerate(commands)]

    def restarted(self, process: int) -> None:
        """A process was started again."""
        self._restarts[process] += 1

    def close(self) -> None:
        """Listen no more."""
        self._endpoint.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- pages ---------------------------------------------------------------------------------------------------

    def metrics(self) -> bytes:
        """The metrics of all processes."""
        texts = {n: self._asked(n, "/metrics") for n in range(len(self._restarts))}
        own = [Metric("penstock_process_up", {"process": str(n)}, float(text is not None)) for n, text in texts.items()]
        own += [
            Metric("penstock_process_restarts_total", {"process": str(n)}, count)
            for n, count in enumerate(self._restarts)
        ]
        answered = {n: body.decode(errors="replace") for n, (_, body) in _there(texts)}
        return exposition(_Merged([*families(own), *merged(answered)]))

    def health(self) -> Report:
        """Alive while every process that answers is; one that does not answer is about to be restarted."""
        return self._all("/health", of_silent=True)

    def ready(self) -> Report:
        """Ready when every process is ready."""
        return self._all("/ready", of_silent=False)

    def _all(self, path: str, *, of_silent: bool) -> Report:
        well = True
        said: dict[str, Any] = {}
        for n in range(len(self._restarts)):
            answer = self._asked(n, path)
            well = well and (of_silent if answer is None else answer[0] == 200)
            said[str(n)] = None if answer is None else orjson.loads(answer[1])
        return Report(well, {"processes": said})

    def _asked(self, process: int, path: str) -> tuple[int, bytes] | None:
        """Status and body of one process' page; ``None``: no answer."""
        until_s = time.monotonic() + self._answer_limit_s
        try:
            with socket.socket(socket.AF_UNIX) as asked:
                asked.settimeout(self._answer_limit_s)
                asked.connect(str(self.socket(process)))
                asked.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                parts: list[bytes] = []
                size = 0
                while part := asked.recv(1 << 16):
                    parts.append(part)
                    size += len(part)
                    asked.settimeout(max(until_s - time.monotonic(), 0.001))
                    if size > _ANSWER_MAX_BYTES:
                        return None
        except OSError:
            return None
        head, _, body = b"".join(parts).partition(b"\r\n\r\n")
        words = head.split(maxsplit=2)
        return (int(words[1]), body) if len(words) == 3 and words[1].isdigit() else None


def _there(texts: dict[int, tuple[int, bytes] | None]) -> Iterator[tuple[int, tuple[int, bytes]]]:
    for n, answer in texts.items():
        if answer is not None and answer[0] == 200:
            yield n, answer


class _Merged:
    """Families that are there already."""

    def __init__(self, found: Iterable[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Family]:
        return self._found


def merged(texts: dict[int, str]) -> list[Family]:
    """The metrics of several processes as one list, grouped by name, each sample with its process."""
    out: dict[str, Family] = {}
    for process, text in texts.items():
        for family in text_string_to_metric_families(text):
            into = out.setdefault(family.name, Family(family.name, family.documentation, family.type))
            for sample in family.samples:
                into.samples.append(sample._replace(labels={**sample.labels, "process": str(process)}))
    return list(out.values())
