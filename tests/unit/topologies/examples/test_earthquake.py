"""Earthquakes from phones."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import earthquake
from penstock.topologies.examples.earthquake import Reading
from penstock.topologies.graph.topology import Topology


def shaking(phone: str, cell: str, at_ms: int, *accelerations: float) -> list[Record]:
    """Readings half a second apart."""
    return [Record(phone, Reading(phone, cell, a), at_ms + 500 * i) for i, a in enumerate(accelerations)]


def test_a_cell_shakes_when_enough_of_its_phones_do(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    records = [
        # four phones of one cell shake, one of them twice
        *shaking("p1", "north", 10_000, 0.1, 3.0, 3.1, 2.6, 2.7, 2.8, 2.9),
        *shaking("p2", "north", 10_200, 3.0, 3.0, 6.5),
        *shaking("p3", "north", 11_000, 4.0, 4.0, 4.0),
        *shaking("p4", "north", 12_000, 2.6, 2.6, 2.6),
        # five of another, but not three readings in a row, or too slowly
        *[r for i in range(4) for r in shaking(f"q{i}", "south", 10_000, 3.0, 3.0, 0.2, 3.0, 3.0)],
        *[Record("q9", Reading("q9", "south", 9.0), t) for t in (10_000, 11_000, 12_000)],
        # three of a third
        *[r for i in range(3) for r in shaking(f"r{i}", "west", 10_000, 9.0, 9.0, 9.0)],
    ]
    records.sort(key=lambda r: r.timestamp_ms)
    driver = drive(earthquake.build())
    driver.pipe_all("readings", [*records, *shaking("p1", "north", 60_000, 0.0)])
    assert [(r.key, r.value) for r in driver.read("earthquakes")] == [
        ("north", {"phones": 4, "acceleration": 6.5, "since": 10_000})
    ]
