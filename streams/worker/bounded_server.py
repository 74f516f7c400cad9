"""An HTTP server that its clients cannot hold up: each request has a thread, of which there are not too many, and a limit in
total. A client that is slow, or goes away, blocks nobody."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from abc import abstractmethod
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

POLL_S: Final = 0.1
"""How often ``serve_forever`` looks for connections whose time is up."""


class BoundedServer(ThreadingHTTPServer):
    """``busy``: what a connection above ``connections_max`` gets. A connection is closed ``grace_s`` after the
    ``request_limit_s`` that ``until_s`` tells."""

    daemon_threads = True
    block_on_close = False  # a client that keeps its connection open does not keep the process from stopping
    busy = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
    grace_s = 0.0

    def __init__(self, at: Any, handler: type[Handler], connections_max: int, request_limit_s: float) -> None:
        self._connections_max = connections_max
        self._request_limit_s = request_limit_s
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        super().__init__(at, handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which is not needed."""
        socketserver.TCPServer.server_bind(self)

    def until_s(self, request: Any) -> float:
        """When the time of this connection is up."""
        with self._lock:
            return self._open.get(request, 0.0)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a thread, or refuse it if there are too many."""
        with self._lock:
            admitted = len(self._open) < self._connections_max
            if admitted:
                self._open[request] = time.monotonic() + self._request_limit_s
        if admitted:
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.settimeout(0.0)
            request.send(self.busy)
        self.shutdown_request(request)

    def service_actions(self) -> None:
        """Close the connections whose time is up."""
        now_s = time.monotonic()
        with self._lock:
            late = [request for request, until_s in self._open.items() if now_s > until_s + self.grace_s]
            for request in late:
                with contextlib.suppress(OSError):  # the client has gone
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """The request is over."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


class Handler(BaseHTTPRequestHandler):
    """Refuses in its own words, and logs no requests."""

    @abstractmethod
    def refuse(self, status: HTTPStatus) -> None:
        """Answer a request that is refused before any function here saw it."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A refusal in a line, with nothing in it that came with the request."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # what the base says of all methods that have no function here
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.close_connection = True
        self.refuse(status)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
