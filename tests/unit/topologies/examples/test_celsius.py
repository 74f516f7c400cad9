"""Celsius to Fahrenheit."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import celsius
from penstock.topologies.graph.topology import Topology


def test_known_temperatures(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """Freezing, boiling, body temperature and where the scales meet, with key and time kept."""
    driver = drive(celsius.build())
    driver.pipe_all("celsius", [Record("a", 0, 1), Record(None, 100, 2), Record("b", 37.0, 3), Record("a", -40, 4)])
    assert driver.read("fahrenheit") == [
        Record("a", 32.0, 1),
        Record(None, 212.0, 2),
        Record("b", 98.6, 3),
        Record("a", -40.0, 4),
    ]


def test_lines_of_a_console(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """A number as text, without a key, is what a console producer writes."""
    driver = drive(celsius.build("in", "out"))
    driver.pipe_raw({"in": [Record(None, b"21.5", 5)]})
    assert driver.read_raw("out") == [Record(None, b"70.7", 5)]
