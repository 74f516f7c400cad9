"""Records as HTTP requests, at least once: a service keeps no positions of ours."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from time import monotonic, sleep
from typing import Any, Final, Literal, NamedTuple, get_args

import httpx2
import msgspec

from penstock.state.errors import ProcessingError, RetriableError, SettingsError
from penstock.state.log import Headers
from penstock.state.serdes.models import plain
from penstock.streams.connectors.table_rows import RowShape, names_of
from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter
from penstock.topologies.windows.durations import Duration, duration_ms, duration_s

Body = Literal["lines", "array", "single"]
_TYPES: Final[Mapping[Body, str]] = {
    "lines": "application/x-ndjson",
    "array": "application/json",
    "single": "application/json",
}
_PASSING: Final = frozenset({408, 421, 425, 429})
_BUDGET_S: Final = 2.0
"""How long one write sends and pauses, apart from the last request's ``timeout``: the worker's other tasks wait for it,
and its transaction ends after ten seconds."""
_HELD_MAX_BYTES: Final = 64 << 20


@dataclasses.dataclass(frozen=True)
class HttpSink(Sink):
    """Sends records to ``url`` by ``POST``, at least once: after a crash or a lost answer records are sent again.

    ``body``: ``"lines"``, a JSON value on each line, which ``WebhookSource`` reads; ``"array"``, a JSON array;
    ``"single"``, a request for each record. A request has at most ``batch_max_records``, and ends at ``body_max_bytes``. It
    carries an ``Idempotency-Key``, made of where its records stand in the log. Only with ``"single"`` it is the same
    whenever the record is sent again, so that the receiver can leave out the second.

    A record is its value, with the columns that ``key`` and ``timestamp`` name if any is named. Records of a partition
    arrive in their order. A null value is an error of the record.

    Success is a status of 2xx. After 408, 421, 425, 429, 5xx, a lost connection or ``timeout``, the request is sent
    again, at most ``attempts`` times within two seconds, with a pause of ``backoff`` that doubles, or as long as
    ``Retry-After`` says. Then the sink counts as away: its tasks wait, with growing pauses. Any other status ends the
    worker, and the error has the answer.

    The group's positions wait for a receiver that is slower than the commits, so that its task can have no operators with
    state: ``repartition()`` before ``sink()`` gives it a task of its own.

    ``headers``: of each request, such as ``Authorization``; they are not shown. Needs the extra ``http``."""

    url: str
    _: dataclasses.KW_ONLY
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    body: Body = "lines"
    key: str | Sequence[str] = ()
    value: str = "value"
    timestamp: str | None = None
    batch_max_records: int = 500
    body_max_bytes: int = 1 << 20
    timeout: Duration = "5s"
    attempts: int = 3
    backoff: Duration = "200ms"
    spans_commits = True

    def __post_init__(self) -> None:
        try:
            parts = httpx2.URL(self.url)
        except httpx2.InvalidURL as exc:
            raise SettingsError(f"url: {exc}; give one such as https://api.example/orders") from exc
        if parts.scheme not in ("http", "https") or not parts.host:
            raise SettingsError(f"url={self._shown()!r}; give one that begins with http:// or https://")
        if self.body not in get_args(Body):
            raise SettingsError(f"body={self.body!r}; choose one of {', '.join(get_args(Body))}")
        object.__setattr__(self, "key", names_of(self.key, "key") if self.key else ())
        duration_ms(self.backoff)
        if min(self.batch_max_records, self.body_max_bytes, duration_ms(self.timeout), self.attempts) <= 0:
            raise SettingsError("give limits, a timeout and attempts above zero")

    def row(self, key: Any, value: Any, timestamp_ms: int, headers: Headers) -> bytes:
        if value is None:
            raise ValueError("the value is null, and a request has nothing to say of it; filter such records out")
        if not self.key and self.timestamp is None:
            return msgspec.json.encode(plain(value, kinds=(bytes,)))
        shape = RowShape(names_of(self.key, "key") if self.key else (), self.value, self.timestamp)
        return msgspec.json.encode(shape.row(key, value, timestamp_ms).columns)

    def open(self, partition: SinkPartition, start: int) -> SinkWriter:
        return _HttpWriter(self, partition, start)

    def describe(self) -> str:
        return f"POST {self._shown()}"

    def _shown(self) -> str:
        """The URL without what may be secret."""
        try:
            parts = httpx2.URL(self.url)
        except httpx2.InvalidURL:
            return ""
        return str(parts.copy_with(username=None, password=None, query=None, fragment=None))


class _HeldRow(NamedTuple):
    """``nth``: of the rows of its record."""

    offset: int
    nth: int
    data: bytes


class _HttpWriter(SinkWriter):
    """Sends for ``_BUDGET_S`` in each write; what is left waits for the next one, so that a slow receiver does not cost the
    worker its transaction."""

    def __init__(self, sink: HttpSink, partition: SinkPartition, start: int) -> None:
        self._sink, self._partition = sink, partition
        self.position = self._held_to = start
        self._held: deque[_HeldRow] = deque()
        self._bytes = 0
        self._client = httpx2.Client(timeout=duration_s(sink.timeout), follow_redirects=False)

    def write(self, rows: SinkRows, position: int) -> int:
        self._hold(rows, position)
        until_s, before = monotonic() + _BUDGET_S, self.position
        while self._held:
            rows_out = self._next()
            try:
                self._send(rows_out, until_s)
            except RetriableError:
                if self.position > before:
                    return self.position  # what was taken is not sent again
                raise
            for row in rows_out:
                self._held.popleft()
                self._bytes -= len(row.data)
            if self._held:
                self.position = self._held[0].offset
                if monotonic() >= until_s:
                    return self.position
        self.position = self._held_to
        return self.position

    def due(self) -> bool:
        return bool(self._held)

    def _hold(self, rows: SinkRows, position: int) -> None:
        if self._bytes > _HELD_MAX_BYTES:
            raise RetriableError(f"{self._sink.describe()} takes records more slowly than they come")
        before, nth = -1, 0
        for data, offset in zip(rows.rows, rows.offsets, strict=True):
            nth = nth + 1 if offset == before else 0
            self._held.append(_HeldRow(offset, nth, data))
            self._bytes += len(data)
            before = offset
        self._held_to = max(position, self._held_to)

    def _next(self) -> list[_HeldRow]:
        """The rows of the next request."""
        most = 1 if self._sink.body == "single" else self._sink.batch_max_records
        found: list[_HeldRow] = []
        size = 0
        for row in islice(self._held, most):
            size += len(row.data) + 1
            if found and size > self._sink.body_max_bytes:
                break
            found.append(row)
        return found

    def _send(self, rows: list[_HeldRow], until_s: float) -> None:
        sink = self._sink
        content = _content([row.data for row in rows], sink.body)
        headers = {
            "Content-Type": _TYPES[sink.body],
            **sink.headers,
            "Idempotency-Key": _key(self._partition, rows, sink.body),
        }
        pause_s = duration_s(sink.backoff)
        for attempt in range(1, sink.attempts + 1):
            why, asked_s = self._attempt(rows, content, headers)
            if why is None:
                return
            wait_s = max(pause_s, asked_s)
            if attempt == sink.attempts or monotonic() + wait_s > until_s:
                break
            sleep(wait_s)
            pause_s *= 2
        raise RetriableError(f"{sink.describe()}: {why}")

    def _attempt(self, rows: list[_HeldRow], content: bytes, headers: Mapping[str, str]) -> tuple[str | None, float]:
        """Why it failed for now, and the pause that the receiver asks for; ``None`` if it has the records."""
        try:
            answer = self._client.post(self._sink.url, content=content, headers=headers)
        except (httpx2.TransportError, httpx2.DecodingError) as exc:
            return f"{type(exc).__name__}: {exc}", 0.0
        if answer.is_success:
            return None, 0.0
        said = f"{answer.status_code} {answer.reason_phrase}: {' '.join(answer.text.split())[:200]}".rstrip(": ")
        if answer.status_code in _PASSING or answer.is_server_error:
            return said, _seconds(answer.headers.get("Retry-After", ""))
        raise ProcessingError(
            f"sink {self._partition}: {self._sink.describe()} refuses the records of offsets {rows[0].offset} to "
            f"{rows[-1].offset} ({said}). Change the sink or the record, or filter such records out"
        )

    def close(self) -> None:
        self._held.clear()
        self._client.close()


def _content(rows: list[bytes], body: Body) -> bytes:
    if body == "lines":
        return b"".join(row + b"\n" for row in rows)
    return rows[0] if body == "single" else b"[" + b",".join(rows) + b"]"


def _key(partition: SinkPartition, rows: list[_HeldRow], body: Body) -> str:
    """A text that is equal only for equal records."""
    until = "" if body == "single" else f"-{rows[-1].offset}.{rows[-1].nth}"
    return "/".join([*map(str, partition), f"{rows[0].offset}.{rows[0].nth}{until}"])


def _seconds(text: str) -> float:
    """The seconds of ``Retry-After``; none if it has a date."""
    return float(text) if text.isascii() and text.isdigit() else 0.0
