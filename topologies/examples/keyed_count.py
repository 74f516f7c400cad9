"""How many records each key has had. Values are not read at all: they stay the bytes that they are."""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission


def build(source: str = "clicks", output: str | None = None, *, emission: Emission = "every_update") -> Topology:
    """Counts in the store ``counts`` and its changelog; as longs in ``output`` too if it is named."""
    builder = StreamsBuilder("keyed-count", key=str, value=bytes, emission=emission)
    counts = builder.stream(source).group_by_key().count(name="counts")
    if output is not None:
        counts.to(output)
    return builder.build()
