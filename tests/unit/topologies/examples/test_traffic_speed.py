"""Traffic speed per cell of the road map."""

from __future__ import annotations

from collections.abc import Callable

from penstock.state.log import Record, Windowed
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import traffic_speed
from penstock.topologies.examples.traffic_speed import VehiclePosition
from penstock.topologies.graph.topology import Topology

MINUTE_MS = 60_000
TUNNEL, BRIDGE = VehiclePosition(48.137, 11.575, 0), VehiclePosition(48.13, -0.001, 0)


def at(where: VehiclePosition, speed: float, minutes: float) -> Record:
    """A phone's record."""
    return Record("phone", VehiclePosition(where.latitude, where.longitude, speed), int(minutes * MINUTE_MS))


def test_late_phones_correct_the_result_and_those_too_late_are_set_aside(
    drive: Callable[[Topology], TopologyTestDriver],
) -> None:
    too_late = at(TUNNEL, 1.0, 4)
    records = [
        at(TUNNEL, 50.0, 1),
        at(BRIDGE, 80.0, 2),
        at(TUNNEL, 40.0, 4.9),
        at(TUNNEL, 60.0, 5.2),
        at(TUNNEL, 60.0, 4.8),  # 24 s behind the newest: in time
        at(BRIDGE, 90.0, 6),  # the first five minutes are over
        at(TUNNEL, 10.0, 3),  # late: corrects them
        at(BRIDGE, 70.0, 66),  # their hour is over
        too_late,
    ]
    driver = drive(traffic_speed.build())
    driver.pipe_all("positions", records)
    first, second = (0, 5 * MINUTE_MS), (5 * MINUTE_MS, 10 * MINUTE_MS)
    assert [(r.key, r.value) for r in driver.read("cell-speeds")] == [
        (Windowed("4813/-1", *first), {"cars": 1, "speed": 80.0}),
        (Windowed("4813/1157", *first), {"cars": 3, "speed": 50.0}),
        (Windowed("4813/1157", *first), {"cars": 4, "speed": 40.0}),
        (Windowed("4813/-1", *second), {"cars": 1, "speed": 90.0}),
        (Windowed("4813/1157", *second), {"cars": 1, "speed": 60.0}),
    ]
    assert [r.value for r in driver.read("late-positions")] == [too_late.value]
