"""Counts per key."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import keyed_count
from penstock.topologies.graph.topology import Topology

CLICKS = [
    Record("a", b"\xff\x00"),
    Record("b", b""),
    Record("a", b"x"),
    Record(None, b"x"),
    Record("b", None),
]


def test_counts_go_to_the_store(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Any bytes count, empty ones too; records without key or value do not."""
    driver = drive(keyed_count.build())
    driver.pipe_all("clicks", CLICKS)
    assert list(driver.store("counts").all()) == [("a", 2), ("b", 1)]


def test_counts_go_to_a_topic_that_is_named(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """As longs, one for every update."""
    driver = drive(keyed_count.build("in", "out"))
    driver.pipe_all("in", CLICKS)
    assert [(r.key, r.value) for r in driver.read("out")] == [("a", 1), ("b", 1), ("a", 2)]
