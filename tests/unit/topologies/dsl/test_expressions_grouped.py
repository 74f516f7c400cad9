"""Expressions in aggregations and joins, through the real engine."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import INT
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import max_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.typed import schema_of_serde
from penstock.topologies.expressions.functions import coalesce, col, count, left, right, struct, when
from penstock.topologies.windows import tumbling


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int


class Auction(msgspec.Struct, frozen=True):
    title: str
    reserve: int | None = None


class Totals(msgspec.Struct, frozen=True):
    bids: int
    total: int | None
    mean: float = 0.0


BIDS = [
    Record("a", Bid(1, 10), 0),
    Record("a", Bid(1, 20), 5),
    Record("b", Bid(2, 7), 6),
    Record("a", Bid(1, 3), 60_000),
]


def rows(builder: StreamsBuilder, **topics: list[Record]) -> list[tuple[Any, Any]]:
    """Keys and values of the topic ``out``, once the inputs are in."""
    with TopologyTestDriver(builder) as driver:
        for topic, records in topics.items():
            driver.pipe_all(topic, records)
        return [(r.key, r.value) for r in driver.read("out")]


def test_several_aggregates() -> None:
    """As dicts, whose columns the next expression knows, and as instances."""
    builder = StreamsBuilder(value=Bid)
    grouped = builder.stream("in").group_by_key()
    table = grouped.agg(bids=count(), total=col("price").sum(), mean=col("price").sum() / count(), name="totals")
    assert str(schema_of_serde(table.value_serde)) == "struct[bids: int64, total: int64?, mean: float64?]"
    table.to_stream().filter(col("bids") > 1).to("out")
    assert rows(builder, **{"in": BIDS}) == [
        ("a", {"bids": 2, "total": 30, "mean": 15.0}),
        ("a", {"bids": 3, "total": 33, "mean": 11.0}),
    ]
    builder = StreamsBuilder(value=Bid)
    grouped = builder.stream("in").group_by_key()
    grouped.agg(bids=count(), total=col("price").sum().where(col("price") > 5), value=Totals).to("out")
    assert rows(builder, **{"in": BIDS})[-1] == ("a", Totals(3, 30))


def test_one_aggregate_and_ready_ones_beside_expressions() -> None:
    """A single one has the serde of its type."""
    builder = StreamsBuilder(value=Bid)
    table = builder.stream("in").group_by(col("auction")).aggregate(col("price").max() - col("price").min())
    assert table.value_serde is INT
    table.to("out")
    assert rows(builder, **{"in": BIDS}) == [(1, 0), (1, 10), (2, 0), (1, 17)]
    builder = StreamsBuilder(value=Bid)
    builder.stream("in").group_by_key().agg(top=max_("price"), cents=col("price").cast("decimal").sum()).to("out")
    assert rows(builder, **{"in": BIDS[:2]})[-1] == ("a", {"top": 20, "cents": "30"})
    builder = StreamsBuilder(value=Bid)
    builder.stream("in").group_by_key().agg(cents=col("price").cast("decimal").sum()).to("out")
    assert rows(builder, **{"in": BIDS[:2]})[-1] == ("a", {"cents": Decimal(30)})


def test_windowed_aggregates_on_close() -> None:
    """One result per window, under the window's start."""
    builder = StreamsBuilder(value=Bid)
    windows = builder.stream("in").group_by_key().windowed_by(tumbling("1m", grace=0))
    closed = windows.agg(total=col("price").sum(), emission="on_close", name="totals")
    closed.to_stream().select(col("total")).select_key(lambda key, value: key.start_ms, key=int).to("out")
    assert rows(builder, **{"in": BIDS}) == [(0, {"total": 30}), (0, {"total": 7})]


def test_stream_table_joins() -> None:
    """Of dicts and instances; the right side of a left join may be null."""
    titled = struct(title=right("title"), price=left("price"))

    def build(joiner: Any, value: Any = None, *, outer: bool = False) -> StreamsBuilder:
        builder = StreamsBuilder()
        table = builder.table("auctions", value=Auction)
        stream = builder.stream("bids", value=Bid)
        (stream.left_join if outer else stream.join)(table, joiner, value=value).to("out")
        return builder

    topics = {"auctions": [Record("a", Auction("vase"), 0)], "bids": BIDS[:3]}
    assert rows(build(titled), **topics) == [
        ("a", {"title": "vase", "price": 10}),
        ("a", {"title": "vase", "price": 20}),
    ]
    assert rows(build(right("title") + "!"), **topics) == [("a", "vase!"), ("a", "vase!")]
    named = struct(title=coalesce(right("title"), "?"))
    assert rows(build(named, Auction, outer=True), **topics)[-1] == ("b", Auction("?"))
    with pytest.raises(TopologyError, match=r"Auction\.title is string, but got string\?"):
        build(struct(title=right("title")), Auction, outer=True)
    with pytest.raises(TopologyError, match=r"operator 'bids-join', expression left.prise: there is no column 'prise'"):
        build(left("prise"))


