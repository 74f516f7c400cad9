"""Queries of Nexmark that join two kinds of events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.topologies.aggregators import max_by
from penstock.topologies.examples.nexmark.model import Auction, Offer, Person
from penstock.topologies.examples.nexmark.streams import HORIZON, Nexmark
from penstock.topologies.expressions.functions import col, left, right, struct, window_start
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


class Newcomer(msgspec.Struct, frozen=True, gc=False):
    """A person's actions in one window."""

    id: int
    name: str | None = None
    opened: bool = False


def _registered(person_id: int, person: Person, so_far: Newcomer) -> Newcomer:
    return Newcomer(person_id, person.name, so_far.opened)


def _opened(seller: int, auction: Auction, so_far: Newcomer) -> Newcomer:
    return Newcomer(seller, so_far.name, True)


def q8(size: Duration = "10s") -> Topology:
    """Monitor new users: who registered and opened an auction in the same window."""
    nexmark = Nexmark("q8")
    registered, opened = nexmark.persons.group_by(col("id")), nexmark.auctions.group_by(col("seller"))
    both = registered.cogroup(_registered).cogroup(opened, _opened).windowed_by(tumbling(size, grace=0))
    people = both.aggregate(lambda: Newcomer(0), value=Newcomer, emission="on_close").to_stream()
    new = people.filter_values(col("name").is_not_null() & col("opened"))
    return nexmark.topology(new.select(col("id"), col("name"), starttime=window_start()))


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
