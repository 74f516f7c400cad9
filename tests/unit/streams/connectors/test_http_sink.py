"""Records as requests, to a real server: the contract, what is sent, and receivers that fail, are slow or refuse."""

from __future__ import annotations

import json
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import penstock as ps
from penstock.connectors import HttpSink, Sink, SinkPartition, SinkRows, SinkWriter
from penstock.state.errors import ProcessingError, RetriableError, SettingsError
from penstock.streams.connectors import http_sink
from penstock.testing import SinkContract

OF = SinkPartition("app", "s", "t", "id", 0)


class Receiver:
    """A server that keeps what it is sent, unless ``answer(body, headers)`` says something other than 200. ``says``: headers
    of its answers. A status of 0: the connection is closed without an answer."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[bytes, dict[str, str]], int] = lambda body, headers: 200
        self.says: dict[str, str] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): text for name, text in self.headers.items()}
                status = receiver.answer(body, headers)
                if status == 200:
                    receiver.bodies.append(body)
                    receiver.headers.append(headers)
                if not status:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, text in receiver.says.items():
                    self.send_header(name, text)
                said = b"" if status == 200 else b"no,\n  not this"
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/in"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def values(self) -> list[Any]:
        return [json.loads(line) for body in self.bodies for line in body.splitlines()]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class TestHttp(SinkContract):
    folds = False

    @pytest.fixture(autouse=True)
    def _receiver(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def sink(self) -> Sink:
        return HttpSink(self.receiver.url, key="k", timeout="60s")

    def contents(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for row in self.receiver.values:
            out.setdefault(row["k"], []).append(row["n"])
        return out


def rows(first: int, stop: int, each: int = 1) -> SinkRows:
    offsets = [n for n in range(first, stop) for _ in range(each)]
    return SinkRows([b'{"n":%d}' % n for n in offsets], offsets)


def written(writer: SinkWriter, given: SinkRows, position: int) -> None:
    """Write until all is sent."""
    reached = writer.write(given, position)
    while reached < position:
        assert writer.due()
        reached = writer.write(SinkRows([], []), position)
    assert not writer.due()


def test_bodies_and_headers(receiver: Receiver) -> None:
    for body, most in (("lines", 2), ("array", 3), ("single", 9)):
        sink = HttpSink(
            receiver.url, body=body, batch_max_records=most, headers={"Authorization": "Bearer x"}, timeout="60s"
        )
        writer = pickle.loads(pickle.dumps(sink)).open(OF, 4)
        written(writer, rows(4, 7), 8)
        writer.close()
    assert receiver.bodies == [
        b'{"n":4}\n{"n":5}\n',
        b'{"n":6}\n',
        b'[{"n":4},{"n":5},{"n":6}]',
        *(b'{"n":%d}' % n for n in (4, 5, 6)),
    ]
    types = [headers["content-type"] for headers in receiver.headers]
    assert types == ["application/x-ndjson"] * 2 + ["application/json"] * 4
    assert {headers["authorization"] for headers in receiver.headers} == {"Bearer x"}
    keys = [headers["idempotency-key"] for headers in receiver.headers]
    assert len(set(keys)) == 6 and keys[3:] == [f"app/s/t/id/0/{n}.0" for n in (4, 5, 6)]


def test_requests_end_at_their_limits_and_keys_follow_from_the_record(receiver: Receiver) -> None:
    sink = HttpSink(receiver.url, body_max_bytes=17, timeout="60s")
    written(sink.open(OF, 0), rows(0, 3, each=2), 3)
    assert [len(body.splitlines()) for body in receiver.bodies] == [2, 2, 2]
    single = HttpSink(receiver.url, body="single", timeout="60s")
    written(single.open(OF, 0), rows(0, 2, each=2), 2)
    keys = [headers["idempotency-key"].rpartition("/")[2] for headers in receiver.headers[3:]]
    assert keys == ["0.0", "0.1", "1.0", "1.1"]


@pytest.mark.parametrize("status", [408, 429, 500, 503, 0])
def test_a_request_that_fails_for_now_is_sent_again(
    receiver: Receiver, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(http_sink, "_BUDGET_S", 600.0)
    monkeypatch.setattr(http_sink, "sleep", pauses.append)
    failing = [status, status, 200]
    receiver.answer = lambda body, headers: failing.pop(0)
    receiver.says = {"Retry-After": "7"} if status == 429 else {}
    writer = HttpSink(receiver.url, timeout="60s").open(OF, 0)
    assert writer.write(rows(0, 3), 3) == 3
    assert pauses == ([7.0, 7.0] if status == 429 else [0.2, 0.4])
    assert [row["n"] for row in receiver.values] == [0, 1, 2]
    writer.close()


def test_a_receiver_that_stays_away_is_the_runners_to_wait_for(receiver: Receiver) -> None:
    sink = HttpSink(receiver.url, attempts=2, backoff=0, timeout="60s")
    receiver.answer = lambda body, headers: 503
    writer = sink.open(OF, 0)
    with pytest.raises(RetriableError, match=r"POST http://.*/in: 503 Service Unavailable: no, not this"):
        writer.write(rows(0, 3), 3)
    writer.close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RetriableError, match="ConnectError"):
        HttpSink(f"http://127.0.0.1:{port}", attempts=1).open(OF, 0).write(rows(0, 1), 1)


def test_what_was_taken_before_a_failure_is_not_sent_again(receiver: Receiver) -> None:
    sink = HttpSink(receiver.url, batch_max_records=2, attempts=1, timeout="60s")
    receiver.answer = lambda body, headers: 503 if b'"n":4' in body else 200
    writer = sink.open(OF, 0)
    assert writer.write(rows(0, 6), 6) == 4 and writer.due()
    with pytest.raises(RetriableError):
        writer.write(rows(6, 7), 7)
    writer.close()
    receiver.answer = lambda body, headers: 200
    again = sink.open(OF, 4)
    written(again, rows(4, 7), 7)
    assert [row["n"] for row in receiver.values] == list(range(7))


def test_a_slow_receiver_gets_the_rest_with_the_next_commits(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no commit waits longer than a transaction may."""
    monkeypatch.setattr(http_sink, "_BUDGET_S", 0.0)
    writer = HttpSink(receiver.url, body="single", timeout="60s").open(OF, 0)
    reached = [writer.write(rows(0, 2), 2), writer.write(rows(2, 4), 4)]
    while writer.due():
        reached.append(writer.write(SinkRows([], []), 5))
    assert reached == [1, 2, 3, 5]
    monkeypatch.setattr(http_sink, "_HELD_MAX_BYTES", 10)
    writer.write(rows(5, 9), 9)
    with pytest.raises(RetriableError, match="more slowly than they come"):
        writer.write(rows(9, 10), 10)
    writer.close()


