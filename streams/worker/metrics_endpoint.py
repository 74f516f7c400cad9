"""A worker's metrics over HTTP, as the text that Prometheus collects: ``GET /metrics``.

Off unless a port is set. Answered by a thread of its own, when somebody asks; listens on the loopback interface unless told
otherwise, for keys of users' records are among the labels.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from typing import Any, Final

from penstock.state.errors import EnvironmentFault
from penstock.streams.runtime.metric_values import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PATH: Final = "/metrics"
_log = logging.getLogger("penstock.metrics")
_POLL_S = 0.1
REQUEST_LIMIT_S = 10.0
"""For a whole request, however slowly it comes: whoever sends a byte now and then holds a thread no longer."""
REQUESTS_MAX = 8
"""At once; who comes meanwhile is turned away."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricsEndpoint:
    """Serves what ``look`` gives at each request, from now until ``close``. ``port`` 0: any that is free. Raises
    ``EnvironmentFault`` where it cannot be listened on."""

    def __init__(self, host: str, port: int, look: Callable[[], Iterable[Metric]]) -> None:
        try:
            self._server = _Server((host, port), look)
        except (OSError, OverflowError) as exc:
            raise EnvironmentFault(
                f"metrics cannot be served on {host}:{port} ({exc}); set metrics_port to one that is free, metrics_host to "
                "an address of this machine, or metrics_port=0 to go without"
            ) from exc
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="penstock-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Listen no more. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exposition(metrics: Iterable[Metric]) -> str:
    """The metrics as Prometheus' text format 0.0.4: those of one name together, under their type."""
    lines: list[str] = []
    for name, some in groupby(sorted(metrics, key=lambda m: m.name), lambda m: m.name):
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        for metric in some:
            labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in metric.labels.items())
            lines.append(f"{name}{{{labels}}} {metric.value}" if labels else f"{name} {metric.value}")
    return "".join(f"{line}\n" for line in lines)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # who keeps a connection open does not keep the worker from ending

    def __init__(self, address: tuple[str, int], look: Callable[[], Iterable[Metric]]) -> None:
        self.look = look
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, ended from outside when it takes too long."""
        limit = threading.Timer(REQUEST_LIMIT_S, _end, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are no news; what goes wrong here is."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.warning("metrics could not be given: %r", error)


def _end(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_LIMIT_S

    def do_GET(self) -> None:
        """The metrics, or where they are."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"metrics are at {PATH}")
            return
        body = exposition(self.server.look()).encode(errors="backslashreplace")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not worth a line."""
