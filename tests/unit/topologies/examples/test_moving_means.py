"""The four moving means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import moving_means
from penstock.topologies.graph.topology import Topology


def windows(driver: TopologyTestDriver, topic: str) -> list[Any]:
    """Start and end in seconds, and the mean."""
    return [(r.key.start_ms // 1000, r.key.end_ms // 1000, r.value) for r in driver.read(topic)]


def test_moving_means(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """One element each 400 ms: 0, 1, 2, …"""
    driver = drive(moving_means.build())
    driver.pipe_all("measures", [Record("a", n, n * 400) for n in range(26)])
    of_10 = [r.value for r in driver.read("means-of-10")]
    assert of_10[:11] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.5]
    assert of_10[-1] == sum(range(16, 26)) / 10
    # the last second holds three elements, as the fourth lies 1.2 s back
    assert [r.value for r in driver.read("means-of-1s")] == [0.0, 0.5, *(float(n - 1) for n in range(2, 26))]
    assert windows(driver, "means-per-5s") == [(0, 5, 6.0), (5, 10, 18.5)]
    assert windows(driver, "means-of-5s") == [
        (0, 5, 6.0),
        (1, 6, 8.5),
        (2, 7, 11.0),
        (3, 8, 13.5),
        (4, 9, 16.0),
        (5, 10, 18.5),
    ]


def test_keys_do_not_mix_and_late_elements_count_where_they_still_can(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    """The element of 100 ms comes when all its windows have closed."""
    driver = drive(moving_means.build())
    driver.pipe_all("measures", [Record("a", 4, 0), Record("b", 10, 5_500), Record("a", 8, 100)])
    assert [(r.key, r.value) for r in driver.read("means-of-10")] == [("a", 4.0), ("b", 10.0), ("a", 6.0)]
    assert [(r.key, r.value) for r in driver.read("means-of-1s")] == [("a", 4.0), ("b", 10.0)]
    assert windows(driver, "means-per-5s") == [(0, 5, 4.0)]
    assert windows(driver, "means-of-5s") == [(0, 5, 4.0)]
    assert driver.dropped_records == {"of-1s.late": 1, "per-5s.late": 1, "of-5s.late": 1}
