"""Expressions in place of functions, through the real engine."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import FLOAT, INT, STRING
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.typed import schema_of_serde, scope_of_flow
from penstock.topologies.expressions.functions import col, header, key, lit, struct, timestamp, value, when
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operators.records.stateless import FilterSpec
from penstock.topologies.windows import tumbling


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: float
    bidder: str | None = None


class Out(msgspec.Struct, frozen=True):
    auction: int
    euros: float
    at: datetime.datetime | None = None


BIDS = [
    Record("a", Bid(1, 10.0, "x"), 1_000, (("h", b"1"),)),
    Record("b", Bid(2, 20.0), 3_600_000),
    Record("c", None, 3_600_001),
    Record("d", Bid(3, 30.0, "y"), 7_200_000),
]


def outputs(
    use: Callable[[KStream], KStream], records: list[Record] = BIDS, serde: Any = Bid, **to: Any
) -> list[Record]:
    """What comes of the records, read with the serdes that the stream has in the end."""
    builder = StreamsBuilder(value=serde)
    use(builder.stream("in")).to("out", **to)
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", records)
        return driver.read("out")


def values(use: Callable[[KStream], KStream], records: list[Record] = BIDS, serde: Any = Bid) -> list[Any]:
    """Their values."""
    return [r.value for r in outputs(use, records, serde)]


def keys(use: Callable[[KStream], KStream]) -> list[Any]:
    """Their keys."""
    return [r.key for r in outputs(use)]


def test_filters() -> None:
    """What is null is dropped, by ``filter_not`` too."""
    assert keys(lambda s: s.filter(col("price") > 15)) == ["b", "d"]
    assert keys(lambda s: s.filter_values(col("bidder") == "x")) == ["a"]
    assert keys(lambda s: s.filter_not(col("bidder") == "x")) == ["d"]
    assert keys(lambda s: s.filter(value().is_null() | (key() == "a"))) == ["a", "c"]
    assert keys(lambda s: s.filter(timestamp().hour() == 1)) == ["b", "c"]
    assert keys(lambda s: s.filter(header("h").cast("string") == "1")) == ["a"]


def test_values_take_the_serde_of_their_type() -> None:
    """And the next expression is typed against it."""
    assert values(lambda s: s.map_values(col("auction") * 2)) == [2, 4, None, 6]
    assert values(lambda s: s.map_values(col("bidder").upper())) == ["X", None, None, "Y"]
    assert values(lambda s: s.map_values_with_key(key() + "!")) == ["a!", "b!", "c!", "d!"]
    assert values(lambda s: s.map_values(col("price").cast("decimal")))[:2] == [Decimal("10.0"), Decimal("20.0")]
    doubled = values(lambda s: s.map_values(struct(n=col("auction"))).map_values(col("n") * 2).filter(value() > 2))
    assert doubled == [4, 6]


def test_keys_take_the_serde_of_their_type() -> None:
    """Grouping by an expression, too."""
    assert keys(lambda s: s.filter(value().is_not_null()).select_key(col("auction"))) == [1, 2, 3]
    assert keys(lambda s: s.select_key(timestamp().hour())) == [0, 1, 1, 2]
    builder = StreamsBuilder(value=Bid)
    counts = builder.stream("in").group_by(col("auction") % 2).count(name="counts")
    assert counts.key_serde is INT
    counts.to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", BIDS)
        assert [(r.key, r.value) for r in driver.read("out")] == [(1, 1), (0, 1), (1, 2)]


def test_branches() -> None:
    """Each record goes to the first condition that is true."""

    def use(stream: KStream) -> KStream:
        low, rest = stream.branch(col("price") < 15, default=True)
        return low.map_values(lit("low")).merge(rest.map_values(lit("rest")))

    assert values(use) == ["low", "rest", "rest", "rest"]


def test_select() -> None:
    """Dicts, or instances of a class; a null value stays null."""
    euros = col("price") * 0.5
    rows = values(lambda s: s.select(col("auction"), euros=euros, late=timestamp() > 3_600_000))
    assert rows[:2] == [{"auction": 1, "euros": 5.0, "late": False}, {"auction": 2, "euros": 10.0, "late": False}]
    assert rows[2] is None
    made = values(lambda s: s.select(col("auction"), euros=euros, at=timestamp(), value=Out))
    assert made[0] == Out(1, 5.0, datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC))
    assert values(lambda s: s.select(name=col("bidder"), value=lit(1)))[0] == {"name": "x", "value": 1}
    exact = values(lambda s: s.select(price=col("price").cast("decimal"), raw=header("h")))
    assert exact[0] == {"price": Decimal("10.0"), "raw": b"1"}


def test_with_columns() -> None:
    """Of declared and undeclared values."""
    more = values(lambda s: s.with_columns((col("price") + 1).alias("price"), twice=col("auction") * 2))
    assert more[0] == {"auction": 1, "price": 11.0, "bidder": "x", "twice": 2}
    assert more[2] is None
    plain = values(lambda s: s.with_columns(b=col("a") + 1), [Record("k", {"a": 1})], dict)
    assert plain == [{"a": 1, "b": 2}]
    into = values(lambda s: s.with_columns(price=lit(0.0), value=Bid))
    assert into[0] == Bid(1, 0.0, "x")


def test_serdes_tell_what_expressions_see() -> None:
    """Windowed keys are structs of key and bounds."""
    builder = StreamsBuilder(value=Bid)
    windowed = builder.stream("in").group_by_key().windowed_by(tumbling("1h", grace=0)).count()
    assert (
        str(scope_of_flow(windowed.to_stream()._flow).key)
        == "struct[key: string, start_ms: timestamp, end_ms: timestamp]"
    )
    selected = builder.stream("more").select(a=col("auction"), b=col("bidder"), at=timestamp())
    assert str(schema_of_serde(selected.value_serde)) == "struct[a: int64, b: string?, at: timestamp]"
    assert builder.stream("numbers").map_values(col("price")).value_serde is FLOAT
    assert builder.stream("texts", value=dict).map_values(col("a").cast("string")).value_serde is STRING


def test_a_row_that_fails_meets_the_policy() -> None:
    """With the expression and the row in the message."""
    with pytest.raises(ProcessingError, match=r"expression 1 / auction: division by zero.*The row has auction = 0"):
        values(lambda s: s.map_values(1 / col("auction")), [Record("a", Bid(0, 1.0))])


def test_what_does_not_fit_is_refused_when_the_operator_is_added() -> None:
    """Naming the operator."""
    for use, problem in (
        (
            lambda s: s.filter(col("prise") > 1),
            "operator 'in-filter', expression prise > 1: there is no column 'prise'",
        ),
        (lambda s: s.filter(col("price")), "operator 'in-filter', expression price: needs a condition"),
        (lambda s: s.map_values(col("price"), value=str), "expression price: its type is float64, but its serde needs"),
        (lambda s: s.select(), "operator 'in-select' has no columns"),
        (lambda s: s.select(col("price"), price=1), "operator 'in-select' has two columns 'price'"),
        (lambda s: s.select(a=object()), "operator 'in-select': <object object"),
        (lambda s: s.select(col("auction"), value=Out), "Out needs euros too"),
        (lambda s: s.map_values(lambda v: v, value=dict).with_columns(a=1, value=Out), "are not declared"),
        (lambda s: s.flat_map(col("price")), "needs a function"),
    ):
        with pytest.raises(TopologyError) as caught:
            use(StreamsBuilder(value=Bid).stream("in"))
        assert problem in str(caught.value)


def test_describe_prints_expressions_and_planners_find_them() -> None:
    """Topologies built twice are equal, which functions would not be."""

    def build() -> Any:
        builder = StreamsBuilder(value=Bid)
        stream = builder.stream("in").filter((col("price") > 15) & col("bidder").is_not_null(), name="dear")
        stream.select(p=when(col("price") > 20).then(1).otherwise(0), name="bit").to("out")
        return builder.build()

    topology = build()
    text = topology.describe()
    assert "dear (Filter) fn=[(price > 15) & is_not_null(bidder)]" in text
    assert "bit (MapValues) fn=[struct(value(), p=when(price > 20).then(1).otherwise(0))]" in text
    dear = topology.operators["dear"]
    assert isinstance(dear, FilterSpec)
    assert isinstance(dear.fn, ExpressionFunction)
    assert dear == build().operators["dear"]
