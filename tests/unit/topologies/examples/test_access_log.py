"""The access log in micro-batches: golden answers, worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import access_log as pipelines
from penstock.topologies.examples.access_lines import access_log
from penstock.topologies.graph.topology import Topology

Drive = Callable[[Topology], TopologyTestDriver]
AT_MS = 1_444_000_000_000  # 4 October 2015, 23:06:40 UTC
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def lines(*requests: tuple[int, str, int]) -> list[Record]:
    """Log lines of (second, address, bytes), without keys."""
    out = []
    for second, address, size in requests:
        minute, at = divmod(second + 40, 60)
        time = f"04/Oct/2015:{23}:{6 + minute:02}:{at:02} +0000"
        line = f'{address} - - [{time}] "GET /index.html HTTP/1.1" 200 {size} "-" "curl/7.88"'
        out.append(Record(None, access_log().deserialize(line.encode()), 0))
    return out


LOG = lines(
    (0, A, 100), (0, B, 50), (0, A, 10),
    (1, B, 5),
    # nobody in second 2
    (3, C, 1), (3, C, 1), (3, A, 8),
    (9, A, 2), (9, B, 2), (9, C, 2), (9, C, 2),
    (20, A, 0),
)  # fmt: skip


def seconds(rows: list[Record]) -> list[tuple[int, Any, Any]]:
    """The second whose last millisecond a record carries, its key and its value."""
    assert all((r.timestamp_ms - AT_MS + 1) % 1_000 == 0 for r in rows)
    return [((r.timestamp_ms - AT_MS) // 1_000, r.key, r.value) for r in rows]


HITS = [(0, A, 2), (0, B, 1), (1, B, 1), (3, A, 1), (3, C, 2), (9, A, 1), (9, B, 1), (9, C, 2)]


def test_hits_per_ip(drive: Drive) -> None:
    driver = drive(pipelines.hits_per_ip())
    driver.pipe_all("access-log", LOG)
    assert seconds(driver.read("hits")) == HITS


def test_hits_sorted_by_count(drive: Drive) -> None:
    driver = drive(pipelines.hits_by_count())
    driver.pipe_all("access-log", LOG)
    expected = [(0, A, 2), (0, B, 1), (1, B, 1), (3, C, 2), (3, A, 1), (9, C, 2), (9, A, 1), (9, B, 1)]
    assert seconds(driver.read("hits-by-count")) == expected


def test_hits_joined_with_a_second_log(drive: Drive) -> None:
    driver = drive(pipelines.hits_of_both())
    driver.pipe_all("access-log", LOG)
    driver.pipe_all("other-log", lines((0, A, 1), (1, A, 1), (3, C, 1), (3, C, 1), (3, C, 1), (9, B, 1), (30, A, 1)))
    expected = [(0, A, {"here": 2, "there": 1}), (3, C, {"here": 2, "there": 3}), (9, B, {"here": 1, "there": 1})]
    assert seconds(driver.read("hits-of-both")) == expected


def test_a_window_of_three_seconds_every_second(drive: Drive) -> None:
    driver = drive(pipelines.hits_in_window())
    driver.pipe_all("access-log", LOG)
    counts = {0: 3, 1: 4, 2: 4, 3: 4, 4: 3, 5: 3, 9: 4, 10: 4, 11: 4}
    expected = [(s, AT_MS + (s - 2) * 1_000, n) for s, n in counts.items()]
    assert seconds(driver.read("hits-in-window")) == expected


@pytest.mark.parametrize("inverse", [False, True])
def test_five_seconds_with_and_without_the_inverse(drive: Drive, inverse: bool) -> None:
    driver = drive(pipelines.hits_of_five_seconds(inverse=inverse))
    driver.pipe_all("access-log", LOG)
    whole = {
        0: {A: 2, B: 1}, 1: {A: 2, B: 2}, 2: {A: 2, B: 2},
        3: {A: 3, B: 2, C: 2}, 4: {A: 3, B: 2, C: 2}, 5: {A: 1, B: 1, C: 2},
        6: {A: 1, C: 2}, 7: {A: 1, C: 2},
        9: {A: 1, B: 1, C: 2}, 10: {A: 1, B: 1, C: 2}, 11: {A: 1, B: 1, C: 2},
        12: {A: 1, B: 1, C: 2}, 13: {A: 1, B: 1, C: 2},
    }  # fmt: skip
    assert seconds(driver.read("hits-of-five")) == [(s, k, n) for s, of in whole.items() for k, n in of.items()]


@pytest.mark.parametrize("inverse", [False, True])
def test_bytes_of_five_seconds_with_and_without_the_inverse(drive: Drive, inverse: bool) -> None:
    driver = drive(pipelines.bytes_of_five_seconds(inverse=inverse))
    driver.pipe_all("access-log", LOG)
    sizes = {0: 160, 1: 165, 2: 165, 3: 175, 4: 175, 5: 15, 6: 10, 7: 10, 9: 8, 10: 8, 11: 8, 12: 8, 13: 8}
    expected = [(s, AT_MS + (s - 4) * 1_000, n) for s, n in sizes.items()]
    assert seconds(driver.read("bytes-of-five")) == expected


def test_totals_come_every_second_for_every_address(drive: Drive) -> None:
    driver = drive(pipelines.total_hits())
    driver.pipe_all("access-log", LOG)
    totals: dict[int, dict[str, int]] = {0: {A: 2, B: 1}, 1: {A: 2, B: 2}, 2: {A: 2, B: 2}}
    totals |= {s: {A: 3, B: 2, C: 2} for s in range(3, 9)}
    totals |= {s: {A: 4, B: 3, C: 4} for s in range(9, 20)}
    assert seconds(driver.read("total-hits")) == [(s, k, n) for s, of in totals.items() for k, n in of.items()]
