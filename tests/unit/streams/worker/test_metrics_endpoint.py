"""What a process serves over HTTP, asked for by real requests."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import penstock as ps
from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.events.measurements import Metric
from penstock.streams.events.metrics_adapter import CONTENT_TYPE, MetricsEvents, exposition
from penstock.streams.runtime.metric_values import metrics_of
from penstock.streams.testing.memory_log import LogEntry
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.metrics_endpoint import MetricsEndpoint, Report
from penstock.streams.worker.metrics_gateway import MetricsGateway
from penstock.streams.worker.settings import WorkerSettings
from tests.simulation.world import World

LIMIT_S = 60.0
"""Longer than any machine stalls."""
SOON_S = 0.5


class Shown:
    """Pages that say what a test wants."""

    def __init__(self) -> None:
        self.looked_at: list[Metric] = []
        self.well = True
        self.events = MetricsEvents(lambda: self.looked_at)

    def metrics(self) -> bytes:
        return exposition(self.events.registry)

    def health(self) -> Report:
        return Report(True, {"state": "running"})

    def ready(self) -> Report:
        return Report(self.well, {"state": "running" if self.well else "restoring"})


def asked(port: int, path: str = "/metrics") -> tuple[str, str]:
    """Content type and text of an answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def status_of(port: int, path: str) -> int:
    """The status of an answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def pages() -> Shown:
    return Shown()


@pytest.fixture
def endpoint(pages: Shown) -> Iterator[MetricsEndpoint]:
    opened = MetricsEndpoint(("127.0.0.1", 0), pages, connections_max=3, request_limit_s=LIMIT_S)
    yield opened
    opened.close()


@pytest.fixture
def hasty(pages: Shown) -> Iterator[MetricsEndpoint]:
    """One that waits for no request longer than ``SOON_S``."""
    opened = MetricsEndpoint(("127.0.0.1", 0), pages, connections_max=3, request_limit_s=SOON_S)
    yield opened
    opened.close()


def test_tasks_are_shown_as_they_stand(endpoint: MetricsEndpoint, pages: Shown) -> None:
    assert asked(endpoint.port)[0] == CONTENT_TYPE
    builder = ps.StreamsBuilder("t", key=bytes, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out", value=int)
    world = World(builder.build(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    for i in range(16_000):
        world.log.append(TopicPartition("in", 0), LogEntry(b"heavy" if i else None, b"v", i))
    node = world.node("a")
    world.settle(node)
    pages.looked_at += metrics_of(node.runtime.tasks.values(), node.runtime.consumer.known_ends())
    lines = asked(endpoint.port, "/metrics?name=x")[1].splitlines()
    assert (
        "# TYPE penstock_buffered_records gauge" in lines and "# TYPE penstock_dropped_records_total counter" in lines
    )
    assert 'penstock_buffered_records{task="0_0",topic="in"} 0.0' in lines
    assert 'penstock_records_lag{task="0_0",topic="in"} 0.0' in lines
    assert 'penstock_stream_time_seconds{task="0_0"} 15.999' in lines
    share = 'penstock_heavy_key_share{key="heavy",task="0_0",topic="in"} '
    assert [float(line.removeprefix(share)) for line in lines if line.startswith(share)] == [pytest.approx(1, abs=0.1)]


def test_health_and_readiness_are_told_by_the_status(endpoint: MetricsEndpoint, pages: Shown) -> None:
    assert (status_of(endpoint.port, "/health"), status_of(endpoint.port, "/ready")) == (200, 200)
    pages.well = False
    assert (status_of(endpoint.port, "/health"), status_of(endpoint.port, "/ready")) == (200, 503)
    assert json.loads(asked(endpoint.port, "/health")[1]) == {"state": "running"}


def test_a_process_that_begins_is_alive_and_not_ready() -> None:
    endpoint = MetricsEndpoint(("127.0.0.1", 0))
    assert (status_of(endpoint.port, "/health"), status_of(endpoint.port, "/ready")) == (200, 503)
    assert asked(endpoint.port)[1] == ""
    endpoint.close()


def test_other_pages_are_not_there(endpoint: MetricsEndpoint) -> None:
    assert status_of(endpoint.port, "/") == 404


def threads() -> int:
    """How many threads answer requests."""
    return sum("process_request_thread" in t.name for t in threading.enumerate())


def test_slow_clients_hold_no_thread_for_longer_than_a_request_may_take(hasty: MetricsEndpoint) -> None:
    slow = [socket.create_connection(("127.0.0.1", hasty.port), timeout=LIMIT_S) for _ in range(3)]
    until_s = time.monotonic() + LIMIT_S
    ended = 0
    while ended < len(slow) and time.monotonic() < until_s:
        for client in list(slow):
            try:
                client.send(b"G")  # a byte now and then, for ever
            except OSError:
                slow.remove(client)
                client.close()
        time.sleep(0.05)
        if not slow:
            break
    assert slow == []
    answer: int | None = None
    while answer is None and time.monotonic() < until_s + LIMIT_S:
        with suppress(OSError):  # a stall of the machine made this request, too, a slow one
            answer = status_of(hasty.port, "/health")
    assert answer == 200
    assert threads() <= 1


def test_more_clients_than_there_may_be_are_refused(endpoint: MetricsEndpoint) -> None:
    held = [socket.create_connection(("127.0.0.1", endpoint.port), timeout=LIMIT_S) for _ in range(3)]
    for client in held:
        client.send(b"GET /hea")
    until_s = time.monotonic() + LIMIT_S
    while threads() < 3 and time.monotonic() < until_s:
        time.sleep(0.01)
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=LIMIT_S) as late:
        assert late.recv(100).startswith(b"HTTP/1.0 503")
    for client in held:
        client.send(b"lth HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")
        client.close()


def test_a_client_that_goes_away_leaves_no_line(
    endpoint: MetricsEndpoint, pages: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    pages.looked_at += [
        Metric("penstock_counted_total", {"task": "0_0", "counter": f"{i}" * 20}, i) for i in range(99_999)
    ]
    for _ in range(3):
        client = socket.create_connection(("127.0.0.1", endpoint.port), timeout=LIMIT_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.send(b"GET /metrics HTTP/1.0\r\n\r\n")
        client.close()
    until_s = time.monotonic() + LIMIT_S
    while threads() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_refused_and_a_closed_one_is_free(endpoint: MetricsEndpoint) -> None:
    with pytest.raises(EnvironmentFault, match="metrics_port"):
        MetricsEndpoint(("127.0.0.1", endpoint.port))
    with pytest.raises(EnvironmentFault, match="metrics_host"):
        MetricsEndpoint(("no-such-host.invalid", 0))
    endpoint.close()
    MetricsEndpoint(("127.0.0.1", endpoint.port)).close()
    assert not [t for t in threading.enumerate() if t.name == "penstock-metrics"]


def test_it_is_off_unless_asked_for() -> None:
    assert WorkerSettings(application_id="a").metrics_port == 0
    given = load_settings(env={"PENSTOCK_APPLICATION_ID": "a", "PENSTOCK_METRICS_PORT": "9400"})
    assert (given.metrics_host, given.metrics_port) == ("127.0.0.1", 9400)
    with pytest.raises(SettingsError, match="metrics_port=70000"):
        WorkerSettings(application_id="a", metrics_port=70_000)


# -- several processes -----------------------------------------------------------------------------------------------


@pytest.fixture
def gateway() -> Iterator[MetricsGateway]:
    opened = MetricsGateway(("127.0.0.1", 0), 2, answer_limit_s=LIMIT_S)
    yield opened
    opened.close()


def test_one_port_shows_all_processes(gateway: MetricsGateway, pages: Shown) -> None:
    others = Shown()
    for of, records in ((pages, 1), (others, 2)):
        of.looked_at.append(Metric("penstock_buffered_records", {"task": "0_0", "topic": "in"}, records))
    first = MetricsEndpoint(gateway.socket(0), pages)
    second = MetricsEndpoint(gateway.socket(1), others)
    text = asked(gateway.port)[1]
    lines = text.splitlines()
    assert lines.count("# TYPE penstock_buffered_records gauge") == 1
    assert 'penstock_buffered_records{process="0",task="0_0",topic="in"} 1.0' in lines
    assert 'penstock_buffered_records{process="1",task="0_0",topic="in"} 2.0' in lines
    assert 'penstock_commit_total{process="1"} 0.0' in lines
    assert 'penstock_process_latency_seconds_bucket{le="+Inf",process="0"} 0.0' in lines
    assert 'penstock_process_up{process="1"} 1.0' in lines
    assert status_of(gateway.port, "/ready") == 200
    others.well = False
    assert (status_of(gateway.port, "/ready"), status_of(gateway.port, "/health")) == (503, 200)
    second.close()
    gateway.restarted(1)
    lines = asked(gateway.port)[1].splitlines()
    assert 'penstock_process_up{process="1"} 0.0' in lines
    assert 'penstock_process_restarts_total{process="1"} 1.0' in lines
    assert not any('topic="in"' in line and 'process="1"' in line for line in lines)
    assert (status_of(gateway.port, "/ready"), status_of(gateway.port, "/health")) == (503, 200)
    MetricsEndpoint(gateway.socket(1), others).close()  # started again on the same socket
    first.close()


def test_a_process_that_is_stuck_does_not_hold_up_the_others(pages: Shown) -> None:
    gateway = MetricsGateway(("127.0.0.1", 0), 2, answer_limit_s=3.0)
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(gateway.socket(0)))
        stuck.listen()
        endpoint = MetricsEndpoint(gateway.socket(1), pages)
        lines = asked(gateway.port)[1].splitlines()
        assert 'penstock_process_up{process="0"} 0.0' in lines and 'penstock_process_up{process="1"} 1.0' in lines
        endpoint.close()
    gateway.close()


def test_the_folder_of_the_sockets_is_the_users_own_and_goes(tmp_path: Path) -> None:
    opened = MetricsGateway(("127.0.0.1", 0), 1)
    folder = opened.socket(0).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert opened.commands([["penstock"]]) == [["penstock", "--metrics-socket", str(opened.socket(0))]]
    opened.close()
    assert not folder.exists()
