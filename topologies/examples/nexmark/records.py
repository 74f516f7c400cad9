"""Queries of Nexmark that look at one bid at a time."""

from __future__ import annotations

from decimal import Decimal

from penstock.topologies.examples.nexmark.streams import Nexmark
from penstock.topologies.expressions.functions import coalesce, col, when
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import tumbling
from penstock.topologies.windows.durations import Duration

EUROS = Decimal("0.908")
"""Euros per dollar."""


def q0() -> Topology:
    """Pass-through: every bid."""
    nexmark = Nexmark("q0")
    fields = (col(name) for name in ("auction", "bidder", "price", "dateTime", "extra"))
    return nexmark.topology(nexmark.bids.select(*fields))


def q1(euros: Decimal = EUROS) -> Topology:
    """Currency conversion: every bid with its price in euros, a decimal."""
    nexmark = Nexmark("q1")
    price = (col("price") * euros).alias("price")
    bids = nexmark.bids.select(col("auction"), col("bidder"), price, col("dateTime"), col("extra"))
    return nexmark.topology(bids)


def q2(skip: int = 123) -> Topology:
    """Selection: the bids for every ``skip``-th auction."""
    nexmark = Nexmark("q2")
    chosen = nexmark.bids.filter_values(col("auction") % skip == 0)
    return nexmark.topology(chosen.select(col("auction"), col("price")))


def q10(size: Duration = "1m") -> Topology:
    """Log to partitioned files: every bid under the folder of its day and minute, ``2015-07-15/00:01``. One minute
    after the end of a minute, in event time, the topic ``q10-success`` reports that its folder is complete, with the
    number of its bids."""
    nexmark = Nexmark("q10")
    bids = nexmark.bids.select_key(col("dateTime").format_time("%Y-%m-%d/%H:%M"))
    minutes = bids.group_by_key().windowed_by(tumbling(size, grace="1m")).count(emission="on_close")
    minutes.to_stream(lambda window, count: window.key, key=str).to("q10-success")
    return nexmark.topology(bids)


def q14(euros: Decimal = EUROS, low: int = 1_000_000, high: int = 50_000_000) -> Topology:
    """Calculation: bids of a middling price in euros, with the time of day and the number of letters ``c``."""
    nexmark = Nexmark("q14")
    price = col("price") * euros
    hour = col("dateTime").hour()
    night = (hour <= 6) | (hour >= 20)
    chosen = nexmark.bids.filter_values((price > low) & (price < high))
    bids = chosen.select(
        col("auction"),
        col("bidder"),
        col("dateTime"),
        col("extra"),
        price=price,
        bidTimeType=when(hour.between(8, 18)).then("dayTime").when(night).then("nightTime").otherwise("otherTime"),
        c_counts=col("extra").length() - col("extra").replace("c", "").length(),
    )
    return nexmark.topology(bids)


def q21() -> Topology:
    """Channel id: by the channel's name, else from the url; bids with neither are dropped."""
    nexmark = Nexmark("q21")
    name = col("channel").lower()
    known = when(name == "apple").then("0").when(name == "google").then("1")
    known = known.when(name == "facebook").then("2").when(name == "baidu").then("3").otherwise(None)
    in_url = col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2)
    channel = coalesce(known, in_url).alias("channel_id")
    bids = nexmark.bids.select(col("auction"), col("bidder"), col("price"), col("channel"), channel)
    return nexmark.topology(bids.filter_values(col("channel_id").is_not_null()))


def q22() -> Topology:
    """Folders of the url."""
    nexmark = Nexmark("q22")
    folders = {f"dir{i}": col("url").split_part("/", 2 + i) for i in (1, 2, 3)}
    bids = nexmark.bids.select(col("auction"), col("bidder"), col("price"), col("channel"), **folders)
    return nexmark.topology(bids)
