"""What type checkers know of processors, stores, serdes and micro-batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, assert_type

import msgspec

import penstock as ps


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int


COUNTS = ps.key_value_store("counts", key=str, value=int)


class Rising(ps.Processor[str, Bid, str, int]):
    stores = (COUNTS,)

    def process(self, record: ps.Record[str, Bid], ctx: ps.ProcessorContext[str, int]) -> None:
        assert_type(record.value, Bid)
        counts = ctx.store(COUNTS)
        assert_type(counts, ps.KeyValueStore[str, int])
        assert_type(counts.get(record.key), int | None)
        assert_type(ctx.store("counts"), Any)
        ctx.forward(record.key, record.value.price)
        ctx.forward(record.key, None)


class Untyped(ps.Processor):  # type: ignore[type-arg, unused-ignore]  # bare names mean Any
    def process(self, record: ps.Record, ctx: ps.ProcessorContext) -> None:  # type: ignore[type-arg, unused-ignore]  # as above
        ctx.forward(record.value, record.key)


builder = ps.StreamsBuilder("right")
bids = builder.stream("bids", value=Bid)
rising = bids.process(Rising, key=str, value=int)
assert_type(rising.map_values(lambda price: price + 1), ps.KStream[str, int])
assert_type(rising.port("out", key=str, value=float), ps.KStream[str, float])
assert_type(bids.process(lambda: Rising()).filter(lambda key, price: price > 1), ps.KStream[str, int])
bids.process(Untyped).to("untyped")

with ps.TopologyTestDriver(builder) as driver:
    assert_type(driver.store(COUNTS).get("a"), int | None)


def with_names(key: str, bid: Bid, names: ps.SideView[int, str]) -> str:
    return names.get(bid.auction, "nobody") or names.single()


assert_type(bids.map_with_side(with_names, builder.global_table("names", key=int, value=str)), ps.KStream[str, str])

# -- serdes

assert_type(ps.serde_of(int), ps.Serde[int])
assert_type(ps.serde_of(Bid), ps.Serde[Bid])
assert_type(ps.serde_of("json"), ps.Serde[Any])
assert_type(ps.typed_json(Bid), ps.Serde[Bid])
assert_type(ps.typed_msgpack(Bid), ps.Serde[Bid])
money: ps.Serde[Decimal] = ps.Serde("money", lambda d: str(d).encode(), lambda b: Decimal(b.decode()))
assert_type(builder.stream("money", value=money), ps.KStream[str, Decimal])
assert_type(bids.map_values(lambda bid: Decimal(bid.price), value=money), ps.KStream[str, Decimal])
assert_type(bids.value_serde.deserialize(b""), Bid)

# -- micro-batches

batches = bids.micro_batches("1s")
assert_type(batches.count_by_key(), ps.MicroBatches[str, int])
assert_type(batches.map(lambda key, bid: (bid.auction, bid.price), key=int).to_stream(), ps.KStream[int, int])
assert_type(
    batches.transform(lambda pairs: [(key, bid.price) for key, bid in pairs], value=int), ps.MicroBatches[str, int]
)


def total(bids: list[Bid], state: int | None) -> int | None:
    return (state or 0) + sum(bid.price for bid in bids)


assert_type(batches.update_state_by_key(total, state=int), ps.MicroBatches[str, int])
