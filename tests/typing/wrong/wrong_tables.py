"""Wrong programs on tables, groups, windows and processors. Each wrong line says so."""

from __future__ import annotations

import msgspec

import penstock as ps
from penstock import session, tumbling


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int
    bidder: str


builder = ps.StreamsBuilder("wrong")
bids = builder.stream("bids", value=Bid)
names = builder.table("names", value=str)
groups = bids.group_by(lambda key, bid: bid.auction, key=int)
minutes = groups.windowed_by(tumbling("1m", grace=0))
sessions = groups.windowed_by(session("1m", grace=0))
last = bids.to_table()

# -- aggregates

bids.group_by(lambda key, bid: bid.auctoin)  # E: no such field
groups.aggregate(int, lambda key, bid, total: total + bid.prize, value=int)  # E: no such field
groups.aggregate(int, lambda key, bid, total: total.append(bid), value=int)  # E: the total is an int
groups.aggregate(int, lambda bid, total: total + bid.price, value=int)  # E: a function of two
groups.reduce(lambda a, b: a.price)  # E: no bid
groups.aggregate(ps.aggregators.sum_(lambda bid: bid.prize))  # E: no such field
groups.aggregate(ps.aggregators.count()).map_values(lambda n: n.upper())  # E: counts are numbers
groups.count(emission="sometimes")  # E: no such choice
groups.count().map_values(lambda n: n.price)  # E: counts are numbers
groups.count().filter(lambda key, n: key.startswith("a"))  # E: keys are numbers
print(groups.count().late)  # E: without windows nothing is late
groups.triggered(ps.triggers.after_count(3))  # E: there are no windows
groups.windowed_by("1m")  # E: a text for windows
minutes.windowed_by(tumbling("1h", grace=0))  # E: they are windowed already
minutes.with_ttl("1d")  # E: windows expire by themselves
minutes.count().to_stream().map_values_with_key(lambda window, n: window.upper())  # E: the key is Windowed
minutes.count().to_stream().map_values_with_key(lambda window, n: window.start)  # E: it is start_ms
minutes.count().to_stream().map_values_with_key(lambda window, n: window.key.upper())  # E: the inner key is a number
minutes.count(late=True).late.map_values(lambda bid: bid.prize)  # E: no such field
minutes.aggregate(int, lambda key, bid, n: n + bid.prize, value=int)  # E: no such field
sessions.aggregate(int, lambda key, bid, n: n + 1, value=int)  # E: sessions need a merger
minutes.triggered(ps.triggers.after_count(3)).count().map_values(lambda n: n.price)  # E: counts are numbers
minutes.triggered(ps.triggers.after_count(3), closing="never")  # E: no such choice
bids.group_by_key().cogroup(lambda key, bid, total: bid.prize)  # E: no such field

# -- tables

names.map_values(lambda name: name.price)  # E: names are texts
names.join(last, lambda name, bid: bid.prize)  # E: no such field
names.left_join(last, lambda name, bid: bid.price)  # E: there may be no bid
names.join(bids, lambda name, bid: bid.price)  # E: a stream for a table
last.join_foreign(names, lambda key, bid: bid.auction, lambda bid, name: name)  # E: names have texts for keys
last.group_by(lambda key, bid: bid.auction)  # E: no pair
last.group_by(lambda key, bid: (bid.auction, bid.price)).count().map_values(lambda n: n.price)  # E: counts are numbers
last.to_stream().map_values(lambda bid: bid.prize)  # E: no such field
names.suppress("1m")  # E: a text for a limit

# -- processors and stores


COUNTS = ps.key_value_store("counts", key=str, value=int)


class Rising(ps.Processor[str, Bid, str, int]):
    def process(self, record: ps.Record[str, Bid], ctx: ps.ProcessorContext[str, int]) -> None:
        print(record.value.prize)  # E: no such field
        ctx.forward(record.key, record.value.bidder)  # E: values are to be numbers
        ctx.forward(3, record.value.price)  # E: keys are to be texts
        ctx.store(COUNTS).put(record.key, record.value)  # E: the store has numbers
        print(ctx.store(COUNTS).get(record.key).bidder)  # E: the store has numbers


class Wrong(ps.Processor[str, Bid, str, int]):
    def process(self, record: ps.Record[str, int], ctx: ps.ProcessorContext[str, int]) -> None:  # E: bids come
        print(record.value + 1)


names.to_stream().process(Rising)  # E: bids are to come
bids.process(Rising).map_values(lambda price: price.bidder)  # E: numbers are forwarded
ps.serde_of(3)  # E: no serde
ps.Serde("money", lambda price: str(price), lambda data: 3)  # E: a text for bytes
bids.micro_batches("1s").map(lambda key, bid: (key, bid.prize))  # E: no such field
bids.micro_batches("1s").count_by_key().map_values(lambda n: n.price)  # E: counts are numbers
print(ps.no_such_name)  # E: penstock has no such name
