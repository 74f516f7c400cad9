"""What expressions give for one row: nulls, numbers, logic, branches, structs, and what they refuse."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.functions import (
    coalesce,
    col,
    concat,
    duration,
    greatest,
    header,
    key,
    least,
    left,
    lit,
    quotient,
    remainder,
    right,
    struct,
    timestamp,
    value,
    when,
    window_end,
    window_start,
)
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.tree import Expression, Extend
from penstock.topologies.expressions.types import schema_of

MAX = 2**63 - 1


def run(expression: Expression, value: Any = None, schema: Any = "unknown", **record: Any) -> Any:
    """The expression of one row."""
    row = compile_row(expression, schema)
    return row(record.get("key"), value, record.get("ts", 0), record.get("headers", ()))


def fault(expression: Expression, value: Any = None, schema: Any = "unknown") -> str:
    """What it says of a row on which it fails."""
    with pytest.raises(ExpressionError) as caught:
        run(expression, value, schema)
    return str(caught.value)


def test_truth_tables_are_those_of_sql() -> None:
    """Three values, both ways round."""
    a, b = col("a"), col("b")
    rows = [(x, y) for x in (True, False, None) for y in (True, False, None)]
    conjunctions = [run(a & b, {"a": x, "b": y}) for x, y in rows]
    disjunctions = [run(a | b, {"a": x, "b": y}) for x, y in rows]
    assert conjunctions == [True, False, None, False, False, False, None, False, None]
    assert disjunctions == [True, True, True, True, False, None, True, None, None]
    assert [run(~a, {"a": x}) for x in (True, False, None)] == [False, True, None]


def test_null_makes_null() -> None:
    """Operators and functions of null."""
    row = {"a": None, "b": 3}
    a, b = col("a"), col("b")
    for expression in (
        a + b,
        b - a,
        a == b,
        b < a,
        -a,
        a.abs(),
        a.lower(),
        concat("x", a),
        least(a, b),
        a.between(1, 2),
    ):
        assert run(expression, row) is None, expression
    assert run(a.is_null(), row) is True
    assert run(b.is_null(), row) is False
    assert run(a.is_not_null(), row) is False
    assert run(coalesce(a, b), row) == 3
    assert run(b == lit(None), row) is None


def test_is_in_has_three_values() -> None:
    """A null among the values leaves it open whether one is equal."""
    assert run(col("a").is_in(1, 2), {"a": 2}) is True
    assert run(col("a").is_in([1, 2]), {"a": 3}) is False
    assert run(col("a").is_in(1, None), {"a": 3}) is None
    assert run(col("a").is_in(1, None), {"a": 1}) is True
    assert run(col("a").is_in(1), {"a": None}) is None


@pytest.mark.parametrize("empty", [[], (), set(), frozenset()])
def test_nothing_is_in_no_values(empty: Any) -> None:
    """False, and null of null, as with any other list."""
    assert run(col("a").is_in(empty), {"a": 2}) is False
    assert run(~col("a").is_in(empty), {"a": 2}) is True
    assert run(col("a").is_in(empty), {"a": None}) is None


def test_is_in_takes_sets_in_one_order() -> None:
    """Whatever the order of the set, the expression is the same."""
    assert run(col("a").is_in({"x", "y"}), {"a": "y"}) is True
    for names in ({"b", "a", "c"}, frozenset(("c", "b", "a"))):
        assert col("a").is_in(names).same_as(col("a").is_in("a", "b", "c"))


def test_between_is_false_where_one_side_decides() -> None:
    """As the conjunction that it stands for."""
    assert run(col("a").between(1, 3), {"a": 3}) is True
    assert run(col("a").between(4, None), {"a": 3}) is False
    assert run(col("a").between(1, None), {"a": 3}) is None


def test_integer_arithmetic() -> None:
    """``/`` gives floats, ``//`` and ``%`` round down, ``quotient`` and ``remainder`` towards zero."""
    row = {"a": -7, "b": 2}
    schema = {"a": int, "b": int}
    a, b = col("a"), col("b")
    results = [
        run(e, row, schema) for e in (a + b, a - b, a * b, a / b, a // b, a % b, quotient(a, b), remainder(a, b))
    ]
    assert results == [-5, -9, -14, -3.5, -4, 1, -3, -1]
    assert [type(r) for r in results] == [int, int, int, float, int, int, int, int]
    assert run(2 - b, row) == 0
    assert run(10 // b, row) == 5
    assert run(7 % b, row) == 1
    assert run(3 / b, row) == 1.5


@pytest.mark.parametrize("schema", ["unknown", {"a": int, "b": int}])
def test_int64_overflow_is_an_error(schema: Any) -> None:
    """With declared and undeclared types."""
    a, b = col("a"), col("b")
    for expression, row in (
        (a + b, {"a": MAX, "b": 1}),
        (a - b, {"a": -MAX, "b": 2}),
        (a * b, {"a": 2**40, "b": 2**40}),
        (a // b, {"a": -MAX - 1, "b": -1}),
        (-a, {"a": -MAX - 1, "b": 0}),
        (a.abs(), {"a": -MAX - 1, "b": 0}),
        (quotient(a, b), {"a": -MAX - 1, "b": -1}),
    ):
        assert "int64 overflow" in fault(expression, row, schema), expression


@pytest.mark.parametrize("zero", [0, 0.0, Decimal(0)])
def test_division_by_zero_is_an_error(zero: Any) -> None:
    """Of every type of number, zero by zero too."""
    for numerator in (1, type(zero)(0)):
        row = {"a": numerator, "b": zero}
        for expression in (col("a") / col("b"), col("a") // col("b"), col("a") % col("b")):
            assert "division by zero" in fault(expression, row), (expression, row)


def test_floats_are_ieee() -> None:
    """NaN equals nothing; overflow is infinite; ints meet floats as floats."""
    row = {"n": math.nan, "x": 1e308, "i": 2**53 + 1}
    assert run(col("n") == col("n"), row) is False
    assert run(col("n") != col("n"), row) is True
    assert run(col("n").is_nan(), row) is True
    assert run(col("x") * 10, row) == math.inf
    assert run(col("i") == lit(float(2**53)), row) is True
    assert math.isnan(run(greatest(col("n"), 1.0), row))


@pytest.mark.parametrize("divisor", ["0.3", "-0.7", "0.9", "7e-1", "1e37", "123456789.5"])
@pytest.mark.parametrize("whole", ["-10000000000000000000000000000000000001", "9" * 37 + ".5", "6", "-0.7"])
def test_floors_and_remainders_of_large_decimals_are_exact(whole: str, divisor: str) -> None:
    """Nothing is rounded on the way to the quotient."""
    schema, row = {"a": Decimal, "b": Decimal}, {"a": Decimal(whole), "b": Decimal(divisor)}
    a, b = Fraction(whole), Fraction(divisor)
    assert Fraction(run(col("a") // col("b"), row, schema)) == a // b
    assert Fraction(run(col("a") % col("b"), row, schema)) == a % b


def test_decimals_have_38_digits_whatever_the_thread_says() -> None:
    """And round to even."""
    schema = {"a": Decimal}
    assert run(col("a") * 3, {"a": Decimal("0.1")}, schema) == Decimal("0.3")
    assert str(run(lit(1) / col("a"), {"a": Decimal(3)}, schema)) == "0." + "3" * 38
    assert run(col("a") // 2, {"a": Decimal("-3.5")}, schema) == -2
    assert run(col("a") % 2, {"a": Decimal("-3.5")}, schema) == Decimal("0.5")
    assert run(col("a").round(1), {"a": Decimal("0.25")}, schema) == Decimal("0.2")


def test_whole_numbers() -> None:
    """Rounding keeps the type; ties go to the even digit."""
    results = [
        run(e, {"x": -2.5, "i": 5}) for e in (col("x").round(), col("x").floor(), col("x").ceil(), col("i").floor())
    ]
    assert results == [-2.0, -3.0, -2.0, 5]
    assert [type(r) for r in results] == [float, float, float, int]
    assert run(col("x").round(2), {"x": 2.675}) == 2.67
    assert run(col("x").sqrt(), {"x": 9}) == 3.0
    assert "negative" in fault(col("x").sqrt(), {"x": -1})


def test_branches_evaluate_only_what_they_need() -> None:
    """A guard before a division; null conditions go on."""
    mean = when(col("n") > 0).then(col("sum") / col("n")).when(col("n").is_null()).then(-1).otherwise(0)
    assert [run(mean, {"n": n, "sum": 6.0}) for n in (3, 0, None)] == [2.0, 0, -1]
    assert run(when(col("a") > 1).then("big"), {"a": 0}) is None
    assert run((col("n") == 0) | (1 / col("n") > 1), {"n": 0}) is True
    assert run((col("n") != 0) & (1 / col("n") > 1), {"n": 0}) is False
    assert run(coalesce(1, lit(1) / 0)) == 1


def test_branches_of_two_number_types_meet_in_the_wider() -> None:
    """An int64 that stands for a float64 is one."""
    schema = {"i": int, "x": float}
    assert type(run(when(col("i") > 0).then(col("i")).otherwise(col("x")), {"i": 1, "x": 2.0}, schema)) is float
    assert type(run(coalesce(col("i"), col("x")), {"i": 1, "x": 2.0}, schema)) is float
    assert run(greatest(col("i"), Decimal("0.5")), {"i": 1}, {"i": int}) == Decimal(1)


class Bid(msgspec.Struct):
    price: int
    at: datetime.datetime
    tags: list[str] = []


class Order(msgspec.Struct):
    bid: Bid | None
    rate: float


class Pair(NamedTuple):
    a: int
    b: str | None


class Optional(TypedDict, total=False):
    a: int


def test_columns_of_dicts_and_objects() -> None:
    """Nested fields, list elements, nulls on the way, datetimes as milliseconds."""
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 999_999, datetime.UTC)
    order = Order(Bid(5, moment, ["x", "y"]), 1)
    assert run(col("bid.price"), order, Order) == 5
    assert run(col("bid.price"), order) == 5
    assert run(col("bid")["price"], {"bid": {"price": 7}}) == 7
    assert run(col("bid.at"), order, Order) == 1999
    assert run(col("bid.at"), order) == 1999
    assert run(col("bid.tags")[1], order, Order) == "y"
    assert run(col("bid.tags")[2], order, Order) is None
    assert run(col("bid.tags").length(), order, Order) == 2
    assert run(col("bid.price"), Order(None, 1.0), Order) is None
    assert type(run(col("rate"), order, Order)) is float
    assert run(col("b"), Pair(1, "z"), Pair) == "z"
    assert run(col("a"), {}, Optional) is None
    assert run(col("missing"), {"a": 1}) is None


def test_columns_of_a_null_record_are_null() -> None:
    """Whatever was declared: a tombstone passes no filter."""
    assert run(col("rate") > 1, None, Order) is None
    assert run(value(), None, "int64") is None


def test_a_value_of_another_type_than_declared_is_an_error() -> None:
    """The message has the column, the type and the value."""
    for held, schema in (
        ("x", int),
        (True, int),
        (2**63, int),
        (1.5, int),
        ("1", float),
        (1, str),
        (None, int),
        (1, bool),
        ([1], {"b": int}),
        (1, list[int]),
        (1.5, Decimal),
    ):
        message = fault(col("a").is_null(), {"a": held}, {"a": schema})
        assert "a is declared" in message
        assert f"a = {held!r}" in message
    assert "'abc' (str) has no field 'x'" in fault(col("a.x") > 1, {"a": "abc"})
    assert "has no field 'x'" in fault(col("x") > 1, object())


def test_undeclared_types_are_looked_at() -> None:
    """What a declared schema would refuse when the topology is built is an error of the row."""
    assert "cannot compare string 'x' with int64 1" in fault(col("a") == 1, {"a": "x"})
    assert "string * string is not defined" in fault(col("a") * col("a"), {"a": "x"})
    assert "bool + int64 is not defined" in fault(col("a") + 1, {"a": True})
    assert "lower() takes string" in fault(col("a").lower(), {"a": 1})
    assert "- takes" not in fault(-col("a"), {"a": "x"})
    assert "a condition must be true, false or null" in fault(~col("a"), {"a": 1})
    assert "a condition must be" in fault(when(col("a")).then(1), {"a": "yes"})
    assert run(col("a") + "b", {"a": "a"}) == "ab"


def test_an_error_tells_expression_and_row() -> None:
    """And is one that the operator's policy takes."""
    message = fault(col("total") / col("n.value"), {"total": 3, "n": {"value": 0}})
    assert message == (
        "expression total / n.value: division by zero; guard it: when(divisor != 0).then(…). "
        "The row has total = 3, n.value = 0"
    )
    assert issubclass(ExpressionError, ProcessingError)


def test_the_rest_of_the_record() -> None:
    """Key, time and headers; the last header of a name counts."""
    record = {"key": "k", "ts": 86_400_000, "headers": (("h", b"1"), ("i", None), ("h", b"2"))}
    assert run(key(), **record) == "k"
    assert run(timestamp() - duration("1h"), **record) == 82_800_000
    assert run(header("h").cast("string"), **record) == "2"
    assert run(header("i"), **record) is None
    assert run(header("j"), **record) is None
    windowed = {"key": Window("k", 10, 20)}
    assert run(window_end() - window_start(), **windowed) == 10


class Window(NamedTuple):
    key: str
    start_ms: int
    end_ms: int


def test_joins_have_two_sides() -> None:
    """The right one may be null."""
    row = compile_row(
        left("a") + coalesce(right("b"), 0), ExpressionScope(schema_of({"a": int}), right=schema_of({"b": int}))
    )
    assert row(None, {"a": 1}, 0, {"b": 2}) == 3
    assert row(None, {"a": 1}, 0, None) == 1


class Out(msgspec.Struct, frozen=True):
    name: str
    rate: float = 0.0
    at: datetime.datetime | None = None


def test_structs_become_dicts_or_instances() -> None:
    """Instances get what they declare: floats of ints, datetimes of milliseconds."""
    fields = struct(name=col("n").upper(), rate=col("r"), at=col("t"))
    row = {"n": "x", "r": 2, "t": 1000}
    assert run(fields, row) == {"name": "X", "rate": 2, "at": 1000}
    made = type(fields)(fields.fields, Out)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert run(made, row, {"n": str, "r": int, "t": "timestamp"}) == Out("X", 2.0, moment)
    assert "Out.name is declared string" in fault(made, {"n": None, "r": 1, "t": 1})


def test_extend_keeps_the_columns_in_place() -> None:
    """Of a declared struct and of whatever the row holds."""
    more = Extend(value(), (("rate", col("rate") * 2), ("new", lit(1))))
    assert list(run(more, Order(None, 2.0), Order).items()) == [("bid", None), ("rate", 4.0), ("new", 1)]
    assert run(more, {"rate": 1, "x": 0}) == {"rate": 2, "x": 0, "new": 1}
    assert run(more, Order(None, 2.0)) == {"bid": None, "rate": 4.0, "new": 1}
    assert run(more, None, Order) is None


def test_a_condition_must_be_one() -> None:
    """When the row shows it, where the type was unknown."""
    row = compile_row(col("a"), condition=True)
    assert [row(None, {"a": v}, 0, ()) for v in (True, False, None)] == [True, False, None]
    with pytest.raises(ExpressionError, match="a condition must be true, false or null, not 1"):
        row(None, {"a": 1}, 0, ())
    with pytest.raises(TopologyError, match="needs a condition, and a is int64"):
        compile_row(col("a"), {"a": int}, condition=True)
