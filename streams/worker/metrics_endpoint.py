"""The pages that a process serves over HTTP: ``/metrics`` for Prometheus, ``/health`` and ``/ready`` for whatever runs the
process.

Off unless a port is set. Listens on the loopback interface by default, because keys of users' records are among the
labels. Each request has a thread, at most ``CONNECTIONS_MAX`` at a time, and ``REQUEST_LIMIT_S`` in total: a client
that is slow, or goes away, blocks nobody and leaves no line in the log.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson

from penstock.state.errors import EnvironmentFault
from penstock.streams.events.metrics_adapter import CONTENT_TYPE
from penstock.streams.worker.bounded_server import POLL_S, BoundedServer, Handler

CONNECTIONS_MAX = 16
REQUEST_LIMIT_S = 5.0
_log = logging.getLogger("penstock.metrics")
PATH_MAX_CHARS = 2_048
_JSON: Final = "application/json"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer: nothing keeps it, and no page shows it or takes it for something else."""


class Report(NamedTuple):
    """The state of a process, as an answer."""

    well: bool
    said: Mapping[str, Any]


class Pages(Protocol):
    """The pages of an endpoint. Called from several threads."""

    def metrics(self) -> bytes:
        """Prometheus' text format."""

    def health(self) -> Report:
        """Whether the process is alive."""

    def ready(self) -> Report:
        """Whether its tasks run."""


class Starting:
    """The pages of a process that is still starting."""

    def metrics(self) -> bytes:
        """None yet."""
        return b""

    def health(self) -> Report:
        """Alive."""
        return Report(True, {"state": "starting"})

    def ready(self) -> Report:
        """Not yet."""
        return Report(False, {"state": "starting"})


class MetricsEndpoint:
    """Serves ``pages``, which may be replaced, from now until ``close``. ``at``: host and port (0: any free one), or
    the path of a socket. Raises ``EnvironmentFault`` if it cannot listen there."""

    def __init__(
        self,
        at: tuple[str, int] | Path,
        pages: Pages | None = None,
        *,
        connections_max: int = CONNECTIONS_MAX,
        request_limit_s: float = REQUEST_LIMIT_S,
    ) -> None:
        self.pages: Pages = pages or Starting()
        kind: type[_MetricsServer] = _SocketServer if isinstance(at, Path) else _MetricsServer
        try:
            self._server = kind(at, self, connections_max, request_limit_s)
        except (OSError, OverflowError) as exc:
            where = str(at) if isinstance(at, Path) else f"{at[0]}:{at[1]}"
            raise EnvironmentFault(
                f"cannot serve metrics on {where} ({exc}); set metrics_port to a free port, metrics_host to an address of "
                "this machine, or metrics_port=0 to serve none"
            ) from exc
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="penstock-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _MetricsServer(BoundedServer):
    def __init__(self, at: Any, endpoint: MetricsEndpoint, connections_max: int, request_limit_s: float) -> None:
        self.endpoint = endpoint
        super().__init__(at, _MetricsHandler, connections_max, request_limit_s)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log errors of this process, but not clients that went away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.warning("metrics could not be given: %r", error)


class _SocketServer(_MetricsServer):
    address_family = socket.AF_UNIX
    allow_reuse_address = False

    def __init__(self, at: Any, endpoint: MetricsEndpoint, connections_max: int, request_limit_s: float) -> None:
        at.unlink(missing_ok=True)  # of a process that was killed
        super().__init__(str(at), endpoint, connections_max, request_limit_s)


class _MetricsHandler(Handler):
    server: _MetricsServer
    timeout = REQUEST_LIMIT_S

    def do_GET(self) -> None:
        """One of the pages."""
        if len(self.path) > PATH_MAX_CHARS:
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return
        pages = self.server.endpoint.pages
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, pages.metrics())
            case "/health":
                self._report(pages.health())
            case "/ready":
                self._report(pages.ready())
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def _report(self, report: Report) -> None:
        status = HTTPStatus.OK if report.well else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, _JSON, orjson.dumps(report.said))

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response_only(status)  # not send_response, which names server and version
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **_HEADERS}.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: HTTPStatus) -> None:
        """See the base."""
        text = f"{status.value} {status.phrase}; there are GET /metrics, /health and /ready\n"
        self._answer(status, "text/plain; charset=utf-8", text.encode())
