"""A threshold per record and per batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import threshold
from penstock.topologies.graph.topology import Topology

READINGS = [
    Record("boiler", {"value": 99.0}, 1),
    Record("boiler", {"value": 100.5}, 2, (("unit", b"C"),)),
    Record(None, {"value": 250}, 3),
    Record("pipe", {"value": 100.0}, 4),
    Record("pipe", {"value": 101.0}, 4),
]


@pytest.mark.parametrize("per_batch", [False, True], ids=["per record", "per batch"])
def test_only_values_above_the_limit_pass(drive: Callable[[Topology], TopologyTestDriver], per_batch: bool) -> None:
    """Both ways give the same records, with their times and headers, in their order; the limit itself is not
    above."""
    driver = drive(threshold.build(limit=100.0, per_batch=per_batch))
    driver.pipe_all("readings", READINGS)
    assert driver.read("alarms") == [READINGS[1], READINGS[2], READINGS[4]]
