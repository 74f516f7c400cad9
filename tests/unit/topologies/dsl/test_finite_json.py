"""Inf and nan do not become nulls of JSON: the record that has one is in error, by rows and by columns."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.log import Record
from penstock.state.serdes.serde import JSON, Serde, finite
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators.numeric import sum_
from penstock.topologies.columnar.json_writing import DictOf, encoder_of, written_json
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, struct
from penstock.topologies.operator_api.columns import CodedColumn, Column, NumberColumn, StructColumn

NO_JSON = [math.inf, -math.inf, math.nan]
TYPED = Serde("json:Row", msgspec.json.encode, orjson.loads)


@dataclasses.dataclass
class Point:
    x: float | None


class Row(msgspec.Struct, frozen=True):
    x: float | None


def piped(builder: StreamsBuilder, values: list[Any]) -> list[Any]:
    """What comes out of ``out`` for these values of ``in``."""
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("k", v, i) for i, v in enumerate(values)])
        return [r.value for r in driver.read("out")]


@pytest.mark.parametrize("serde", [finite(JSON), finite(TYPED)])
@pytest.mark.parametrize("bad", NO_JSON)
def test_where_it_is_is_said(serde: Serde[Any], bad: float) -> None:
    """Wherever that is; nulls and the text of one are fine."""
    for value, place in [({"a": bad}, ".a"), ({"a": [1, {"b": bad}], "c": None}, ".a.1.b"), (bad, "the top")]:
        with pytest.raises(SerdeError, match=rf"JSON has no inf and no nan, but there is {bad} at {place}"):
            serde.serialize(value)
    with pytest.raises(SerdeError, match=r"at \.a\.x;"):
        serde.serialize({"a": Point(bad)})
    good = {"a": None, "null": "null", "b": [1.5, None, {"c": (2.0, True)}], "d": Point(None)}
    assert serde.serialize(good) == msgspec.json.encode(good)


def test_serdes_of_equal_encoders_are_equal() -> None:
    """As others are, so that stores and topics of one type are seen to be the same."""
    assert finite(JSON) == finite(JSON) != JSON


@pytest.mark.parametrize("columns", [{"x": float}, None])
def test_results_of_expressions(columns: dict[str, Any] | None) -> None:
    """Of declared floats, and of what is not declared."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=str, value=dict if columns is None else Row)
    rows.select(y=col("x") * 10).to("out")
    given = [{"x": v} if columns is None else Row(v) for v in (1.0, None, 1e308)]
    assert piped(builder, given[:2]) == [{"y": 10.0}, {"y": None}]
    with pytest.raises(ProcessingError, match=r"JSON has no inf and no nan, but there is inf at \.y"):
        piped(builder, given)


@pytest.mark.parametrize("size", [4, 100])
def test_keys_are_kept_apart(size: int) -> None:
    """A group of null is of nulls alone: other keys that JSON cannot write are in error, in small and large batches."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=str, value=Row)
    rows.group_by(col("x") * 10).count().to_stream().to("numbers")
    builder.sql("SELECT x * 10 AS y, COUNT(*) AS n FROM rows GROUP BY x * 10", rows=rows).to_stream().to("out")
    assert piped(builder, [Row(None), Row(1.0), Row(None)])[-1] == {"y": None, "n": 2}
    with pytest.raises(ProcessingError, match=r"JSON has no inf and no nan, but there is -inf"):
        piped(builder, [Row(None)] * (size - 1) + [Row(-1e308)])


def test_results_of_aggregates() -> None:
    """A sum that has become infinite is not written as the sum of nothing."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=str, value=dict)
    rows.group_by_key().aggregate(sum_("x")).to_stream().to("out")
    assert piped(builder, [{"x": None}, {"x": 1e308}]) == [None, 1e308]
    with pytest.raises(ProcessingError, match="JSON has no inf and no nan, but there is inf at the top"):
        piped(builder, [{"x": 1e308}, {"x": 1e308}])


@pytest.mark.parametrize("size", [4, 100])
def test_only_the_record_is_skipped(size: int) -> None:
    """By rows and by columns: those beside it are written, in values and in keys."""
    options = TaskOptions(policies=Policies(processing="skip"))
    for by_key in (False, True):
        builder = StreamsBuilder()
        rows = builder.stream("in", key=str, value=Row)
        made = rows.select(y=col("x") * 10)
        (made.select_key(struct(y=col("y"))) if by_key else made).to("out")
        with TopologyTestDriver(builder, options=options) as driver:
            given = [Row(1e308 if i % 4 == 3 else None if i % 4 == 2 else float(i)) for i in range(size)]
            driver.pipe_all("in", [Record("k", v, i) for i, v in enumerate(given)])
            found = [r.value["y"] for r in driver.read("out")]
        assert found == [None if v.x is None else v.x * 10 for v in given if v.x != 1e308]


def listed(written: Column | list[bytes | None]) -> list[bytes | None]:
    """The bytes of each record."""
    return written if isinstance(written, list) else written.to_list()


@pytest.mark.parametrize("serde", [JSON, TYPED])
@pytest.mark.parametrize("bad", NO_JSON)
def test_columns_are_written_as_rows_are(serde: Serde[Any], bad: float) -> None:
    """What refuses inf and nan leaves their batch to the rows, and writes any other as before."""
    for number in (bad, 1.5, None):
        array = np.array([0.0 if number is None else number, 2.5])
        floats = NumberColumn(array, None if number is not None else np.array([True, False]))
        texts = CodedColumn(np.array([0, 1], np.int32), ["null", number])
        column = StructColumn({"f": floats, "t": texts}, DictOf(("f", "t")))
        plain, strict = encoder_of(serde), encoder_of(finite(serde))
        assert plain is not None and strict is not None
        expected, found = written_json(column, plain), written_json(column, strict)
        assert expected is not None
        if number is bad:
            assert found is None
        else:
            assert found is not None and listed(found) == listed(expected)
