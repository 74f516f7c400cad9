"""The running mean per key."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import running_mean
from penstock.topologies.graph.topology import Topology


def test_each_number_moves_the_mean_of_its_key(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Keys do not mix; the time of a mean is the latest of its numbers."""
    driver = drive(running_mean.build())
    numbers = [("a", 1, 10), ("b", 10, 11), ("a", 2, 9), ("a", 6, 12), ("b", 0.5, 13)]
    driver.pipe_all("avg", [Record(k, v, t) for k, v, t in numbers])
    assert driver.read("avg-means") == [
        Record("a", 1.0, 10),
        Record("b", 10.0, 11),
        Record("a", 1.5, 10),
        Record("a", 3.0, 12),
        Record("b", 5.25, 13),
    ]
    assert driver.store("sums").get("a") == running_mean.Sum(3, 9.0)


def test_numbers_without_a_key_count_together(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Lines of a console have no key."""
    driver = drive(running_mean.build())
    driver.pipe_raw({"avg": [Record(None, b"3"), Record(None, b"4.5"), Record(None, b"1.5")]})
    assert [(r.key, r.value) for r in driver.read_raw("avg-means")] == [
        (b"all", b"3.0"),
        (b"all", b"3.75"),
        (b"all", b"3.0"),
    ]
