"""The heatmap of a mobile network."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import telco_heatmap
from penstock.topologies.examples.telco_heatmap import CellMeasurement, Subscriber
from penstock.topologies.graph.topology import Topology


def test_premium_users_as_known_when_they_measure(drive: Callable[[Topology], TopologyTestDriver]) -> None:
    """bob becomes a premium user in the second minute; cid is not known."""
    driver = drive(telco_heatmap.build())
    driver.pipe_sequence([("subscribers", Record("ann", Subscriber("premium"), 0))])
    driver.pipe_sequence([("subscribers", Record("bob", Subscriber("basic"), 0))])
    measured = [
        Record("ann", CellMeasurement("a", 1_000_000, 500), 1_000),
        Record("bob", CellMeasurement("a", 1, 1_000), 2_000),
        Record("cid", CellMeasurement("a", 1, 1_000), 3_000),
        Record("ann", CellMeasurement("b", 300, 1), 50_000),
        Record("ann", CellMeasurement("a", 2_000_000, 2_500), 45_000),
    ]
    driver.pipe_all("measurements", measured)
    driver.pipe("subscribers", "bob", Subscriber("premium"), 60_000)
    driver.pipe("measurements", "bob", CellMeasurement("b", 10_000, 100), 61_000)
    driver.pipe("measurements", "cid", CellMeasurement("b", 1, 1), 200_000)
    minute, next_minute = (0, 60_000), (60_000, 120_000)
    assert [(r.key, r.value) for r in driver.read("heatmap")] == [
        (Windowed("a", *minute), {"downloads": 2, "speed": 1_000_000}),
        (Windowed("b", *minute), {"downloads": 1, "speed": 300_000}),
        (Windowed("b", *next_minute), {"downloads": 1, "speed": 100_000}),
    ]
