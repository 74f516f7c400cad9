"""What type checkers know of tables, groups, windows and aggregates."""

from __future__ import annotations

from typing import Any, assert_type

import msgspec

import penstock as ps
from penstock import col, hopping, session, tumbling


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int
    bidder: str


class Totals(msgspec.Struct, frozen=True):
    bids: int
    money: int


builder = ps.StreamsBuilder("right")
bids = builder.stream("bids", value=Bid)
names = builder.table("names", value=str)

# -- aggregates per key


def add(key: int, bid: Bid, totals: Totals) -> Totals:
    return Totals(totals.bids + 1, totals.money + bid.price)


groups = bids.group_by(lambda key, bid: bid.auction, key=int)
assert_type(groups, ps.KGroupedStream[int, Bid])
assert_type(bids.group_by_key().count(), ps.KTable[str, int])
assert_type(groups.with_ttl("1d").split(2).count(name="bids-per-auction"), ps.KTable[int, int])
assert_type(groups.reduce(lambda a, b: a if a.price > b.price else b), ps.KTable[int, Bid])
assert_type(groups.aggregate(lambda: Totals(0, 0), add, value=Totals), ps.KTable[int, Totals])
assert_type(groups.aggregate(int, lambda key, bid, total: total + bid.price, value=int), ps.KTable[int, int])
assert_type(groups.aggregate(lambda: 0, lambda key, bid, n: n + bid.price or None, value=int), ps.KTable[int, int])
assert_type(groups.aggregate(col("price").sum(), value=int), ps.KTable[int, int])
assert_type(groups.aggregate(ps.aggregators.mean("price")), ps.KTable[int, Any])
assert_type(groups.aggregate(ps.aggregators.count()), ps.KTable[int, int])
assert_type(groups.aggregate(ps.aggregators.sum_(lambda bid: bid.price, number=int)), ps.KTable[int, int])
assert_type(groups.aggregate(ps.aggregators.list_(lambda bid: bid.bidder, value=str)), ps.KTable[int, list[str]])
assert_type(groups.aggregate(ps.aggregators.max_by(col("price"), value=Bid)), ps.KTable[int, Bid])
assert_type(groups.aggregate(ps.aggregators.min_by(lambda bid: bid.price, value=Bid)), ps.KTable[int, Bid])
assert_type(groups.agg(total=col("price").sum(), n=ps.aggregators.count()), ps.KTable[int, Any])
assert_type(groups.agg(bids=ps.aggregators.count(), value=Totals), ps.KTable[int, Totals])

# -- windows

minutes = groups.windowed_by(tumbling("1m", grace=0))
assert_type(minutes, ps.TimeWindowedKStream[int, Bid])
counts = minutes.count(emission="on_close", late=True)
assert_type(counts, ps.WindowedTable[int, int, Bid])
assert_type(counts.late, ps.KStream[int, Bid])
assert_type(counts.to_stream(), ps.KStream[ps.Windowed[int], int])
assert_type(counts.to_stream(lambda window, n: window.key), ps.KStream[int, int])
assert_type(counts.to_stream(lambda window, n: f"{window.key}@{window.start_ms}", key=str), ps.KStream[str, int])
assert_type(
    groups.windowed_by(hopping("1h", "1m", grace=0)).aggregate(lambda: Totals(0, 0), add, value=Totals).to_stream(),
    ps.KStream[ps.Windowed[int], Totals],
)
plays = groups.windowed_by(session("5m", grace=0))
assert_type(plays, ps.SessionWindowedKStream[int, Bid])
assert_type(
    plays.aggregate(int, lambda key, bid, n: n + bid.price, merger=lambda key, a, b: a + b, value=int),
    ps.WindowedTable[int, int, Bid],
)
assert_type(plays.aggregate(ps.aggregators.count(), value=int), ps.WindowedTable[int, int, Bid])
panes = minutes.triggered(ps.triggers.after_count(3)).count()
assert_type(panes, ps.TriggeredStream[int, int, Bid])
assert_type(panes.late, ps.KStream[int, Bid])
assert_type(panes.map_values_with_key(lambda window, n: window.key + n), ps.KStream[ps.Windowed[int], int])
assert_type(minutes.triggered(ps.triggers.after_count(3)).to_list(), ps.TriggeredStream[int, list[Bid], Bid])

# -- cogroups


def add_name(key: str, name: str, total: int) -> int:
    return total + len(name)


cogroup = bids.group_by_key().cogroup(lambda key, bid, total: total)
assert_type(cogroup, ps.CogroupedKStream[str, Any])
both = names.to_stream().group_by_key().cogroup(add_name).cogroup(bids.group_by_key(), lambda k, bid, n: n + bid.price)
assert_type(both, ps.CogroupedKStream[str, int])
assert_type(both.aggregate(int, value=int), ps.KTable[str, int])
assert_type(
    both.windowed_by(tumbling("1m", grace=0)).aggregate(lambda: 0, value=int).to_stream(),
    ps.KStream[ps.Windowed[str], int],
)

# -- tables

last = bids.to_table(ttl="1d", name="last-bids")
assert_type(last, ps.KTable[str, Bid])
assert_type(last.filter(lambda key, bid: bid.price > 100), ps.KTable[str, Bid])
assert_type(last.map_values(lambda bid: bid.price if bid.price else None, value=int), ps.KTable[str, int])
assert_type(last.join(names, lambda bid, name: f"{name.title()}: {bid.price}", value=str), ps.KTable[str, str])
assert_type(last.left_join(names, lambda bid, name: len(name or "") + bid.price), ps.KTable[str, int])
assert_type(last.right_join(names, lambda bid, name: (bid.price if bid else 0) + len(name)), ps.KTable[str, int])
assert_type(last.outer_join(names, lambda bid, name: (bid.price if bid else 0) + len(name or "")), ps.KTable[str, int])
assert_type(last.join_foreign(names, lambda key, bid: bid.bidder, lambda bid, name: name), ps.KTable[str, str])
assert_type(last.materialize("bids-again").suppress(ps.until_time_limit("1m")), ps.KTable[str, Bid])
assert_type(last.to_stream(), ps.KStream[str, Bid])
assert_type(last.to_changes(), ps.KStream[str, ps.Change[Bid]])
assert_type(last.to_changes().map_values(lambda change: change.new), ps.KStream[str, Bid | None])
rows = last.group_by(lambda key, bid: (bid.auction, bid.price), key=int, value=int)
assert_type(rows, ps.KGroupedTable[int, int])
assert_type(rows.count(), ps.KTable[int, int])
assert_type(rows.reduce(lambda total, price: total + price, lambda total, price: total - price), ps.KTable[int, int])
assert_type(
    rows.aggregate(float, lambda key, price, n: n + price, lambda key, price, n: n - price, value=float),
    ps.KTable[int, float],
)
