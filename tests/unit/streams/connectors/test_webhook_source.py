"""Requests as records: answered once they are committed, refused while they cannot be, over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.connectors import Ingestion, SourceBatch, WebhookSource
from penstock.state.errors import EnvironmentFault, RetriableError, SettingsError
from penstock.streams.connectors.ingestion_run import IngestionRun
from penstock.streams.connectors.webhook_source import WebhookReader
from penstock.streams.ports.log import TopicSpec
from penstock.streams.testing.memory_log import MemoryLog
from tests.memory_worker_log import MemoryWorkerLog

LINES = "application/x-ndjson"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Running:
    """An ingestion of requests on the log in memory, in a thread."""

    def __init__(self, on_error: Any = "skip", **given: Any) -> None:
        self.log = MemoryLog()
        self.log.create(TopicSpec("events", 2))
        self.port = free_port()
        source = WebhookSource(self.port, path="/in", **{"key": "city", "request_timeout": "20s"} | given)
        ingestion = Ingestion("hook", source, "events", batch_records=5, on_error=on_error)
        log: Any = MemoryWorkerLog(self.log)
        self.over = threading.Event()
        self.run = IngestionRun(
            ingestion, log, now_ms=lambda: 5, pause=lambda s: time.sleep(0.01), stop=self.over.is_set
        )
        self.thread = threading.Thread(target=self.run.run)

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def post(self, body: str | bytes, method: str = "POST", path: str = "/in", **headers: str) -> tuple[int, str]:
        """The answer; asked again while nothing listens yet."""
        for _ in range(200):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()
            except ConnectionError:
                time.sleep(0.05)
            finally:
                connection.close()
        raise AssertionError("nothing listens")

    def written(self) -> list[Any]:
        return [json.loads(entry.value or b"") for _, _, entry in self.log.read("events")]


def test_a_request_is_answered_once_its_record_is_in_the_topic() -> None:
    with Running(timestamp="at") as hook:
        assert hook.post('{"city":"Rome","at":7}', Idempotency_Key="k1", X_Other="x") == (204, "")
        ((_, _, entry),) = hook.log.read("events")
    assert (entry.key, entry.timestamp_ms, entry.headers) == (b"Rome", 7, (("idempotency-key", b"k1"),))


def test_lines_are_records_of_their_own() -> None:
    with Running() as hook:
        assert hook.post('{"city":"Rome"}\n\n{"city":"Oslo"}\r\n', Content_Type=LINES)[0] == 204
        assert hook.post("\n", Content_Type=LINES)[0] == 204
        assert hook.post('{"city":"Rome"}\n' * 6, Content_Type=LINES)[0] == 413, "more than a transaction takes"
        assert sorted(row["city"] for row in hook.written()) == ["Oslo", "Rome"]


def test_what_could_not_be_committed_is_refused_and_written_once_when_it_is_sent_again() -> None:
    hook = Running()
    hook.log.fault("commit_before", 1, RetriableError("brokers are away"))
    with hook:
        assert hook.post('{"city":"Rome"}')[0] == 503
        assert hook.written() == []
        assert hook.post('{"city":"Rome"}')[0] == 204
        assert hook.written() == [{"city": "Rome"}]


def test_a_lost_answer_of_kafka_refuses_what_is_there_so_it_comes_twice() -> None:
    hook = Running()
    hook.log.fault("commit_after", 1, RetriableError("no answer"))
    with hook:
        assert [hook.post('{"city":"Rome"}')[0] for _ in range(2)] == [503, 204]
        assert hook.written() == [{"city": "Rome"}] * 2


def test_a_record_that_does_not_fit_is_named_and_the_others_are_written() -> None:
    with Running() as hook:
        status, said = hook.post('{"city":"Rome"}\n{"town":"Oslo"}', Content_Type=LINES)
        assert status == 422
        assert "value 2: there is no column 'city'" in said
        assert hook.post('{"city":"Lima"}')[0] == 204
        assert sorted(row["city"] for row in hook.written()) == ["Lima", "Rome"]


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"body": "{"}, 400),
        ({"body": b"\xff"}, 400),
        ({"body": "{}", "path": "/other"}, 404),
        ({"body": "{}", "method": "GET"}, 405),
        ({"body": "{}", "method": "PUT"}, 405),
        ({"body": '{"city":"' + "x" * 100 + '"}'}, 413),
        ({"body": "{}", "Content_Length": "-2"}, 411),
    ],
)
def test_requests_that_are_refused_at_once(given: dict[str, Any], status: int) -> None:
    with Running(body_max_bytes=99) as hook:
        found, said = hook.post(**given)
        assert found == status
        assert "x" * 100 not in said
        assert hook.written() == []


def test_only_who_has_the_token_may_write() -> None:
    with Running(token="sesame") as hook:
        assert hook.post('{"city":"Rome"}')[0] == 401
        assert hook.post('{"city":"Rome"}', Authorization="Bearer wrong")[0] == 401
        assert hook.written() == []
        assert hook.post('{"city":"Rome"}', Authorization="Bearer sesame")[0] == 204
    assert "sesame" not in repr(hook.run._ingestion)


def test_requests_that_wait_when_it_ends_are_refused() -> None:
    reader = WebhookSource(0).open("", None)
    assert isinstance(reader, WebhookReader)
    connection = http.client.HTTPConnection("127.0.0.1", reader.port, timeout=30)
    connection.request("POST", "/", "1")
    batch = SourceBatch([], None, False)
    while not batch.records:
        batch = reader.read(10)
    reader.close()
    assert connection.getresponse().status == 503
    connection.close()


@pytest.fixture
def slow() -> Iterator[WebhookReader]:
    reader = WebhookSource(0, connections_max=2, request_timeout="500ms").open("", None)
    assert isinstance(reader, WebhookReader)
    yield reader
    reader.close()


def test_slow_senders_hold_neither_threads_nor_others(slow: WebhookReader) -> None:
    held = [socket.create_connection(("127.0.0.1", slow.port)) for _ in range(3)]
    for one in held:
        one.settimeout(30)
    assert held[2].recv(100).startswith(b"HTTP/1.0 503"), "two are admitted, the third is not"
    assert held[0].recv(100) == held[1].recv(100) == b"", "they are closed when their time is up"
    for one in held:
        one.close()


def test_a_request_without_an_answer_in_time_is_refused(slow: WebhookReader) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", slow.port, timeout=30)
    connection.request("POST", "/", "1")
    assert connection.getresponse().status == 503
    connection.close()


def test_wrong_settings_and_a_port_in_use_are_named() -> None:
    for given in (
        {"port": 1, "path": "x"},
        {"port": 70_000},
        {"port": 1, "token": ""},
        {"port": 1, "connections_max": 0},
    ):
        with pytest.raises(SettingsError, match="give a"):
            WebhookSource(**given)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(EnvironmentFault, match="choose a free port"):
        WebhookSource(server.getsockname()[1]).open("", None)
