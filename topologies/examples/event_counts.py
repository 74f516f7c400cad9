"""Running and hourly counts per type of event: one repartition by the type, two aggregations behind it."""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import tumbling


class CountedEvent(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of an event; others are skipped."""

    event_type: str


def build(source: str = "events", running: str = "event-counts", hourly: str = "event-counts-hourly") -> Topology:
    """``running``: the count so far for each type. ``hourly``: the count for each type and hour of event time
    (``Windowed`` keys), which accepts events up to a day late. Both are longs."""
    builder = StreamsBuilder("event-counts")
    by_type = builder.stream(source, value=CountedEvent).group_by(lambda _, event: event.event_type, key=str)
    by_type.count(name="running-counts").to(running)
    by_type.windowed_by(tumbling("1h", grace="1d")).count(name="hourly-counts").to(hourly)
    return builder.build()
