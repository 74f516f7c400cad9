"""A threshold filter, written per record and per batch, with the same answer.

The batch function gets whole columns at once, which is faster if the loop dominates the cost. It must not depend on
where batches are cut; ``where`` keeps times, headers and order with the records that stay.
"""

from __future__ import annotations

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch


def build(
    source: str = "readings", output: str = "alarms", *, limit: float = 100.0, per_batch: bool = False
) -> Topology:
    """The readings (JSON objects with a ``value``) above ``limit``."""

    def is_above(reading: dict[str, float]) -> bool:
        return reading["value"] > limit

    def those_above(batch: Batch) -> Batch:
        return batch.where([reading["value"] > limit for reading in batch.values])

    builder = StreamsBuilder("threshold")
    readings = builder.stream(source)
    if per_batch:
        alarms = readings.map_batch(those_above, keeps_key=True)
    else:
        alarms = readings.filter_values(is_above)
    alarms.to(output)
    return builder.build()
