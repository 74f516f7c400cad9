"""A running mean per key over the topic ``avg``, which holds one number per record, as text.

The state is the count and the sum, so that the mean of any number of records takes two numbers to keep.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


class Sum(msgspec.Struct, frozen=True, gc=False):
    """The parts of a mean."""

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of at least one number."""
        return self.total / self.count


def add(key: str, number: float, sum_so_far: Sum) -> Sum:
    """Add one number to the sum."""
    return Sum(sum_so_far.count + 1, sum_so_far.total + number)


def build(source: str = "avg", output: str = "avg-means") -> Topology:
    """Each key's mean so far, as text. Numbers without a key, such as lines from a console, count together under
    ``all``."""
    builder = StreamsBuilder("running-mean", value="json")
    numbers = builder.stream(source).group_by(lambda key, _: "all" if key is None else key)
    sums = numbers.aggregate(Sum, add, value=Sum, name="sums")
    sums.to_stream().map_values(lambda s: s.mean, value="json").to(output)
    return builder.build()
