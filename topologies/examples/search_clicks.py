"""Searches joined with the clicks on their results within ten minutes.

Both topics are keyed by the search. A search without a click is reported when no click can arrive any more.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import left, right, struct
from penstock.topologies.graph.topology import Topology


class Search(msgspec.Struct, frozen=True, gc=False):
    """A user searches."""

    user: str
    query: str
    at_ms: int


class Click(msgspec.Struct, frozen=True, gc=False):
    """A click on a result of a search."""

    url: str
    position: int
    at_ms: int


class SearchOutcome(msgspec.Struct, frozen=True, gc=False):
    """A search with one of its clicks; if there was none, the fields of the click are null."""

    user: str
    query: str
    url: str | None
    position: int | None
    hesitation_ms: int | None


def build(searches: str = "searches", clicks: str = "clicks", output: str = "search-outcomes") -> Topology:
    """Both inputs must have the same number of partitions; records may be a minute late."""
    builder = StreamsBuilder("search-clicks")
    made, clicked = builder.stream(searches, value=Search), builder.stream(clicks, value=Click)
    outcome = struct(
        user=left("user"),
        query=left("query"),
        url=right("url"),
        position=right("position"),
        hesitation_ms=right("at_ms") - left("at_ms"),
    )
    made.left_join(clicked, outcome, before=0, after="10m", grace="1m", value=SearchOutcome).to(output)
    return builder.build()
