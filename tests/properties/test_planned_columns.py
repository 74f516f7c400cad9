"""Random chains of expressions over random topics: with input in columns every output, counter and dead letter is what rows
give, at every batch size."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import functions as f
from penstock.topologies.graph.topology import Topology

LETTERS = "letters"
BATCHES = (1, 2, 7, 10_000)
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)


class Order(msgspec.Struct, frozen=True):
    kind: str
    n: int
    price: float
    ok: bool = True
    note: str | None = None
    left: int | None = None


@dataclasses.dataclass
class Noted:
    kind: str
    n: int
    price: float
    ok: bool = True
    note: str | None = None
    left: int | None = None


class Line(msgspec.Struct):
    kind: str
    total: float


KINDS = ("view", "click", "größe", "")
INTS = (0, 1, 2, 3, -1, 10, 2**62, 2**63 - 1, -(2**63), 2**70)
FLOATS = (0.0, -0.0, 1.5, 2.0, 1e308, -3.25)
Change = Callable[[KStream], KStream]
FILTERS: tuple[Any, ...] = (
    f.col("kind") == "view",
    (f.col("kind") != "click") & (f.col("n") > 1),
    f.col("price") * 2 >= 3,
    f.col("left").is_null() | (f.col("left") + f.col("n") < 10),
    f.col("ok") & ~(f.col("note") == "x"),
    f.col("n") // f.col("left") > 0,
    f.col("n").is_in(1, 2, 3),
    (f.key().cast("string") == "a") | (f.timestamp() > 50),
    f.coalesce(f.col("note"), f.col("kind")).length() > 1,
    f.value().is_not_null(),
)
CHANGES: tuple[Change, ...] = (
    *((lambda s, c=c: s.filter(c)) for c in FILTERS),
    lambda s: s.filter_not(f.col("kind") == "click"),
    lambda s: s.filter(lambda k, v: v is not None and v.n != 3),
    lambda s: s.select_key(f.col("kind")),
    lambda s: s.select_key(f.col("n") + 1),
    lambda s: s.with_timestamp(f.col("n")),
    lambda s: s.with_timestamp(f.timestamp() + f.coalesce(f.col("left"), 5)),
    lambda s: s.with_timestamp(f.col("left")),
    lambda s: s.peek(lambda k, v: None),
    lambda s: s.branch(f.col("n") > 1, f.col("left") // f.col("n") == 0, default=True)[2],
)
ENDS: tuple[Change, ...] = (
    lambda s: s.select(f.col("kind"), twice=f.col("n") * 2, half=f.col("price") / 2),
    lambda s: s.select(f.col("kind"), total=f.col("price") * f.col("n"), value=Line),
    lambda s: s.with_columns(when=f.timestamp(), kind=f.col("kind").upper()),
    lambda s: s.map_values(f.col("price")),
    lambda s: s.map_values(f.col("note")),
    lambda s: s.map_values(f.col("n") - f.coalesce(f.col("left"), 0)),
    lambda s: s.select(f.col("n"), a=f.col("kind")).filter(f.col("n") > 1).with_columns(b=f.col("n") % 7),
    lambda s: s.select(both=f.struct(n=f.col("n"), kind=f.col("kind"))),
    lambda s: s,
)


def random_topology(rng: random.Random) -> Topology:
    """A source, some changes, and one end or two."""
    builder = StreamsBuilder(value=rng.choice((Order, Order, Noted)))
    stream = builder.stream("in", key=rng.choice((str, str, bytes)))
    for _ in range(rng.randint(0, 3)):
        stream = rng.choice(CHANGES)(stream)
    for number in range(rng.choice((1, 1, 2))):
        rng.choice(ENDS)(stream).to(f"out{number}")
    return builder.build()


def random_value(rng: random.Random) -> bytes | None:
    way = rng.random()
    if way < 0.07:
        return None
    if way < 0.14:
        return rng.choice(
            (b"{", b"{}", b"[1]", b'{"kind":1,"n":1,"price":1}', b'{"kind":"view","n":1.5,"price":2}', b"\xff")
        )
    n = rng.choice(INTS)
    row = {"kind": rng.choice(KINDS), "n": n, "price": rng.choice((*FLOATS, 3))}
    for name, values in (("ok", (True, False)), ("note", ("x", "größer", None)), ("left", (0, 1, None, -(2**63)))):
        if rng.random() < 0.6:
            row[name] = rng.choice(values)
    return json.dumps(row, ensure_ascii=rng.random() < 0.5).encode()


def random_records(rng: random.Random) -> list[Record]:
    keys = (b"a", b"b", None, "ö".encode(), b"\xff", b"")
    headers = rng.random() < 0.3
    return [
        Record(rng.choice(keys), random_value(rng), rng.randint(0, 100), (("h", b"1"),) if headers else ())
        for _ in range(rng.randint(1, 60))
    ]


def answers(topology: Topology, records: list[Record], batch: int, *, columns: bool, off: bool = False) -> Any:
    options = TaskOptions(policies=POLICIES, batch_max_records=batch, columns="off" if off else "auto")
    driver = TopologyTestDriver(topology, options=options, columns=columns)
    driver.pipe_raw({"in": records})
    topics = ["out0", "out1", LETTERS]
    return {t: list(map(exact, driver.read_raw(t))) for t in topics}, +driver.dropped_records


def exact(record: Record) -> Any:
    """The record with the types of what it holds, which no numpy number may be."""
    assert type(record.timestamp_ms) is int
    return record


@pytest.mark.parametrize("block", range(8))
def test_columns_and_rows_give_the_same(block: int) -> None:
    for seed in range(block, 160, 8):
        rng = random.Random(seed)
        topology, records = random_topology(rng), random_records(rng)
        expected = answers(topology, records, 1, columns=False)
        for batch in BATCHES:
            for off in (False, True):
                found = answers(topology, records, batch, columns=True, off=off)
                assert found == expected, f"seed {seed}, batch {batch}, off {off}\n{topology.describe()}"


def test_the_first_record_that_fails_stops_the_task() -> None:
    builder = StreamsBuilder(value=Order)
    builder.stream("in").filter(f.col("n") // f.col("left") > 0).to("out")
    rows = [Record(b"a", orjson.dumps({"kind": "", "n": 4, "price": 1, "left": left}), 0) for left in (1, 2, 0, 1)]
    said = []
    for columns in (False, True):
        driver = TopologyTestDriver(builder.build(), columns=columns)
        with pytest.raises(Exception, match="offset 2, operator in-filter: expression n //") as caught:
            driver.pipe_raw({"in": rows})
        said.append(str(caught.value))
    assert said[0] == said[1]
