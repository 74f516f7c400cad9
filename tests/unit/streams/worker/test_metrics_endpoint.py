"""A worker's metrics over HTTP, asked for by a real request."""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

import penstock as ps
from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.cli import worker
from penstock.streams.runtime.metric_values import Metric, metrics_of
from penstock.streams.testing.memory_log import LogEntry
from penstock.streams.worker import metrics_endpoint
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.metrics_endpoint import CONTENT_TYPE, REQUESTS_MAX, MetricsEndpoint, exposition
from penstock.streams.worker.settings import WorkerSettings
from tests.simulation.world import World

LIMIT_S = 10.0


def asked(port: int, path: str = "/metrics") -> tuple[str, str]:
    """Content type and text of an answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT_S) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.fixture
def shown() -> list[Metric]:
    """What the endpoint is to show."""
    return []


@pytest.fixture
def endpoint(shown: list[Metric]) -> Iterator[MetricsEndpoint]:
    opened = MetricsEndpoint("127.0.0.1", 0, lambda: shown)
    yield opened
    opened.close()


def test_tasks_are_shown_as_they_stand(endpoint: MetricsEndpoint, shown: list[Metric]) -> None:
    assert asked(endpoint.port) == (CONTENT_TYPE, "")
    builder = ps.StreamsBuilder("t", key=bytes, value=str)
    builder.stream("in").group_by_key().count(name="counts").to_stream().to("out", value=int)
    world = World(builder.build(), "at_least_once", partitions=1, inputs=["in"], outputs=["out"])
    for i in range(4_000):
        world.log.append(TopicPartition("in", 0), LogEntry(b"heavy" if i else None, b"v", i))
    node = world.node("a")
    world.settle(node)
    shown.extend(metrics_of(node.runtime.tasks.values()))
    lines = asked(endpoint.port, "/metrics?name=x")[1].splitlines()
    assert "# TYPE penstock_buffered_records gauge" in lines and "# TYPE penstock_counted_total counter" in lines
    assert 'penstock_buffered_records{task="0_0",topic="in"} 0' in lines
    share = 'penstock_heavy_key_share{task="0_0",topic="in",key="heavy"} '
    assert [float(line.removeprefix(share)) for line in lines if line.startswith(share)] == [pytest.approx(1, abs=0.1)]


def test_names_stand_together_and_labels_are_escaped() -> None:
    odd = Metric("b", {"key": 'a"\\\n\u00e9'}, 0.5)
    assert exposition([odd, Metric("a_total", {}, 3), Metric("b", {"key": "", "x": "y"}, 1)]).splitlines() == [
        "# TYPE a_total counter",
        "a_total 3",
        "# TYPE b gauge",
        'b{key="a\\"\\\\\\n\u00e9"} 0.5',
        'b{key="",x="y"} 1',
    ]


def test_other_pages_are_not_there(endpoint: MetricsEndpoint) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked(endpoint.port, "/")


def test_slow_clients_are_ended_and_many_are_turned_away(
    endpoint: MetricsEndpoint, shown: list[Metric], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever sends a byte now and then does not hold a thread, and whoever goes away leaves nothing in the log."""
    monkeypatch.setattr(metrics_endpoint, "REQUEST_LIMIT_S", 1.0)
    shown.extend(Metric("a", {"n": "x" * 1_000 + str(n)}, n) for n in range(5_000))
    threads_before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", endpoint.port)) for _ in range(3 * REQUESTS_MAX)]
    started_s = time.monotonic()
    while time.monotonic() - started_s < 0.5:
        for connection in slow:
            with suppress(OSError):
                connection.send(b"G")
        time.sleep(0.05)
    assert threading.active_count() - threads_before <= 2 * REQUESTS_MAX, "a thread and its limit for each"
    until_s = time.monotonic() + 60
    while threading.active_count() > threads_before:
        assert time.monotonic() < until_s
        for connection in slow:
            with suppress(OSError):
                connection.send(b"G")
        time.sleep(0.05)
    for connection in slow:
        connection.close()
    gone = socket.create_connection(("127.0.0.1", endpoint.port))
    gone.send(b"GET /metrics HTTP/1.0\r\n\r\n")
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()  # with a reset
    assert len(asked(endpoint.port)[1]) > 5_000_000
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_refused_and_a_closed_one_is_free(endpoint: MetricsEndpoint) -> None:
    with pytest.raises(EnvironmentFault, match="metrics_port"):
        MetricsEndpoint("127.0.0.1", endpoint.port, list)
    with pytest.raises(EnvironmentFault, match="metrics_host"):
        MetricsEndpoint("no-such-host.invalid", 0, list)
    endpoint.close()
    MetricsEndpoint("127.0.0.1", endpoint.port, list).close()
    assert not [t for t in threading.enumerate() if t.name == "penstock-metrics"]


def test_it_is_off_unless_asked_for() -> None:
    assert WorkerSettings(application_id="a").metrics_port == 0
    given = load_settings(env={"PENSTOCK_APPLICATION_ID": "a", "PENSTOCK_METRICS_PORT": "9400"})
    assert (given.metrics_host, given.metrics_port) == ("127.0.0.1", 9400)
    with pytest.raises(SettingsError, match="metrics_port=70000"):
        WorkerSettings(application_id="a", metrics_port=70_000)


def test_one_port_is_not_for_several_processes() -> None:
    parser = argparse.ArgumentParser()
    worker.register(parser.add_subparsers())
    command = "worker penstock.topologies.examples.word_count:build --application-id a --bootstrap-server 127.0.0.1:1"
    args = parser.parse_args([*command.split(), "--processes", "2", "--metrics-port", "9400"])
    with pytest.raises(SettingsError, match="metrics_port=9400 serves one process, but there are --processes 2"):
        worker.run(args)
