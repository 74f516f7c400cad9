"""Celsius to Fahrenheit: the smallest topology.

``celsius`` and ``fahrenheit`` hold one number per record, as text (which is JSON), so that lines from a
console work.
"""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


def fahrenheit(celsius: float) -> float:
    """Convert degrees Celsius to degrees Fahrenheit."""
    return celsius * 9 / 5 + 32


def build(source: str = "celsius", output: str = "fahrenheit") -> Topology:
    """Every number of ``source``, converted."""
    builder = StreamsBuilder("celsius", value="json")
    builder.stream(source).map_values(fahrenheit).to(output)
    return builder.build()
