"""Four moving means per key of the topic ``measures`` (ints): of the last 10 elements, of the last second, of each 5
seconds, and of the last 5 seconds every second."""

from __future__ import annotations

from penstock.topologies.aggregators import mean
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import count_sliding, evicting, hopping, policies, tumbling


def build(source: str = "measures", output: str = "means") -> Topology:
    """The first two emit at every element, under its key, to ``<output>-of-10`` and ``<output>-of-1s``; the others when a
    window closes, under windowed keys, to ``<output>-per-5s`` and ``<output>-of-5s``."""
    builder = StreamsBuilder("moving-means", value=int)
    measures = builder.stream(source).group_by_key()
    last_second = evicting(policies.time("1s"), trigger=policies.count(1))
    measures.windowed_by(count_sliding(10)).aggregate(mean(), name="of-10").to(f"{output}-of-10")
    measures.windowed_by(last_second).aggregate(mean(), name="of-1s").to(f"{output}-of-1s")

    per_5s, of_5s = tumbling("5s", grace=0), hopping("5s", "1s", grace=0)
    measures.windowed_by(per_5s).aggregate(mean(), name="per-5s", emission="on_close").to(f"{output}-per-5s")
    exact = mean(number=int)  # sums of ints: a window is the sum of its parts
    measures.windowed_by(of_5s).aggregate(exact, name="of-5s", emission="on_close").to(f"{output}-of-5s")
    return builder.build()
