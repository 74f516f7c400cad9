"""Count the records of each key. Values are not decoded: they stay bytes."""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission


def build(source: str = "clicks", output: str | None = None, *, emission: Emission = "every_update") -> Topology:
    """Counts in the store ``counts`` and its changelog; also as longs in ``output``, if it is given."""
    builder = StreamsBuilder("keyed-count", key=str, value=bytes, emission=emission)
    counts = builder.stream(source).group_by_key().count(name="counts")
    if output is not None:
        counts.to(output)
    return builder.build()
