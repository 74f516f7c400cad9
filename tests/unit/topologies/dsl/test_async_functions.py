"""``async`` functions in the operators that take them: the same results as plain ones, journaled, in order, with retries;
and against an HTTP server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.state.log import TaskId
from penstock.state.serdes.serde import JSON
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import journal
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.worker.pooled_calls import PooledCallExecutor
from penstock.topologies.operator_api.operator import ExternalCall

RECORDS = [ps.Record(f"k{i % 3}", i, i) for i in range(12)]


def later(fn: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The function, awaited; even values take longer than odd ones."""

    async def answer(key: Any, value: Any) -> Any:
        await asyncio.sleep(0 if value % 2 else 0.002)
        return fn(key, value)

    return answer


def later_of_value(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def answer(value: Any) -> Any:
        await asyncio.sleep(0)
        return fn(value)

    return answer


def topology(make: Callable[[Any], Any]) -> ps.Topology:
    builder = ps.StreamsBuilder("calls", key=str, value=int)
    made = make(builder.stream("in"))
    if made is not None:
        made.to("out")
    return builder.build()


def read(make: Callable[[Any], Any], size: int = 5, records: Any = RECORDS, **more: Any) -> list[tuple[Any, Any, int]]:
    with ps.TopologyTestDriver(topology(make), options=TaskOptions(batch_max_records=size, **more)) as driver:
        driver.pipe_all("in", records)
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


FORMS: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any], Callable[..., Any]]] = [
    (lambda s, fn: s.map_values(fn, value=int), lambda k, v: v * 10 + len(k), later),
    (lambda s, fn: s.map_values(fn, value=int), lambda v: -v, later_of_value),
    (lambda s, fn: s.map_values_with_key(fn, value=str), lambda k, v: f"{k}{v}", later),
    (lambda s, fn: s.filter(fn), lambda k, v: v % 3, later),
    (lambda s, fn: s.filter_not(fn), lambda k, v: v % 3, later),
    (lambda s, fn: s.filter_values(fn), lambda v: v > 4, later_of_value),
    (lambda s, fn: s.flat_map(fn), lambda k, v: [(f"{k}-{n}", n) for n in range(v % 3)], later),
    (lambda s, fn: s.flat_map_values(fn), lambda v: range(v % 4), later_of_value),
    (lambda s, fn: s.flat_map_values_with_key(fn), lambda k, v: (len(k), v), later),
    (lambda s, fn: s.peek(fn), lambda k, v: None, later),
]


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize(("use", "fn", "made"), FORMS)
def test_an_async_function_gives_what_a_plain_one_gives(use: Any, fn: Any, made: Any, size: int) -> None:
    expected = read(lambda s: use(s, fn), size)
    assert expected
    assert read(lambda s: use(s, made(fn)), size) == expected
    assert read(lambda s: use(s, ps.awaiting(made(fn), concurrency=2, order="none")), size) == expected


def test_an_async_generator_gives_children() -> None:
    async def children(value: int) -> Any:
        for n in range(value % 3):
            await asyncio.sleep(0)
            yield n

    expected = read(lambda s: s.flat_map_values(lambda v: list(range(v % 3))))
    assert read(lambda s: s.flat_map_values(children)) == expected
    with pytest.raises(TopologyError, match="yields many results"):
        topology(lambda s: s.map_values(children))


