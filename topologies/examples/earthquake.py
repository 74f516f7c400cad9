"""Earthquakes detected by phones. One shaking phone was dropped; a hundred that shake in one place at once mean that
the ground shakes.

A pattern per phone finds three strong readings in a row within two seconds. Windows per grid cell count the phones
that match.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, key, window_start
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.patterns.pattern import pattern
from penstock.topologies.patterns.skip import skip_past_last_event
from penstock.topologies.windows import tumbling

STRONG = 2.5
"""Metres per second squared, without gravity."""
PHONES = 4
"""From this number of phones on, the ground shakes."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """An acceleration measured by a phone (the record's key) in a cell of the map."""

    phone: str
    cell: str
    acceleration: float


STRONG_READING = pattern("strong").where(col("acceleration") > STRONG)
SHAKES = STRONG_READING.times(3).consecutive().within("2s").after_match(skip_past_last_event())


def strongest(events: dict[str, list[Any]]) -> Reading:
    """The strongest reading of a match."""
    return max(events["strong"], key=lambda reading: reading.acceleration)  # type: ignore[no-any-return]  # they are Readings


def build(source: str = "readings", output: str = "earthquakes") -> Topology:
    """For each cell and five seconds in which the ground shakes: the number of phones that report it, and the
    strength. Readings may be 3 s late."""
    builder = StreamsBuilder("earthquake", value=Reading)
    readings = builder.stream(source, watermark=bounded_out_of_orderness("3s"))
    shaking = readings.match(SHAKES, select=strongest, value=Reading).matches
    cells = shaking.group_by(col("cell")).windowed_by(tumbling("5s", grace=0))
    counted = cells.agg(
        phones=col("phone").count_distinct(), acceleration=col("acceleration").max(), emission="on_close"
    ).to_stream()
    quakes = counted.filter_values(col("phones") >= PHONES).with_columns(since=window_start())
    quakes.select_key(key()["key"]).to(output)
    return builder.build()
