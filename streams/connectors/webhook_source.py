"""HTTP requests as a source: at least once, because a sender whose answer is lost sends again.

A request is answered after its records are committed, so what was answered with success is in the topic. There is no
position to go on from: what came and was not committed is refused, and is the sender's to repeat.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.connectors.row_records import RowRecords, columns_of
from penstock.streams.connectors.source import Source, SourceBatch, SourceReader, SourceRecord
from penstock.streams.worker.bounded_server import POLL_S, BoundedServer, Handler
from penstock.topologies.windows.durations import Duration, duration_s

_LINES: Final = "application/x-ndjson"
_WAIT_S: Final = 1.0


@dataclass(frozen=True)
class WebhookSource(Source):
    """Takes records by ``POST`` to ``path``: a JSON value is one record, ``application/x-ndjson`` has one on each line.
    ``key`` and ``timestamp`` name fields, as those of ``FileSource`` name columns. ``headers``: of the request, kept as
    the record's, with names in lower case.

    Answers: 204 once the records are in the topic; 400, 401, 404, 405, 411, 413 for a request that is refused at once;
    422 for one with a record that does not fit, under ``on_error="skip"`` (its other records are in the topic); 503 while
    records cannot be written: send it again. Under ``on_error="fail"`` any sender can end the ingestion.

    At least once: a sender that repeats a request writes it twice. If it sends an ``Idempotency-Key``, ``deduplicate``
    can drop the second.

    ``token``: what ``Authorization: Bearer`` must have; ``None``: anyone who reaches the port may write. It listens on
    the loopback interface unless ``host`` says otherwise, and speaks no TLS: put a proxy before it. ``body_max_bytes``,
    ``connections_max``, ``request_timeout``: limits of one sender, and of all; ``request_timeout`` includes the wait
    for the commit."""

    port: int
    _: KW_ONLY
    host: str = "127.0.0.1"
    path: str = "/"
    key: str | Sequence[str] | None = None
    timestamp: str | None = None
    headers: Sequence[str] = ("Idempotency-Key",)
    token: str | None = field(default=None, repr=False)
    body_max_bytes: int = 1 << 20
    connections_max: int = 64
    request_timeout: Duration = "30s"

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65_536 or not self.path.startswith("/"):
            raise SettingsError(
                f"port={self.port!r}, path={self.path!r:.100}; give a port, and a path that begins with /"
            )
        if self.token == "" or min(self.body_max_bytes, self.connections_max, duration_s(self.request_timeout)) <= 0:
            raise SettingsError("give a token that is not empty, and limits above zero")

    def open(self, split: str, position: str | None) -> SourceReader:
        return WebhookReader(self)

    def describe(self) -> str:
        return f"WebhookSource http://{self.host}:{self.port}{self.path}"


class _Request:
    """A request whose records wait to be committed."""

    def __init__(self, records: list[SourceRecord]) -> None:
        self.records = records
        self.refused = ""
        self._status = HTTPStatus.SERVICE_UNAVAILABLE
        self._over = threading.Event()

    def end(self, status: HTTPStatus) -> None:
        """Have it answered."""
        self._status = status
        self._over.set()

    def wait(self, timeout_s: float) -> HTTPStatus:
        """Its answer; 503 if there is none in this time."""
        self._over.wait(max(timeout_s, 0))
        return self._status


class WebhookReader(SourceReader):
    """Listens from the time that it is opened."""

    def __init__(self, source: WebhookSource) -> None:
        self.source = source
        self._waiting: deque[_Request] = deque()
        self._taken: list[_Request] = []
        self._changed = threading.Condition()
        self._closed = False
        try:
            self._server = _Server(self)
        except OSError as exc:
            raise EnvironmentFault(f"cannot listen on {source.host}:{source.port} ({exc}); choose a free port") from exc
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def put(self, request: _Request) -> None:
        """Have the request's records read; one that comes after ``close`` is refused."""
        with self._changed:
            if self._closed:
                request.end(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            self._waiting.append(request)
            self._changed.notify()

    def read(self, max_records: int) -> SourceBatch:
        found: list[SourceRecord] = []
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, _WAIT_S)
            while self._waiting and len(found) < max_records:
                request = self._waiting[0]
                if len(request.records) > max_records:
                    self._waiting.popleft().end(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                    continue
                if len(found) + len(request.records) > max_records:
                    break
                self._taken.append(self._waiting.popleft())
                found += request.records
        return SourceBatch(found, None, False)

    def skipped(self, record: SourceRecord, why: str) -> None:
        for request in self._taken:
            if any(record is other for other in request.records):
                request.refused = request.refused or why

    def committed(self) -> None:
        taken, self._taken = self._taken, []
        for request in taken:
            request.end(HTTPStatus.UNPROCESSABLE_ENTITY if request.refused else HTTPStatus.NO_CONTENT)

    def close(self) -> None:
        with self._changed:
            left, self._closed = [*self._taken, *self._waiting], True
            self._taken = []
            self._waiting.clear()
        for request in left:
            request.end(HTTPStatus.SERVICE_UNAVAILABLE)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(BoundedServer):
    busy = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
    grace_s = 1.0  # they had time for an answer

    def __init__(self, reader: WebhookReader) -> None:
        self.reader = reader
        source = reader.source
        super().__init__(
            (source.host, source.port), _Handler, source.connections_max, duration_s(source.request_timeout)
        )

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that went away: nothing to say. It got no answer."""


class _Handler(Handler):
    server: _Server

    def do_POST(self) -> None:
        """Read the records, and answer once they are committed."""
        reader = self.server.reader
        refused = self._refusal(reader.source)
        if refused is not None:
            self._answer(*refused)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            values = self._values(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            self._answer(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {exc}")
            return
        request = _Request(self._records(reader.source, values))
        if not request.records:
            self._answer(HTTPStatus.NO_CONTENT)
            return
        reader.put(request)
        status = request.wait(self.server.until_s(self.request) - time.monotonic())
        self._answer(status, request.refused)

    def _refusal(self, source: WebhookSource) -> tuple[HTTPStatus, str] | None:
        if source.token is not None:
            given = (self.headers.get("Authorization") or "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, f"Bearer {source.token}".encode()):
                return HTTPStatus.UNAUTHORIZED, ""
        if self.path.partition("?")[0] != source.path:
            return HTTPStatus.NOT_FOUND, ""
        length = self.headers.get("Content-Length") or ""
        if not length.isascii() or not length.isdigit():
            return HTTPStatus.LENGTH_REQUIRED, "give Content-Length"
        if int(length) > source.body_max_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {source.body_max_bytes} bytes"
        return None

    def _values(self, body: bytes) -> list[Any]:
        if self.headers.get_content_type() != _LINES:
            return [msgspec.json.decode(body)]
        return [msgspec.json.decode(line) for line in body.splitlines() if line.strip()]

    def _records(self, source: WebhookSource, values: list[Any]) -> list[SourceRecord]:
        shape = RowRecords(columns_of(source.key), source.timestamp)
        given = [(name.lower(), self.headers.get(name)) for name in source.headers]
        kept = tuple((name, text.encode("latin-1", "replace")) for name, text in given if text is not None)
        place = f"request from {self.client_address[0]}"
        return [
            SourceRecord(r.key, r.value, r.timestamp_ms, kept, f"{place}, value {number}", r.error)
            for number, r in enumerate((shape.record(value, place) for value in values), 1)
        ]

    def _answer(self, status: HTTPStatus, said: str = "") -> None:
        body = f"{status.value} {status.phrase}{': ' if said else ''}{said}\n".encode()
        self.send_response_only(status)  # not send_response, which names server and version
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        elif status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "POST")
        elif status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if status is not HTTPStatus.NO_CONTENT and self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: HTTPStatus) -> None:
        """See the base."""
        self._answer(status)
