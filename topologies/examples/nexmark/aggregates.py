"""Queries of Nexmark that keep a result per key up to date: every change of a result is written, or with the emission
``per_commit`` the last one of each commit.

Daily results are kept for the day: windows of a day, in UTC, accept its events until 4 s after its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

from penstock.state.serdes.change_serde import Change
from penstock.topologies.aggregators import last, top_k
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.examples.nexmark.joins import better
from penstock.topologies.examples.nexmark.model import Bid, Listing, Offer, Price
from penstock.topologies.examples.nexmark.streams import HORIZON, Nexmark
from penstock.topologies.expressions.functions import col, count, key, left, right, struct, window_start
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import custom, tumbling

CHEAP, DEAR = 10_000, 1_000_000
"""The bounds of the three classes of prices."""


def q4(emission: Emission = "every_update") -> Topology:
    """Average price for a category: the mean of the highest bid of each auction, rounded down. When an auction's
    highest bid changes, the former one is subtracted from its category."""
    nexmark = Nexmark("q4", emission)
    auctions = nexmark.auctions.select_key(col("id")).select(
        col("category"), col("dateTime"), col("expires"), value=Listing
    )
    bids = nexmark.bids.select_key(col("auction")).select(col("price"), col("dateTime"), value=Price)
    in_time = right("dateTime").between(left("dateTime"), left("expires"))
    both = struct(category=left("category"), price=right("price"))
    offers = auctions.join(bids, both, before=0, after=HORIZON, grace=0, condition=in_time, name="offers")
    highest = offers.group_by_key().agg(category=col("category").max(), price=col("price").max())
    prices = highest.group_by(col("category")).agg(auctions=count(), total=col("price").sum())
    means = prices.filter(col("auctions") > 0).map_values(col("total") // col("auctions"))
    return nexmark.topology(means)


def _open_for(auction: int, offer: Offer, time_ms: int) -> list[tuple[int, int]]:
    return [(offer.auction.dateTime, offer.auction.expires + 1)]


def _mean_price(offers: list[Offer]) -> int:
    """Rounded to the nearest integer; halves are rounded up."""
    return (2 * sum(o.bid.price for o in offers) + len(offers)) // (2 * len(offers))


def q6(auctions: int = 10, emission: Emission = "every_update") -> Topology:
    """Average selling price by seller: the mean of the winning bids of the last auctions that closed, by the times of
    these bids. Each auction is a window, which closes when the auction expires."""
    nexmark = Nexmark("q6", emission)
    open_for = nexmark.offers.group_by_key().windowed_by(custom(_open_for, max_size=HORIZON, grace=0))
    sold = open_for.reduce(better, emission="on_close").to_stream().group_by(col("auction.seller"))
    latest = sold.aggregate(top_k(auctions, by=lambda o: (o.bid.dateTime, o.auction.id), value=Offer))
    return nexmark.topology(latest.map_values(_mean_price, value=int))


def _by_class(name: str, of: Any) -> Iterator[tuple[str, Expression]]:
    """An aggregate over all bids, and over those of each class of prices."""
    classes = (col("price") < CHEAP, (col("price") >= CHEAP) & (col("price") < DEAR), col("price") >= DEAR)
    yield f"total_{name}", of
    for i, those in enumerate(classes, 1):
        yield f"rank{i}_{name}", of.where(those)


def _statistics() -> dict[str, Expression]:
    return {
        **dict(_by_class("bids", count())),
        **dict(_by_class("bidders", col("bidder").count_distinct())),
        **dict(_by_class("auctions", col("auction").count_distinct())),
    }


def _days(bids: KStream, by: Expression, **aggregates: Expression) -> KTable:
    return bids.group_by(by).windowed_by(tumbling("1d", grace=0)).aggregate(struct(**aggregates))


def _with_day(days: KTable, **keys: Expression) -> KStream:
    """The results with their day and the rest of their key."""
    return days.to_stream().with_columns(day=window_start().format_time("%Y-%m-%d"), **keys)


def q15(emission: Emission = "every_update") -> Topology:
    """Bidding statistics per day: the number of bids, of distinct bidders and of distinct auctions."""
    nexmark = Nexmark("q15", emission)
    days = _days(nexmark.bids, col("dateTime").format_time("%Y-%m-%d"), **_statistics())
    return nexmark.topology(_with_day(days))


def q16(emission: Emission = "every_update") -> Topology:
    """Channel statistics per day: those of query 15 for each channel, and the minute of its last bid."""
    nexmark = Nexmark("q16", emission)
    minute = col("dateTime").format_time("%H:%M").max()
    days = _days(nexmark.bids, col("channel"), minute=minute, **_statistics())
    return nexmark.topology(_with_day(days, channel=key()["key"]))


def q17(emission: Emission = "every_update") -> Topology:
    """Auction statistics per day: the bids and their prices; the mean is rounded down."""
    nexmark = Nexmark("q17", emission)
    price = col("price")
    prices = {"min_price": price.min(), "max_price": price.max(), "sum_price": price.sum()}
    mean = price.sum() // count()
    days = _days(nexmark.bids, col("auction"), avg_price=mean, **prices, **dict(_by_class("bids", count())))
    return nexmark.topology(_with_day(days, auction=key()["key"]))


def q18(emission: Emission = "every_update") -> Topology:
    """The last bid of each user for each auction."""
    nexmark = Nexmark("q18", emission)
    by_both = nexmark.bids.group_by(struct(bidder=col("bidder"), auction=col("auction")))
    return nexmark.topology(by_both.aggregate(last(value=Bid)))


def _ranked(auction: int, change: Change[list[Bid]]) -> list[tuple[str, Bid]]:
    """The ranks that have another bid than before."""
    bids, before = change.new or [], change.old or []
    others = zip(range(1, len(bids) + 1), bids, chain(before, repeat(None)), strict=False)
    return [(f"{auction}/{rank}", bid) for rank, bid, former in others if bid is not former and bid != former]


def q19(ranks: int = 10, emission: Emission = "every_update") -> Topology:
    """The highest bids for each auction, under ``<auction>/<rank>``; of equal bids the earlier one is first. Ranks whose
    bid has not changed are not written again."""
    nexmark = Nexmark("q19", emission)
    highest = top_k(ranks, by=(col("price"), -col("dateTime")), value=Bid)
    best = nexmark.bids.group_by(col("auction")).aggregate(highest).to_changes()
    return nexmark.topology(best.flat_map(_ranked, key=str, value=Bid))
