"""What type checkers know of streams: of sources, of functions record by record, of joins and of whole records."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import msgspec

import penstock as ps
from penstock import col, connectors, value


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int
    bidder: str


class Person(msgspec.Struct, frozen=True):
    name: str
    city: str


class Enriched(msgspec.Struct, frozen=True):
    price: int
    city: str | None


builder = ps.StreamsBuilder("right")
assert_type(builder, ps.StreamsBuilder[str, dict[str, Any]])

# -- sources: the serde that is named, else the builder's

bids = builder.stream("bids", value=Bid)
assert_type(bids, ps.KStream[str, Bid])
assert_type(builder.stream("anything"), ps.KStream[str, dict[str, Any]])
assert_type(builder.stream("numbers", key=int), ps.KStream[int, dict[str, Any]])
assert_type(builder.stream("people", key=int, value=Person, bootstrap=True), ps.KStream[int, Person])
assert_type(
    builder.stream("more", value=ps.typed_json(Person), timestamp=lambda r: len(r.value.city)), ps.KStream[str, Person]
)
assert_type(builder.stream("names", value="json", priority=1), ps.KStream[str, Any])
assert_type(ps.StreamsBuilder(key=int, value=Bid).stream("bids"), ps.KStream[int, Bid])
assert_type(ps.StreamsBuilder(value=Bid).table("bids", history="1h"), ps.KTable[str, Bid])
assert_type(builder.global_table("cities", key=int, value=str), ps.GlobalKTable[int, str])
assert_type(builder.changelog_table("changes", value=float), ps.KTable[str, float])
assert_type(builder.stream_of("bids", key=str, value=Bid), ps.KStream[str, Bid])

# -- record by record

assert_type(bids.map_values(lambda bid: bid.price), ps.KStream[str, int])
assert_type(bids.map_values(lambda bid: bid.price, value=int), ps.KStream[str, int])
assert_type(bids.map_values(lambda bid: bid.bidder.upper(), value="string"), ps.KStream[str, str])
assert_type(bids.map_values(col("price") * 2), ps.KStream[str, Any])
assert_type(bids.map_values(col("price") * 2, value=int), ps.KStream[str, int])
assert_type(bids.map_values_with_key(lambda key, bid: (key, bid.price)), ps.KStream[str, tuple[str, int]])
assert_type(bids.filter(lambda key, bid: bid.price > 100 and key.startswith("a")), ps.KStream[str, Bid])
assert_type(bids.filter(col("price") > 100).filter_not(lambda key, bid: not key), ps.KStream[str, Bid])
assert_type(bids.filter_values(lambda bid: bid.price), ps.KStream[str, Bid])
assert_type(bids.map(lambda key, bid: (bid.auction, bid.price), key=int, value=int), ps.KStream[int, int])
assert_type(bids.flat_map(lambda key, bid: [(bid.auction, key)]), ps.KStream[int, str])
assert_type(bids.flat_map_values(lambda bid: bid.bidder.split()), ps.KStream[str, str])
assert_type(bids.select_key(lambda key, bid: bid.auction, key=int), ps.KStream[int, Bid])
assert_type(bids.select_key(col("auction")), ps.KStream[Any, Bid])
assert_type(bids.peek(lambda key, bid: print(key, bid.price)), ps.KStream[str, Bid])
assert_type(bids.select(col("auction"), euros=col("price") * 0.9), ps.KStream[str, dict[str, Any]])
assert_type(bids.select(col("price"), city=col("bidder"), value=Enriched), ps.KStream[str, Enriched])
assert_type(bids.with_columns(hour=ps.timestamp().hour()), ps.KStream[str, dict[str, Any]])
assert_type(bids.throttle(3, "1m"), ps.KStream[str, Bid])
assert_type(bids.deduplicate("1h", lambda key, bid: bid.auction, id_serde=int), ps.KStream[str, Bid])
assert_type(bids.sample_reservoir(3, "1m"), ps.KStream[ps.Windowed[str], list[Bid]])

# -- several streams

dear, cheap = bids.branch(lambda key, bid: bid.price > 100, value() != None, default=True)[:2]  # noqa: E711  # an expression
assert_type(dear.merge(cheap), ps.KStream[str, Bid])
assert_type(bids.branch({"dear": lambda key, bid: bid.price > 100}, default=True), dict[str, ps.KStream[str, Bid]])

# -- joins

people = builder.table("persons", value=Person)
joined = bids.join(people, lambda bid, person: Enriched(bid.price, person.city), value=Enriched)
assert_type(joined, ps.KStream[str, Enriched])


def enrich(bid: Bid, person: Person | None) -> Enriched:
    return Enriched(bid.price, None if person is None else person.city)


assert_type(bids.left_join(people, enrich, value=Enriched), ps.KStream[str, Enriched])
assert_type(
    bids.left_join(people, lambda bid, person: "" if person is None else person.city, value=str), ps.KStream[str, str]
)
assert_type(
    bids.join(
        bids,
        lambda mine, theirs: mine.price - theirs.price,
        within="1m",
        grace=0,
        condition=lambda a, b: a.price < b.price,
    ),
    ps.KStream[str, int],
)
cities = builder.global_table("city-names", key=str, value=str)
assert_type(
    bids.join_global(cities, lambda key, bid: bid.bidder, lambda bid, city: f"{bid.price} {city.upper()}"),
    ps.KStream[str, str],
)
assert_type(
    bids.join_as_of(bids, lambda a, b: a.price, tolerance="1s", grace=0, direction="nearest"), ps.KStream[str, int]
)

# -- whole records, questions, parts


def later(record: ps.Record[str, Bid]) -> ps.Record[int, str] | None:
    return ps.Record(record.value.auction, record.key, record.timestamp_ms + 1)


assert_type(bids.map_records(later, key=int, value=str), ps.KStream[int, str])
assert_type(bids.with_timestamp(lambda record: record.value.price), ps.KStream[str, Bid])


async def ask(key: str, bid: Bid) -> Person:
    await asyncio.sleep(0)
    return Person(key, bid.bidder)


assert_type(bids.lookup(ask, answer=Person), ps.KStream[str, Person])
assert_type(bids.map_values_with_key(ps.awaiting(ask), value=Person), ps.KStream[str, Person])
assert_type(
    bids.lookup(ask, lambda bid, person: (bid.price, person.city), answer=Person), ps.KStream[str, tuple[int, str]]
)


def prices(stream: ps.KStream[str, Bid], at_least: int) -> ps.KStream[str, int]:
    return stream.filter(lambda key, bid: bid.price >= at_least).map_values(lambda bid: bid.price, value=int)


assert_type(bids.apply("prices", prices, 10), ps.KStream[str, int])
assert_type(bids.apply("prices-of-more", prices, at_least=20), ps.KStream[str, int])
loop = bids.loop(lambda again: (again, again.map_values(lambda bid: bid.price)), max_iterations=3)
assert_type(loop.done, ps.KStream[str, int])
assert_type(loop.exhausted, ps.KStream[str, Bid])
found = bids.match(ps.pattern("a").within("1m"), select=lambda events: events["a"][0].price, value=int)
assert_type(found.matches, ps.KStream[str, int])
assert_type(found.timeouts, ps.KStream[str, dict[str, list[Bid]]])

# -- out

bids.repartition(by=lambda key, bid, partitions: bid.auction % partitions).to("by-auction")
bids.to(lambda key, bid: "dear" if bid.price > 100 else "cheap", topics=["dear", "cheap"], value=Bid)

bids.sink(connectors.PostgresSink("bids", conninfo="dbname=shop", key=("id", "at")), name="to-postgres")
bids.sink(connectors.SqliteSink("bids", path="bids.db", key="id"), name="bids")


def unnamed(stream: ps.KStream) -> ps.KStream:  # type: ignore[type-arg, unused-ignore]  # bare names mean Any
    return stream
