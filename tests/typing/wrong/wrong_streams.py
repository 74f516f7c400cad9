"""Wrong programs on streams. Each wrong line says so: both checkers must report it, or the one that is named."""

from __future__ import annotations

import msgspec

import penstock as ps
from penstock import col


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int
    bidder: str


class Person(msgspec.Struct, frozen=True):
    name: str
    city: str


builder = ps.StreamsBuilder("wrong")
bids = builder.stream("bids", value=Bid)
people = builder.table("people", value=Person)
by_number = builder.table("by-number", key=int, value=Person)

# -- sources

builder.stream("bids", valeu=Bid)  # E: no such option
builder.stream("bids", value=Bid, priority="high")  # E: a text for a number
builder.stream("bids", value=Bid, timestamp=lambda record: record.value.bidder)  # E: a text for a time
builder.stream("bids", value="jsn")  # E: no serde has this name
builder.stream("bids", value=Bid(1, 2, "a"))  # E: an instance for a type
builder.table("bids", histroy="1h")  # E: no such option
ps.StreamsBuilder("wrong", vlaue=Bid)  # E: no such option

# -- record by record

bids.map_values(lambda bid: bid.prize)  # E: no such field
bids.map_values(lambda bid: bid.price.upper())  # E: int has no upper
bids.map_values(lambda bid: bid.price).map_values(lambda price: price.bidder)  # E: what comes is an int
bids.map_values(lambda key, bid, more: bid.price)  # E: a function of three
bids.map_values(lambda bid: bid.bidder, value=int)  # E(mypy): a text is not what the serde writes
bids.map_values(lambda bid: bid.bidder, value=ps.serde_of(int))  # E: the same of a Serde
bids.map(lambda key, bid: bid.price)  # E: no pair
bids.map(lambda key, bid: (bid.price, key)).filter(lambda price, key: price.startswith("a"))  # E: keys are numbers now
bids.filter(lambda bid: bid.price > 3)  # E: a function of one
bids.filter(lambda key, bid: bid.prize > 3)  # E: no such field
bids.filter("price > 3")  # E: neither a function nor an expression
bids.flat_map_values(lambda bid: bid.price)  # E: an int has no elements
bids.select_key(lambda key, bid: bid.auctoin, key=int)  # E: no such field
bids.select_key(lambda key, bid: bid.auction, key=int).to("t", key=str)  # E: keys are numbers now
bids.map_values(col("price"), value=3)  # E: no serde
bids.count()  # E: only groups have counts
print(bids.late)  # E: only windowed tables have late records
bids.peek(lambda key, bid: print(bid.prize))  # E: no such field

# -- several streams and tables

bids.merge(bids.map_values(lambda bid: bid.price))  # E: values of another type
bids.join(people, lambda bid, person: person.price)  # E: no such field
bids.join(people, lambda bid, person: bid.city)  # E: no such field
bids.join(by_number, lambda bid, person: person.city)  # E: keys of another type
bids.left_join(people, lambda bid, person: person.city)  # E: there may be no person
bids.right_join(bids, lambda mine, theirs: mine.price, within="1m", grace=0)  # E: there may be no bid of mine
bids.outer_join(bids, lambda a, b: (a or b).price, within="1m", grace=0)  # E: there may be neither, for all it knows
bids.join(bids, lambda a, b: a.price, within="1m", grace=0, condition=lambda a, b: a.city == b.city)  # E: no such field
bids.join(bids, lambda a, b: a.price, within="1m", grace=0, result_time="newest")  # E: no such choice
bids.join("people", lambda bid, person: bid.price)  # E: a text for a table
bids.branch(lambda key, bid: bid.prize > 3)  # E: no such field
bids.branch({"dear": lambda key, bid: bid.prize > 3})  # E: no such field

# -- whole records, questions, parts, topics

bids.with_timestamp(lambda record: record.value.bidder)  # E: a text for a time
bids.map_records(lambda record: record.value)  # E: no record
bids.lookup(lambda key, bid: bid.price, lambda bid, answer: answer.upper(), answer=int)  # E: the answer is an int
bids.apply("part", lambda stream: stream.map_values(lambda bid: bid.prize))  # E: no such field
bids.apply("part", lambda stream, least: stream, "3", 4)  # E: one argument too many
bids.to(lambda key, bid: bid.price, topics=["a", "b"])  # E: a number for a topic
bids.to("out", value=str)  # E: values are bids
bids.repartition(by="keys")  # E: no such choice
bids.repartition(by=lambda key, bid, partitions: bid.bidder)  # E: a text for a partition
