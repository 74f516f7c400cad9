"""Queries of Nexmark that join two kinds of events."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.topologies.aggregators import max_by
from penstock.topologies.examples.nexmark.model import AUCTION, Offer
from penstock.topologies.examples.nexmark.streams import HORIZON, Nexmark
from penstock.topologies.expressions.functions import coalesce, col, count, key, left, right, struct, window_start
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import tumbling
from penstock.topologies.windows.durations import Duration


def q3(states: Sequence[str] = ("OR", "ID", "CA"), category: int = 10) -> Topology:
    """Local item suggestion: who sells in Oregon, Idaho or California, and which auctions of a category they open.
    Both sides are kept forever, as tables that are joined by a foreign key, so either may arrive first."""
    nexmark = Nexmark("q3")
    people = nexmark.persons.filter_values(col("state").is_in(*states)).select_key(col("id")).to_table()
    items = nexmark.auctions.filter_values(col("category") == category).select_key(col("id")).to_table()
    found = struct(name=right("name"), city=right("city"), state=right("state"), id=left("id"))
    return nexmark.topology(items.join_foreign(people, col("seller"), found))


def q8(size: Duration = "10s") -> Topology:
    """Monitor new users: who registered and opened an auction in the same window. Both kinds of events are one stream, of
    which each person has a group."""
    nexmark = Nexmark("q8")
    who, name = coalesce(col("person.id"), col("auction.seller")), col("person.name")
    people = nexmark.actions.group_by(who).windowed_by(tumbling(size, grace=0))
    seen = people.agg(
        name=name.max(), opened=count().where(col("event_type") == AUCTION), emission="on_close"
    ).to_stream()
    new = seen.filter_values(col("name").is_not_null() & (col("opened") > 0))
    return nexmark.topology(new.select(id=key()["key"], name=col("name"), starttime=window_start()))


def rank(offer: Offer) -> tuple[int, int]:
    """The order of offers: a higher price is better, then an earlier time."""
    return offer.bid.price, -offer.bid.dateTime


def better(best: Offer, offer: Offer) -> Offer:
    """The better of two offers for an auction."""
    return max(best, offer, key=rank)


def q9(emission: Emission = "every_update") -> Topology:
    """Winning bids: the best bid of each auction so far, with the auction."""
    nexmark = Nexmark("q9", emission)
    highest = max_by((col("bid.price"), -col("bid.dateTime")), value=Offer)
    return nexmark.topology(nexmark.offers.group_by_key().aggregate(highest))


def q13(rows: int = 10_000) -> Topology:
    """Bounded side input: every bid with the text of its auction from a small table, the topic
    ``nexmark-side-input``, which every task has in full."""
    nexmark = Nexmark("q13")
    side = nexmark.builder.global_table("nexmark-side-input", key=int, value=str)
    fields = {name: left(name) for name in ("auction", "bidder", "price", "dateTime")}
    return nexmark.topology(nexmark.bids.join_global(side, col("auction") % rows, struct(**fields, value=right())))


def q20(category: int = 10) -> Topology:
    """Expand bids: every bid for an auction of a category with that auction, in either order of arrival."""
    nexmark = Nexmark("q20")
    auctions = nexmark.auctions.filter_values(col("category") == category).select_key(col("id"))
    bids = nexmark.bids.select_key(col("auction"))
    both = struct(bid=left(), auction=right())
    return nexmark.topology(bids.join(auctions, both, within=HORIZON, grace=0))