def test_foreach_awaits() -> None:
    seen: list[int] = []

    async def note(key: str, value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    with ps.TopologyTestDriver(topology(lambda s: s.foreach(ps.awaiting(note, concurrency=1)))) as driver:
        driver.pipe_all("in", RECORDS)
    assert seen == list(range(12))


def test_wrong_options_are_refused() -> None:
    for wrong in ({"concurrency": 0}, {"timeout": 0}, {"order": "time"}):
        with pytest.raises(TopologyError, match="at least 1 of both"):
            ps.awaiting(later(lambda k, v: v), **wrong)  # type: ignore[call-overload]  # what is tested
    with pytest.raises(TopologyError, match="is not async"):
        topology(lambda s: s.map_values(ps.awaiting(lambda v: v)))


@pytest.mark.parametrize("use", [f[0] for f in (FORMS[0], FORMS[3], FORMS[6])])
def test_a_replay_calls_nothing(use: Any) -> None:
    """The answers come from the journal, at any batch size."""
    fn = next(f[1] for f in FORMS if f[0] is use)
    with ps.TopologyTestDriver(topology(lambda s: use(s, later(fn)))) as driver:
        driver.pipe_all("in", RECORDS)
        out = [(r.key, r.value) for r in driver.read_raw("out")]
        entries = [e for r in driver.changelogs["test-0-journal"] for e in journal.decode(r.value)]

    async def never(key: str, value: int) -> Any:
        raise AssertionError("called in a replay")

    made = topology(lambda s: use(s, never))
    sub = made.subtopologies[0]
    for size in (1, 4, 100):
        task = Task(
            TaskId(0, 0),
            "test",
            made,
            sub,
            MemoryBackend(sub.stores),
            {"in": (0, CommitMetadata())},
            TaskOptions(batch_max_records=size),
            {},
            answers=journal.answers_of(entries),
        )
        keys = [str(r.key).encode() for r in RECORDS]
        values = [int(r.value).to_bytes(8, "big") for r in RECORDS]
        task.add(Chunk("in", 0, list(range(12)), keys, values, list(range(12))), 12)
        task.feed.set_end("in", 12)
        while task.process():
            pass
        assert [(k, v) for o in task.take_outputs() for k, v in zip(o.keys, o.values, strict=True)] == out


def overlaps(ordered: bool) -> tuple[dict[Any, int], int, list[Any]]:
    """The most calls at a time of each key, and of all; and the answers."""
    running: list[Any] = []
    most: dict[Any, int] = {}
    widest = 0

    async def ask(key: Any, n: int) -> int:
        nonlocal widest
        running.append(key)
        most[repr(key)] = max(most.get(repr(key), 0), running.count(key))
        widest = max(widest, len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.remove(key)
        return n

    call = ExternalCall(fn=ask, serde=JSON, concurrency=4, ordered_by_key=ordered)
    executor = PooledCallExecutor()
    try:
        # a list cannot be hashed
        answers = executor.ask(call, [((["a"], "b", "c")[n % 3], n) for n in range(30)])
    finally:
        executor.close()
    return most, widest, [a.value for a in answers]


def test_calls_of_one_key_follow_each_other() -> None:
    most, widest, answers = overlaps(True)
    assert (set(most.values()), widest, answers) == ({1}, 3, list(range(30)))
    most, widest, answers = overlaps(False)
    assert (max(most.values()), widest, answers) == (2, 4, list(range(30)))


def test_a_call_that_fails_is_repeated_then_the_policy_decides() -> None:
    calls: dict[int, int] = {}

    async def flaky(value: int) -> int:
        calls[value] = calls.get(value, 0) + 1
        if value == 3 or (value == 5 and calls[value] < 3):
            raise ConnectionError("away")
        return value

    def make(stream: Any) -> Any:
        return stream.map_values(flaky, name="ask").on_error(ps.retry(3, 1, then="dead_letter"))

    options = TaskOptions(policies=ps.Policies(dead_letter_topic="dead"))
    with ps.TopologyTestDriver(topology(make), options=options) as driver:
        driver.pipe_all("in", RECORDS)
        assert [r.value for r in driver.read("out")] == [n for n in range(12) if n != 3]
        (letter,) = driver.read_raw("dead")
    assert dict(letter.headers)["penstock.error"] == b"the call failed: ConnectionError: away"
    assert dict(letter.headers)["penstock.traceback"].decode().endswith(" in " + flaky.__qualname__)  # type: ignore[union-attr]  # it is there
    assert dict(letter.headers)["penstock.traceback"].decode().startswith(f"{__file__}:")  # type: ignore[union-attr]  # it is there
    assert calls == {n: 3 if n in (3, 5) else 1 for n in range(12)}


class Prices(BaseHTTPRequestHandler):
    """Gives ten times the number in the path. The first request for 3 is answered by 503, and 7 is not found."""

    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        number = int(self.path.removeprefix("/"))
        status = 503 if number == 3 and self.seen.count(self.path) == 1 else 404 if number == 7 else 200
        body = str(number * 10).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def prices() -> Iterator[tuple[int, list[str]]]:
    handler = type("Handler", (Prices,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1], handler.seen  # type: ignore[attr-defined]  # set above
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_http_service_is_asked(prices: tuple[int, list[str]]) -> None:
    """By a real client on a real socket: answers in order, one retried, one given up."""
    port, seen = prices

    async def price(value: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /{value} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status != 200:
            raise ConnectionError(f"status {status}")
        return int(body)

    def make(stream: Any) -> Any:
        called = stream.map_values(ps.awaiting(price, concurrency=3, timeout="60s"))
        return called.on_error(ps.retry(2, 1, then="skip"))

    assert [value for _, value, _ in read(make)] == [n * 10 for n in range(12) if n != 7]
    assert sorted(seen) == sorted([f"/{n}" for n in range(12)] + ["/3", "/7"])
