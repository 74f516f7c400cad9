"""Numbers as SQL has them: division, remainders, rounding, decimals."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.unit.topologies.sql.conftest import Bid, Query, inputs_of


def one(query: Query, expression: str, **columns: Any) -> Any:
    """What the expression is of one bid, or of one event of these undeclared columns."""
    if columns:
        ((_, value),) = query(f"SELECT {expression} AS x FROM events", events=[Record("k", columns, 0)])
    else:
        ((_, value),) = query(f"SELECT {expression} AS x FROM bids", bids=[Record("k", Bid(1, 1, 10), 0)])
    return value["x"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ROUND(0.5)", 1.0),
        ("ROUND(2.5)", 3.0),
        ("ROUND(-2.5)", -3.0),
        ("ROUND(2.675, 2)", 2.68),
        ("ROUND(1e300, 2)", 1e300),
        ("ROUND(price)", 10),
        ("ROUND(CAST('0.125' AS DECIMAL(5,3)), 2)", Decimal("0.13")),
        ("ROUND(CAST('-0.125' AS DECIMAL(5,3)), 2)", Decimal("-0.13")),
        ("CAST('2.5' AS DECIMAL(10,0))", Decimal(3)),
        ("CAST('2.7' AS DECIMAL)", Decimal(3)),
        ("CAST('-2.5' AS DECIMAL(10))", Decimal(-3)),
        ("CAST(2.675 AS DECIMAL(10, 2))", Decimal("2.68")),
        ("TRY_CAST('x' AS DECIMAL(10, 2))", None),
        ("CAST('99.994' AS DECIMAL(4, 2))", Decimal("99.99")),
        ("CAST('-0.004' AS DECIMAL(2, 2))", Decimal("-0.00")),
        ("TRY_CAST('99.995' AS DECIMAL(4, 2))", None),
        ("TRY_CAST(12345 AS DECIMAL(4))", None),
        ("TRY_CAST('1e40' AS DECIMAL(38, 2))", None),
    ],
)
def test_ties_are_rounded_away_from_zero(query: Query, expression: str, expected: Any) -> None:
    """Of both floats and decimals; a decimal without a scale is a whole number."""
    found = one(query, expression)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "expression", ["CAST(12345 AS DECIMAL(4, 2))", "CAST('99.995' AS DECIMAL(4, 2))", "CAST(1e3 AS DECIMAL(3))"]
)
def test_numbers_too_large_for_their_decimal_are_refused(query: Query, expression: str) -> None:
    with pytest.raises(ProcessingError, match=r"digits before its point; cast it to a wider decimal"):
        one(query, expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("-7.5 % 2", -1.5),
        ("MOD(-7.5, 2.0)", -1.5),
        ("MOD(7, -2.5)", 2.0),
        ("CAST('-7.5' AS DECIMAL(5,1)) % 2", Decimal("-1.5")),
        ("-7 % CAST('2.5' AS DECIMAL(5,1))", Decimal("-2.0")),
        ("price % CAST(NULL AS BIGINT)", None),
    ],
)
def test_a_remainder_has_the_sign_of_the_dividend(query: Query, expression: str, expected: Any) -> None:
    """Whatever the types of both."""
    found = one(query, expression)
    assert (found, type(found)) == (expected, type(expected))


def test_rounding_keeps_all_digits_before_the_place(query: Query) -> None:
    digits = "9" * 36
    assert one(query, f"ROUND(CAST('{digits}.25' AS DECIMAL(38,2)), 1)") == Decimal(f"{digits}.3")


def test_nothing_is_left_of_an_infinite_dividend(query: Query) -> None:
    """As with ``%`` of Python; an infinite divisor leaves all."""
    assert one(query, "(1e308 * 10) % 2 = 0") is False
    assert one(query, "3.0 % (1e308 * 10)") == 3.0


@pytest.mark.parametrize("of", [-7, -7.5])
def test_undeclared_columns_have_the_same_remainder(query: Query, of: float) -> None:
    """As declared ones."""
    assert one(query, "a % b", a=of, b=2) == math.fmod(of, 2)
    assert one(query, "MOD(a, 2)", a=of) == math.fmod(of, 2)


@pytest.mark.parametrize("expression", ["a / b", "a / 2", "SUM(a) / COUNT(*)"])
def test_undeclared_columns_are_not_divided(expression: str) -> None:
    """An int would be divided towards zero, the same number as a float would not."""
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=r"line 1:\d+: .*declare it .* or write CAST"):
        builder.sql(f"SELECT {expression} AS x FROM events", **inputs_of(builder))


def test_undeclared_columns_are_divided_where_a_type_tells_how(query: Query) -> None:
    """A cast of one does, or a number with a point."""
    assert one(query, "CAST(a AS BIGINT) / CAST(b AS BIGINT)", a=-7, b=2) == -3
    assert one(query, "CAST(a AS DOUBLE) / b", a=-7, b=2) == -3.5
    assert one(query, "a / 2.0", a=-7) == -3.5
    assert one(query, "a / 2.0", a=-7.0) == -3.5
