"""Clicks enriched with the user's profile as it is when the click is processed: a stream–table join of JSON objects."""

from __future__ import annotations

from typing import Any

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


def with_profile(click: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    """The click with its user's profile in it."""
    return {**click, "profile": user}


def build(clicks: str = "clicks", users: str = "users", output: str = "enriched-clicks") -> Topology:
    """Both topics are keyed by user and must have equally many partitions. Clicks of unknown users are
    dropped."""
    builder = StreamsBuilder("enrich", key=str, value=dict)
    builder.stream(clicks).join(builder.table(users, name="users"), with_profile).to(output)
    return builder.build()