@pytest.mark.parametrize("status", [400, 401, 404, 422, 302])
def test_a_refusal_is_an_error_with_the_answer(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda body, headers: status
    receiver.says = {"Location": "/elsewhere"} if status == 302 else {}
    sink = HttpSink(f"{receiver.url}?token=secret", headers={"Authorization": "hidden"}, timeout="60s")
    with pytest.raises(ProcessingError, match=rf"offsets 3 to 4 \({status} .*no, not this\)") as caught:
        sink.open(OF, 3).write(rows(3, 5), 5)
    assert "secret" not in str(caught.value) and "hidden" not in repr(sink) and "secret" not in sink.describe()


def test_rows() -> None:
    sink = HttpSink("http://h/x")
    assert sink.row("k", {"a": [1]}, 5, ()) == b'{"a":[1]}' and sink.row("k", 3, 5, ()) == b"3"
    keyed = HttpSink("http://h/x", key="city", timestamp="at", value="n")
    assert keyed.row("Oslo", 3, 5, ()) == b'{"n":3,"city":"Oslo","at":5}'
    for one in (sink, keyed):
        with pytest.raises(ValueError, match="the value is null"):
            one.row("k", None, 0, ())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://h/x"}, "begins with http:// or https://"),
        ({"url": "http://"}, "begins with http:// or https://"),
        ({"url": "http://h:port/"}, "url: "),
        ({"url": "http://h/", "body": "xml"}, "choose one of lines, array, single"),
        ({"url": "http://h/", "attempts": 0}, "above zero"),
        ({"url": "http://h/", "timeout": 0}, "above zero"),
    ],
)
def test_settings_that_cannot_work(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        HttpSink(**given)


def test_in_a_topology() -> None:
    """Counts go through a topic, so that the positions that wait are the sink's alone."""
    builder = ps.StreamsBuilder("t", key=str, value=dict)
    builder.stream("in").group_by_key().count(name="n").to_stream().sink(HttpSink("http://h/x", key="city"), name="out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", "Oslo", {})
        assert driver.read_sink("out") == [b'{"value":1,"city":"Oslo"}']
