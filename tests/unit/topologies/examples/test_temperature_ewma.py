"""The smoothed temperature, worked by hand."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import temperature_ewma
from penstock.topologies.graph.topology import Topology


def test_each_sensor_has_its_own_average(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """The first reading is the first average; each later one moves it by a quarter of the way."""
    driver = drive(temperature_ewma.build(alpha=0.25))
    readings = [("roof", 64.0), ("cellar", 50.0), ("roof", 72.0), ("roof", 56.0), ("cellar", 50.0), ("roof", 100.0)]
    driver.pipe_all("temperatures", [Record(sensor, f, t) for t, (sensor, f) in enumerate(readings)])
    assert driver.read("smoothed") == [
        Record("roof", 64.0, 0),
        Record("cellar", 50.0, 1),
        Record("roof", 66.0, 2),
        Record("roof", 63.5, 3),
        Record("cellar", 50.0, 4),
        Record("roof", 72.625, 5),
    ]
