"""Trending keywords: the three keywords that were mentioned most in each minute.

A very common keyword would overload one task. So mentions are first counted in shards, by keyword and part of the
users; then the shards' counts are added up; then the top three are selected. Each step emits when the minute has
closed, and the next one closes after it.
"""

from __future__ import annotations

import msgspec

from penstock.topologies.aggregators import top_k
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, key, struct, value, window_start
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import tumbling

SHARDS = 16
BEST = 3
MINUTE = tumbling("1m", grace=0)


class Mention(msgspec.Struct, frozen=True, gc=False):
    """A user of some shard names a keyword."""

    keyword: str
    shard: int


class Trend(msgspec.Struct, frozen=True, gc=False):
    """How often a keyword was mentioned."""

    keyword: str
    count: int


def mentions(user: int, post: str) -> list[Mention]:
    """The words of the post that begin with ``#``."""
    return [Mention(word[1:].lower(), user % SHARDS) for word in post.split() if word.startswith("#")]


def build(source: str = "posts", output: str = "trending") -> Topology:
    """Posts are text under the user (a long). For each minute, the result is the list of the keywords and their
    counts, most mentioned first, then alphabetical; its key is the minute."""
    builder = StreamsBuilder("trending-keywords", key=int, value=str)
    posts = builder.stream(source, watermark=bounded_out_of_orderness("5s"))
    named = posts.flat_map_values_with_key(mentions, value=Mention)

    by_shard = named.group_by(struct(keyword=col("keyword"), shard=col("shard"))).windowed_by(MINUTE)
    shards = by_shard.count(name="shards", emission="on_close").to_stream()

    by_keyword = shards.group_by(key()["key"]["keyword"]).windowed_by(MINUTE)
    totals = by_keyword.aggregate(value().sum(), name="totals", emission="on_close").to_stream()

    counted = totals.select(keyword=key()["key"], count=value(), minute=window_start())
    by_minute = counted.group_by(col("minute")).windowed_by(MINUTE)
    best = by_minute.aggregate(top_k(BEST, by="count", value=Trend), name="best", emission="on_close")
    best.to_stream(lambda window, _: window.key, key=int).to(output)
    return builder.build()
