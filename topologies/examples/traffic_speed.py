"""Traffic: the mean speed in each cell of the road map over five minutes, from phones in cars.

A result is written when the watermark has passed its five minutes. Phones in tunnels send later: for an hour each
such position corrects the result, after that it goes to a topic of late positions.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.aggregators import agg, count, mean
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, concat
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.triggers import after_count, after_watermark
from penstock.topologies.windows import tumbling


class VehiclePosition(msgspec.Struct, frozen=True, gc=False):
    """A phone's position, in degrees, and its speed, in km/h."""

    latitude: float
    longitude: float
    speed: float


def hundredths(column: str) -> Expression:
    """A coordinate as a whole number of hundredths of a degree, rounded down, as text."""
    return (col(column) * 100).floor().cast("int64").cast("string")


CELL = concat(hundredths("latitude"), "/", hundredths("longitude"))


def build(source: str = "positions", output: str = "cell-speeds", late: str = "late-positions") -> Topology:
    """Under cell and window: ``{"cars": …, "speed": …}``. Positions may be 30 s late for the first result."""
    builder = StreamsBuilder("traffic-speed", value=VehiclePosition)
    positions = builder.stream(source, watermark=bounded_out_of_orderness("30s"))
    windows = positions.group_by(CELL).windowed_by(tumbling("5m", grace="1h"))
    panes = windows.triggered(after_watermark(late=after_count(1)), accumulation="accumulating")
    speeds = panes.aggregate(agg(cars=count(), speed=mean("speed")), name="speeds")
    speeds.to(output)
    speeds.late.to(late)
    return builder.build()
