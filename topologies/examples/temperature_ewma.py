"""A smoothed temperature per sensor: the exponentially weighted moving average of its readings in Fahrenheit.

new = alpha * F + (1 - alpha) * last        (the first reading is the first average)
"""

from __future__ import annotations

from penstock.topologies.aggregators import ewma
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


def build(source: str = "temperatures", output: str = "smoothed", *, alpha: float = 0.2) -> Topology:
    """Readings are doubles under their sensor's name, and so are the averages; every reading gives a new one."""
    builder = StreamsBuilder("temperature-ewma", value=float)
    builder.stream(source).group_by_key().aggregate(ewma(alpha), name="averages").to(output)
    return builder.build()
