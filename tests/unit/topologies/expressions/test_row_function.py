"""Expressions as the functions that operators call, and as aggregates."""

from __future__ import annotations

import itertools
import pickle
from decimal import Decimal
from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators.expression_aggregates import aggregate_type, aggregator_of, aggregator_of_all
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.functions import col, count, key, left, lit, right, timestamp
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.row_function import to_function
from penstock.topologies.expressions.tree import AggregateExpression
from penstock.topologies.expressions.types import UNKNOWN, schema_of

ROWS: list[dict[str, Any]] = [{"a": 3, "b": "x"}, {"a": None, "b": "y"}, {"a": 1, "b": "x"}, {"a": 4, "b": None}]
SCHEMA = {"a": "int64?", "b": "string?"}


def test_each_form_is_called_with_its_arguments() -> None:
    """Key, value, time and headers; the sides of a join."""
    assert to_function(col("a") + 1, ("value",))({"a": 1}) == 2
    assert to_function(key() + col("a"))(1, {"a": 1}) == 2
    assert to_function(key() + timestamp(), ("key", "value", "timestamp", "headers"))(1, None, 5, ()) == 6
    sides = ExpressionScope(UNKNOWN, right=UNKNOWN)
    assert to_function(left("a") + right("a"), ("left", "right"), sides)({"a": 1}, {"a": 2}) == 3
    assert to_function(key() + right("a"), ("key", "left", "right"), sides)(1, None, {"a": 2}) == 3
    with pytest.raises(TopologyError, match="no row function has the arguments"):
        to_function(col("a"), ("value", "key"))


def test_functions_keep_their_tree() -> None:
    """For ``describe``, for planners, and so that topologies built twice are equal."""
    function = to_function(col("a") > 1, ("value",), SCHEMA, condition=True)
    same = to_function(col("a") > 1, ("value",), SCHEMA, condition=True)
    assert repr(function) == function.expression.text() == "a > 1"
    assert str(function.result) == "bool?"
    assert function == same
    assert hash(function) == hash(same)
    assert function != to_function(col("a") > 1, ("value",), {"a": int}, condition=True)
    assert function != to_function(col("a") > 1, ("key", "value"), SCHEMA, condition=True)
    copy = pickle.loads(pickle.dumps(function))
    assert copy == function
    assert copy({"a": 2}) is True


def test_functions_without_key_or_time_refuse_them() -> None:
    """When they are made, not with a null at run time."""
    with pytest.raises(TopologyError, match=r"operator 'op', expression key\(\) == 1: key\(\) is not available here"):
        to_function(key() == 1, ("value",), operator="op")
    with pytest.raises(TopologyError, match=r"timestamp\(\) is not available here"):
        to_function(timestamp() > 1)


@pytest.mark.parametrize(
    ("aggregate", "tp", "expected"),
    [
        (count(), "int64", 4),
        (col("a").count(), "int64", 3),
        (count().where(col("b") == "x"), "int64", 2),
        (col("a").sum(), "int64?", 8),
        (col("a").sum().where(col("a") < 4).where(col("b") == "x"), "int64?", 4),
        ((col("a") * 0.5).sum(), "float64?", 4.0),
        (col("a").cast("decimal").sum(), "decimal?", Decimal(8)),
        (col("a").min(), "int64?", 1),
        (col("b").max(), "string?", "y"),
        (col("a").mean(), "float64?", 8 / 3),
        (col("a").variance(), "float64?", 7 / 3),
        (col("a").variance(population=True), "float64?", 14 / 9),
        (col("a").std_dev(population=True), "float64?", (14 / 9) ** 0.5),
        (col("b").first(), "string?", "x"),
        (col("a").last(), "int64?", 4),
        (col("b").collect_list(), "list[string]", ["x", "y", "x"]),
        (col("b").collect_set(), "list[string]", ["x", "y"]),
        (col("b").count_distinct(), "int64", 2),
        (col("a").sum().where(lit(False)), "int64?", None),
        (col("a").collect_list().where(lit(None)), "list[int64]", []),
    ],
)
def test_aggregates(aggregate: AggregateExpression, tp: str, expected: Any) -> None:
    """Nulls and rows outside the condition take no part; accumulators survive their serde."""
    made = aggregator_of(aggregate, SCHEMA)
    acc = made.init()
    for place, row in enumerate(ROWS):
        acc = made.serde.deserialize(made.serde.serialize(made.add(acc, row, place)))
    assert made.result(acc) == pytest.approx(expected)
    assert str(aggregate_type(aggregate, SCHEMA)) == tp
    assert made.name == aggregate.text()


