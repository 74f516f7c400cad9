"""A heatmap of a mobile network: download speeds of premium users, by cell and minute.

Measurements are joined with the table of subscribers, which is large and changes slowly. It is partitioned like the
measurements, so each task holds its part and no row is sent anywhere. A measurement is joined with the subscriber's
contract as it is when the measurement is processed.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, count, left, right, struct
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import tumbling


class CellMeasurement(msgspec.Struct, frozen=True, gc=False):
    """A download by the subscriber that is the record's key."""

    cell: str
    bytes: int
    millis: int


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of a subscriber."""

    contract: str


def build(measurements: str = "measurements", subscribers: str = "subscribers", output: str = "heatmap") -> Topology:
    """For each cell and minute: the number of downloads, and their overall speed in bytes per second. Both inputs are
    keyed by subscriber and must have the same number of partitions. Measurements may be 10 s late."""
    builder = StreamsBuilder("telco-heatmap")
    known = builder.table(subscribers, value=Subscriber)
    measured = builder.stream(measurements, value=CellMeasurement, watermark=bounded_out_of_orderness("10s"))
    download = struct(cell=left("cell"), bytes=left("bytes"), millis=left("millis"), contract=right("contract"))
    premium = measured.join(known, download).filter_values(col("contract") == "premium")
    minutes = premium.group_by(col("cell")).windowed_by(tumbling("1m", grace=0))
    speed = col("bytes").sum() * 1000 // col("millis").sum()
    minutes.agg(downloads=count(), speed=speed, emission="on_close", name="minutes").to(output)
    return builder.build()
