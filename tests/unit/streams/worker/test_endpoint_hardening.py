"""What the HTTP endpoint must not do, by the rows of ASVS 5.0 that apply to it (``SECURITY.md`` lists them)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.streams.worker.metrics_endpoint import PATH_MAX_CHARS, MetricsEndpoint, Report
from penstock.streams.worker.settings import WorkerSettings
from tests.integration.worker.application import LIMIT_S

MARKER = "marker-7f3a"
METHODS = ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "GETS", "get", MARKER)


class Failing:
    """Pages that answer, or fail with a text that nobody may see."""

    fails = False

    def metrics(self) -> bytes:
        if self.fails:
            raise ValueError(MARKER)
        return b"penstock_x 1\n"

    def health(self) -> Report:
        return Report(True, {"state": "running"})

    def ready(self) -> Report:
        return self.health()


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    opened = MetricsEndpoint(("127.0.0.1", 0), Failing())
    yield opened
    opened.close()


def raw(endpoint: MetricsEndpoint, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status line, headers in lower case and body of the answer."""
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=LIMIT_S) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: client.recv(65_536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    return status, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}, body


def get(endpoint: MetricsEndpoint, path: str) -> tuple[str, dict[str, str], bytes]:
    return raw(endpoint, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def test_off_and_on_loopback_unless_told_otherwise() -> None:
    """13.2.1, 13.4.x."""
    settings = WorkerSettings(application_id="a")
    assert (settings.metrics_host, settings.metrics_port) == ("127.0.0.1", 0)


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready", "/", "/nothing"])
def test_no_answer_names_the_server_or_its_version(endpoint: MetricsEndpoint, path: str) -> None:
    """13.4.6."""
    status, headers, body = get(endpoint, path)
    assert "server" not in headers
    assert "python" not in f"{status}{headers}{body!r}".lower()


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready", "/nothing"])
def test_every_answer_says_what_it_is_and_that_nothing_keeps_or_shows_it(endpoint: MetricsEndpoint, path: str) -> None:
    """3.4.4, 3.4.6, 4.1.1, 14.3.2."""
    _, headers, body = get(endpoint, path)
    assert headers["content-type"].partition(";")[0] in ("text/plain", "application/json")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready"])
def test_no_other_site_is_let_in(endpoint: MetricsEndpoint, path: str) -> None:
    """3.4.2."""
    _, headers, _ = raw(endpoint, f"GET {path} HTTP/1.1\r\nHost: x\r\nOrigin: https://evil.example\r\n\r\n".encode())
    assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize("method", METHODS)
def test_only_get_is_taken(endpoint: MetricsEndpoint, method: str) -> None:
    """4.1.4, 13.4.4 (TRACE)."""
    status, headers, body = raw(endpoint, f"{method} /metrics HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert " 405 " in status
    assert headers["allow"] == "GET"
    assert MARKER.encode() not in body
    assert b"penstock_x" not in body
    assert body == b"" or method != "HEAD"


@pytest.mark.parametrize(
    "request_line",
    [
        f"GET /{MARKER}<script> HTTP/1.1",
        f"{MARKER}",
        f"GET / {MARKER}/9",
        f"GET /metrics HTTP/1.1 {MARKER}",
        "\x00\x01 / HTTP/1.1",
    ],
)
def test_refusals_repeat_nothing_of_the_request(endpoint: MetricsEndpoint, request_line: str) -> None:
    """1.2.1, 16.5.1."""
    status, _, body = raw(endpoint, f"{request_line}\r\n\r\n".encode())
    assert MARKER not in status
    assert MARKER.encode() not in body
    assert b"<" not in body


def test_what_goes_wrong_inside_is_not_shown(
    endpoint: MetricsEndpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """16.5.1: the client gets nothing of it, the log a line."""
    monkeypatch.setattr(Failing, "fails", True)
    status, headers, body = get(endpoint, "/metrics")
    assert MARKER not in f"{status}{headers}{body!r}"
    assert b"Traceback" not in body
    assert MARKER in caplog.text


def test_long_addresses_are_refused(endpoint: MetricsEndpoint) -> None:
    """4.2.5."""
    assert " 200 " in get(endpoint, "/metrics?" + "a" * (PATH_MAX_CHARS - 9))[0]
    assert " 414 " in get(endpoint, "/metrics?" + "a" * PATH_MAX_CHARS)[0]
    assert " 414 " in get(endpoint, "/" + "a" * 70_000)[0]


def test_many_and_long_headers_are_refused(endpoint: MetricsEndpoint) -> None:
    """4.2.5."""
    many = "".join(f"h{i}: x\r\n" for i in range(200))
    assert " 200 " not in raw(endpoint, f"GET /metrics HTTP/1.1\r\n{many}\r\n".encode())[0]


@pytest.mark.parametrize(
    "path", ["/metrics/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/metrics/", "/.git/config"]
)
def test_no_path_leads_to_a_file(endpoint: MetricsEndpoint, path: str) -> None:
    """5.3.2, 13.4.3."""
    assert " 404 " in get(endpoint, path)[0]


def test_a_request_with_a_body_leaves_nothing_for_a_second_one(endpoint: MetricsEndpoint) -> None:
    """4.2.1: one answer per connection, so that no length can be disagreed about."""
    smuggled = b"GET /metrics HTTP/1.1\r\n\r\n"
    request = b"GET /health HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled
    _, _, body = raw(endpoint, request)
    assert body == b'{"state":"running"}'


def test_threads_end_with_their_requests(endpoint: MetricsEndpoint) -> None:
    """15.2.2."""
    for _ in range(30):
        get(endpoint, "/health")
    assert sum("process_request_thread" in t.name for t in threading.enumerate()) <= 2
