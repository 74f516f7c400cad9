"""Topologies over Avro: with input in columns, every output, changelog, counter and dead letter is what rows give."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import schemas
from penstock.state.log import Record
from penstock.state.serdes.serde import Serde
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f

LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "weight", "type": ["double", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "BUY"]}},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "raw", "type": "bytes"},
    ],
}


class Order(msgspec.Struct, frozen=True):
    shop: str
    cents: int
    weight: float | None
    kind: str
    paid: bool | None
    raw: bytes


class Sale(msgspec.Struct, frozen=True):
    shop: str
    cents: int
    kind: str


ORDERS: Serde[Order] = schemas.avro(SCHEMA, type=Order)
# int and one symbol: there are orders that cannot be written as sales
SALE: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "cents", "type": "int"},
        {"name": "shop", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["BUY"]}},
    ],
}
SALES: Serde[Sale] = schemas.avro(SALE, type=Sale)
DICTS: Serde[Any] = schemas.avro(SALE)
TOPOLOGIES: dict[str, Callable[[KStream[Any, Any]], Any]] = {
    "filtered and counted": lambda s: (
        s.filter((f.col("cents") > 3) & f.col("paid")).group_by_key().count(name="counts").to_stream().to("out")
    ),
    "by another key": lambda s: (
        s.group_by(f.col("shop"), key=str)
        .agg(least=f.col("cents").min(), n=f.count())
        .to_stream()
        .to("out", value="json")
    ),
    "selected": lambda s: (
        s.filter(f.col("kind") == "BUY").select(f.col("shop"), f.col("weight"), n=f.col("cents") % 7).to("out")
    ),
    "a function of those left": lambda s: (
        s.filter(f.col("raw") != b"x").map_values(lambda o: {"shop": o.shop, "w": o.weight}, value=dict).to("out")
    ),
    "selected into Avro": lambda s: s.select(f.col("shop"), f.col("cents"), f.col("kind")).to("out", value=DICTS),
    "selected as typed Avro": lambda s: (
        s.filter(f.col("kind") == "BUY")
        .select(f.col("shop"), f.col("kind"), value=Sale, cents=f.col("cents") % 64)
        .to("out", value=SALES)
    ),
    "typed values of a function": lambda s: (
        s.filter(f.col("cents") < 2**40).map_values(lambda o: Sale(o.shop, o.cents % 64, "BUY"), value=SALES).to("out")
    ),
    "values that cannot all be written": lambda s: (
        s.filter(f.col("cents") < 2**40).map_values(lambda o: Sale(o.shop, o.cents, o.kind)).to("out", value=SALES)
    ),
    "left as they were": lambda s: s.filter(f.col("cents") % 2 == 0).to("out"),
}


def value(rng: random.Random) -> bytes | None:
    if rng.random() < 0.05:
        return None
    order = Order(
        rng.choice(("", "a", "größer", "b" * 70)),
        rng.choice((0, 1, 2, 3, -1, 64, 2**40, 2**62, -(2**63))),
        rng.choice((None, 0.0, -0.0, 1.5, float("inf"))),
        rng.choice(("VIEW", "BUY")),
        rng.choice((None, True, False)),
        rng.choice((b"", b"x", b"\xff")),
    )
    data = ORDERS.serialize(order)
    way = rng.random()
    if way < 0.03:
        return data[: rng.randrange(len(data))]
    if way < 0.06:
        return data + b"\0"
    if way < 0.1:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(1) + data[at + 1 :]
    return data


def seen(record: Record) -> Record:
    """The record without the addresses of objects in what fastavro says."""
    headers = tuple((name, data and re.sub(rb"0x[0-9a-f]+", b"0x", data)) for name, data in record.headers)
    return record._replace(headers=headers)


def answers(topology: ps.Topology, records: list[Record], batch: int, *, columns: bool) -> Any:
    options = TaskOptions(policies=POLICIES, batch_max_records=batch)
    with ps.TopologyTestDriver(topology, options=options, columns=columns) as driver:
        driver.pipe_raw({"in": records})
        outputs = [list(map(seen, driver.read_raw(topic))) for topic in ("out", LETTERS)]
        return outputs, driver.changelogs, +driver.dropped_records


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_columns_and_rows_give_the_same(name: str) -> None:
    builder = ps.StreamsBuilder(key=str, value=ORDERS)
    TOPOLOGIES[name](builder.stream("in"))
    topology = builder.build()
    plan = topology.describe(plan=True)
    assert "in (Source): columns; decodes" in plan
    assert "in-to (Sink): columns" in plan
    for seed in range(12):
        rng = random.Random(seed)
        records = [Record(rng.choice((b"k", b"l", b"m")), value(rng), rng.randint(0, 100)) for _ in range(120)]
        expected = answers(topology, records, 1, columns=False)
        assert all(expected[0])
        for batch in (1, 7, 120):
            assert answers(topology, records, batch, columns=True) == expected, f"seed {seed}, batch {batch}"
