"""The stateful workloads in expressions, which Penstock may run in columns; the same answers as with the functions of
``penstock.topologies.examples``."""

from __future__ import annotations

import msgspec

from penstock.state.log import Windowed
from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples.ysb import Ad, AdEvent
from penstock.topologies.expressions.functions import col, left, lit, right, struct, value
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import tumbling


class Click(msgspec.Struct, frozen=True, gc=False):
    """A page view."""

    user: str
    url: str
    ts: int


class User(msgspec.Struct, frozen=True, gc=False):
    """A profile."""

    name: str
    age: int
    city: str
    tier: str
    since: str


def window_name(window: Windowed, count: int) -> str:
    """``<campaign>@<window start in ms>``."""
    return f"{window.key}@{window.start_ms}"


def ysb(events: str, ads: str, out: str, window_ms: int, emission: Emission) -> Topology:
    """Views per campaign and window."""
    builder = StreamsBuilder("ysb", key=str, emission=emission)
    campaigns = builder.table(ads, value=Ad)
    views = builder.stream(events, value=AdEvent).filter_values(col("event_type") == "view")
    by_campaign = views.join(campaigns, right("campaign_id"), value=str).select_key(value(), key=str)
    grouped = by_campaign.map_values(lit(b""), value=bytes).group_by_key()
    counts = grouped.windowed_by(tumbling(window_ms, grace="1h")).count(name="windows")
    counts.to_stream(window_name, key=str).map_values(str, value=str).to(out)
    return builder.build()


def word_count(lines: str, out: str, emission: Emission) -> Topology:
    """Uses per word; splitting is a function, there is no expression for it."""
    builder = StreamsBuilder("word-count", value=str, emission=emission)
    counts = builder.stream(lines).flat_map_values(words, value=str).group_by(value(), key=str).count(name="counts")
    counts.to_stream().map_values(str, value=str).to(out)
    return builder.build()


def enrich(clicks: str, users: str, out: str) -> Topology:
    """Each click with its user's profile."""
    builder = StreamsBuilder("enrich", key=str)
    profiles = builder.table(users, value=User, name="users")
    both = struct(user=left("user"), url=left("url"), ts=left("ts"), profile=right())
    builder.stream(clicks, value=Click).join(profiles, both).to(out)
    return builder.build()