def test_stream_stream_joins_with_a_condition() -> None:
    """A pair for which the condition is not true is none."""
    builder = StreamsBuilder(value=Bid)
    bids, asks = builder.stream("bids"), builder.stream("asks")
    joined = bids.join(
        asks, left("price") - right("price"), within="1m", grace=0, condition=left("price") >= right("price")
    )
    assert joined.value_serde is INT
    joined.to("out")
    asked = [Record("a", Bid(1, 15), 0), Record("a", Bid(1, 5), 1)]
    assert sorted(rows(builder, bids=BIDS[:2], asks=asked)) == [("a", 5), ("a", 5), ("a", 15)]


def test_tables() -> None:
    """Filters delete what no longer passes, maps and joins take the serde of their type."""
    builder = StreamsBuilder(value=Bid)
    bids, more = builder.table("bids"), builder.table("more")
    bids.filter(col("price") > 5).map_values(struct(price=col("price"))).to_stream().to("out")
    bids.filter_not(col("price") > 5).map_values(col("price")).to_stream().to("low")
    bids.left_join(more, left("price") + coalesce(right("price"), 0)).to_stream().to("joined")
    topics = [Record("a", Bid(1, 10), 0), Record("a", Bid(1, 4), 1), Record("b", Bid(1, 7), 2), Record("b", None, 3)]
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("bids", topics)
        driver.pipe_all("more", [Record("a", Bid(0, 100), 4)])
        read = {t: [(r.key, r.value) for r in driver.read(t)] for t in ("out", "low", "joined")}
    assert read["out"] == [("a", {"price": 10}), ("a", None), ("b", {"price": 7}), ("b", None)]
    assert [r for r in read["low"] if r[1] is not None] == [("a", 4)]
    assert [v for _, v in read["joined"]] == [10, 4, 7, None, 104]


def test_a_foreign_key_and_its_joiner_are_expressions() -> None:
    builder = StreamsBuilder(key=int)
    bids, auctions = builder.table("bids", value=Bid), builder.table("auctions", value=Auction)
    titled = struct(title=right("title"), price=left("price"))
    bids.join_foreign(auctions, col("auction"), titled).to("inner")
    bids.left_join_foreign(auctions, col("auction"), titled).to("left")
    with TopologyTestDriver(builder, arrival_order=True) as driver:
        driver.pipe("auctions", 1, Auction("chair"), 0)
        driver.pipe("bids", 7, Bid(1, 10), 1)
        driver.pipe("bids", 8, Bid(2, 20), 2)
        assert driver.read("inner") == [Record(7, {"title": "chair", "price": 10}, 1)]
        assert [(r.key, r.value) for r in driver.read("left")] == [
            (7, {"title": "chair", "price": 10}),
            (8, {"title": None, "price": 20}),
        ]


def test_a_foreign_key_that_is_no_column_is_refused() -> None:
    builder = StreamsBuilder(key=int)
    bids, auctions = builder.table("bids", value=Bid), builder.table("auctions", value=Auction)
    with pytest.raises(TopologyError, match="auktion"):
        bids.join_foreign(auctions, col("auktion"), left("price"))


def test_a_global_table_is_joined_by_an_expression() -> None:
    builder = StreamsBuilder()
    auctions = builder.global_table("auctions", key=int, value=Auction)
    bids = builder.stream("bids", value=Bid)
    titled = struct(title=right("title"), price=left("price"))
    bids.join_global(auctions, col("auction") % 10, titled).to("inner")
    bids.left_join_global(auctions, col("auction") % 10, titled).to("left")
    with TopologyTestDriver(builder, arrival_order=True) as driver:
        driver.pipe("auctions", 1, Auction("chair"), 0)
        driver.pipe("bids", "a", Bid(11, 10), 1)
        driver.pipe("bids", "b", Bid(12, 20), 2)
        assert driver.read("inner") == [Record("a", {"title": "chair", "price": 10}, 1)]
        assert [r.value["title"] for r in driver.read("left")] == ["chair", None]


def test_a_tables_rows_grouped_by_an_expression() -> None:
    """As by the function that says the same, also of rows that change their group, have none, or are deleted."""
    of = [("1", Bid(7, 4)), ("2", Bid(7, 5)), ("1", Bid(8, 6)), ("2", Bid(0, 5)), ("3", Bid(8, 1)), ("1", None)]

    def totals(by: Any, **serdes: Any) -> list[tuple[Any, Any]]:
        builder = StreamsBuilder(value=Bid)
        groups = builder.table("in").group_by(by, **serdes)
        groups.agg(total=col("price").sum(), rows=count()).to("out")
        return rows(builder, **{"in": [Record(key, bid, 0) for key, bid in of]})

    found = totals(when(col("auction") > 0).then(col("auction")).otherwise(None))
    assert found == totals(lambda key, bid: (bid.auction or None, bid), key=int)
    assert found[0] == (7, {"total": 4, "rows": 1}) and found[-1] == (8, {"total": 1, "rows": 1})


def test_a_tables_group_that_is_not_there_is_refused_when_built() -> None:
    with pytest.raises(TopologyError, match="price2"):
        StreamsBuilder(value=Bid).table("in").group_by(col("price2"))
