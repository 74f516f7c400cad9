"""Expressions in triggered windows, for times and keys, and over rows of text."""

from __future__ import annotations

import msgspec
import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import INT
from penstock.state.serdes.text_serdes import csv_row
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.typed import schema_of_serde
from penstock.topologies.expressions.functions import col, count, key, timestamp, window_start
from penstock.topologies.triggers import after_count, repeatedly
from penstock.topologies.windows import tumbling


class Bid(msgspec.Struct, frozen=True):
    price: int
    at: int


BIDS = [Record("a", Bid(10, 500), 1), Record("a", Bid(20, 1500), 2), Record("b", Bid(5, 2500), 3)]


def test_the_event_time_is_an_expression() -> None:
    """Of the record's columns and of its time so far."""
    builder = StreamsBuilder(value=Bid)
    builder.stream("in").with_timestamp(col("at") * 2 + timestamp()).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", BIDS)
        assert [r.timestamp_ms for r in driver.read("out")] == [1001, 3002, 5003]
    with pytest.raises(TopologyError, match="operator 'later', expression att"):
        builder.stream("more").with_timestamp(col("att"), name="later")


def test_panes_of_aggregates() -> None:
    """Whenever two records are there."""
    builder = StreamsBuilder(value=Bid)
    windows = builder.stream("in").group_by_key().windowed_by(tumbling("1s", grace=0))
    panes = windows.triggered(repeatedly(after_count(2))).agg(n=count(), total=col("price").sum())
    assert str(schema_of_serde(panes.value_serde)) == "struct[n: int64, total: int64?]"
    panes.to("out")
    single = windows.triggered(repeatedly(after_count(2))).aggregate(col("price").max())
    assert single.value_serde is INT
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", BIDS)
        assert [r.value for r in driver.read("out")] == [{"n": 2, "total": 30}]


def test_keys_of_windowed_tables() -> None:
    """Their start, and the record's key inside, under a serde of their own."""
    builder = StreamsBuilder(value=Bid)
    table = builder.stream("in").group_by_key().windowed_by(tumbling("1s", grace=0)).count()
    started = table.to_stream(window_start())
    assert started.key_serde.name == "int"
    named = table.to_stream(key()["key"])
    assert named.key_serde.name == "string"
    named.to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", BIDS)
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", 1), ("a", 2), ("b", 1)]


def test_rows_of_text_declare_their_columns() -> None:
    """Null where the text for it stands."""
    builder = StreamsBuilder()
    rows = builder.stream("in", value=csv_row({"price": int, "note": str}))
    assert str(schema_of_serde(rows.value_serde)) == "struct[price: int64?, note: string?]"
    rows.filter(col("price") > 1).map_values(col("note")).to("out")
    with pytest.raises(TopologyError, match="did you mean 'price'"):
        rows.filter(col("prize") > 1)
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", {"price": 2, "note": "x"}, 0), Record("b", {"price": None, "note": "y"}, 0)])
        assert [(r.key, r.value) for r in driver.read("out")] == [("a", "x")]


def test_columns_may_be_called_as_options_are() -> None:
    """An aggregate given for ``name`` or ``value`` is one."""
    builder = StreamsBuilder(value=Bid)
    grouped = builder.stream("in").group_by_key()
    table = grouped.agg(value=col("price").sum(), name=count())
    assert table.name == "in-agg"
    table.to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", BIDS[:1])
        assert [r.value for r in driver.read("out")] == [{"name": 1, "value": 10}]
