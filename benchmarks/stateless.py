"""Topologies that keep nothing: the events of the Yahoo benchmark passed on, filtered, projected, in expressions."""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology


class Event(msgspec.Struct, frozen=True, gc=False):
    """All fields, in the order of the topic's JSON."""

    user_id: str
    page_id: str
    ad_id: str
    ad_type: str
    event_type: str
    event_time: int
    ip_address: str


def pass_through(events: str, out: str) -> Topology:
    """Every event, its bytes untouched."""
    builder = StreamsBuilder("pass-through", key=bytes, value=bytes)
    builder.stream(events).to(out)
    return builder.build()


def filtered(events: str, out: str) -> Topology:
    """The views, whole."""
    builder = StreamsBuilder("filter", key=str, value=Event)
    builder.stream(events).filter_values(col("event_type") == "view").to(out)
    return builder.build()


def projected(events: str, out: str) -> Topology:
    """The ad and the time of every event, as an object."""
    builder = StreamsBuilder("project", key=str, value=Event)
    builder.stream(events).select(col("ad_id"), col("event_time")).to(out)
    return builder.build()