def test_several_aggregates_and_expressions_over_them() -> None:
    """Parts that are the same are kept once."""
    made, tp = aggregator_of_all(
        {"total": col("a").sum(), "mean": (col("a").sum() / col("a").count()).round(1), "rows": count()}, SCHEMA
    )
    assert made.result(made.fold((r, 0) for r in ROWS)) == {"total": 8, "mean": 2.7, "rows": 4}
    assert str(tp) == "struct[total: int64?, mean: float64?, rows: int64]"
    assert made.name == "agg(total=sum(a), mean=round(sum(a) / count(a), 1), rows=count())"
    assert len(made.init()) == 3


def test_the_result_of_a_sum_must_be_an_int64() -> None:
    """A sum may leave the bounds and come back; floats and decimals may grow."""
    made = aggregator_of(col("a").sum(), {"a": int}, operator="totals")
    acc = made.fold([({"a": 2**63 - 1}, 0), ({"a": 1}, 0)])
    with pytest.raises(
        ResultError, match=r"operator 'totals', expression sum\(a\): int64 overflow: 9223372036854775808 "
    ):
        made.result(acc)
    assert made.serde.deserialize(made.serde.serialize(acc)) == acc
    assert made.result(made.add(acc, {"a": -1}, 0)) == 2**63 - 1
    wide = aggregator_of(col("a").cast("decimal").sum(), {"a": int})
    assert wide.result(wide.fold([({"a": 2**63 - 1}, 0)] * 2)) == 2 * (2**63 - 1)


def test_the_result_of_a_sum_of_decimals_has_38_digits() -> None:
    """It is rounded once, so the order of the records does not matter."""
    made = aggregator_of(col("d").sum(), {"d": Decimal})
    rows = [({"d": Decimal(text)}, 0) for text in ("9" * 38, "0.4", "0.4", "0.1", "-0.00")]
    for order in itertools.permutations(rows):
        assert made.result(made.fold(order)) == Decimal("1e38")
        assert len(made.result(made.fold(order)).as_tuple().digits) == 38


def test_aggregates_are_refused_when_the_topology_is_built() -> None:
    """Of a column of the wrong type, of none, or beside a column outside."""
    for fields, problem in (
        ({"t": col("b").sum()}, "sum() takes decimal or float64 or int64, and b is string?; cast it"),
        ({"t": col("c").count()}, "there is no column 'c'"),
        ({"t": col("a")}, "t = a: a is outside an aggregate; give aggregates"),
        ({"t": col("a").sum() + col("a")}, "a is outside an aggregate"),
        ({"t": lit(1)}, "it has no aggregate"),
        (
            {"t": count().where(col("a"))},
            "operator 'op', expression count(where=a): where() needs a condition, and a is int64?",
        ),
        ({"t": key().count()}, "key() is not available here"),
        ({"t": col("a").sum() + "x"}, "int64? + string is not defined"),
        ({}, "agg() has no aggregates; name at least one"),
    ):
        with pytest.raises(TopologyError) as caught:
            aggregator_of_all(fields, SCHEMA, operator="op")
        assert problem in str(caught.value)
    assert schema_of(SCHEMA).kind == "struct"
