"""Decimals that are made of whole numbers, and comparisons of them: on columns as on rows, with nulls, overflows and any
constants; as results to the last digit."""

from __future__ import annotations

import decimal
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.topologies.columnar.decimal_columns import DecimalColumn
from penstock.topologies.expressions import fixed_point
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.inference import scope_of
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import NumberColumn, StructColumn
from tests.properties.test_column_expressions import check

INTEGERS = st.one_of(
    st.integers(-50, 50), st.sampled_from([1 << 31, -(1 << 40), (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63)])
)
CONSTANTS = st.one_of(
    st.decimals(min_value=-100, max_value=100, places=3),
    st.sampled_from(
        [decimal.Decimal(d) for d in ("0", "-0", "0.908", "1E+3", "1E+30", "1E-19", "1.0", "100000000000000000.5")]
    ),
    st.integers(-60, 60),
)
OPERATORS = ["+", "-", "*"]


def binary(op: str, a: Any, b: Any) -> Expression:
    made: Expression = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}[op]()
    return made


@st.composite
def numbers(draw: st.DrawFn, depth: int) -> Any:
    """Whole numbers, constants, or sums, differences and products of them."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(st.sampled_from([f.col("i"), f.col("j")]), CONSTANTS.map(f.lit)))
    return binary(draw(st.sampled_from(OPERATORS)), draw(numbers(depth - 1)), draw(numbers(depth - 1)))


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    left = f.col("i") * draw(CONSTANTS.map(f.lit))
    left = binary(draw(st.sampled_from(OPERATORS)), left, draw(numbers(1))) if draw(st.booleans()) else left
    right = draw(numbers(2))
    compare = draw(st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]))
    made: Expression = getattr(left, compare)(right)
    return made


@pytest.fixture(scope="module")
def used() -> Counter[str]:
    return Counter()


@settings(max_examples=600, deadline=None)
@given(
    expression=comparisons(), rows=st.lists(st.tuples(INTEGERS, st.one_of(st.none(), INTEGERS)), min_size=1, max_size=8)
)
def test_comparisons_are_those_of_the_rows(
    used: Counter[str], expression: Expression, rows: list[tuple[int, int | None]]
) -> None:
    plain = fixed_point.compared

    def watched(*args: Any) -> Any:
        found = plain(*args)
        used["compared" if found is not None else "too large"] += 1
        return found

    whole = [i for i, _ in rows]
    others = [j for _, j in rows]
    columns = {
        "i": NumberColumn(np.array(whole, np.int64)),
        "j": NumberColumn(np.array([j or 0 for j in others], np.int64), np.array([j is None for j in others])),
    }
    batch = ColumnBatch([None] * len(rows), StructColumn(columns, dict), np.arange(len(rows)), np.arange(len(rows)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixed_point, "compared", watched)
        check(expression, scope_of({"i": int, "j": int | None}), [{"i": i, "j": j} for i, j in rows], batch)


@settings(max_examples=600, deadline=None)
@given(
    expression=numbers(3), rows=st.lists(st.tuples(INTEGERS, st.one_of(st.none(), INTEGERS)), min_size=1, max_size=8)
)
def test_results_are_those_of_the_rows(used: Counter[str], expression: Any, rows: list[tuple[int, int | None]]) -> None:
    expression = f.col("i") * f.lit(decimal.Decimal("1")) + expression
    columns = {
        "i": NumberColumn(np.array([i for i, _ in rows], np.int64)),
        "j": NumberColumn(np.array([j or 0 for _, j in rows], np.int64), np.array([j is None for _, j in rows])),
    }
    batch = ColumnBatch([None] * len(rows), StructColumn(columns, dict), np.arange(len(rows)), np.arange(len(rows)))
    scope = scope_of({"i": int, "j": int | None})
    used["made" if isinstance(Vectors(expression, scope).column(batch), DecimalColumn) else "by value"] += 1
    check(expression, scope, [{"i": i, "j": j} for i, j in rows], batch)


def test_both_ways_were_taken(used: Counter[str]) -> None:
    assert used["compared"] > 100, used
    assert used["made"] > 100, used


@pytest.mark.parametrize(
    ("constant", "made"),
    [("0.908", True), ("-0.5", False), ("-0", False), ("1E+3", False), ("1E-18", True), ("1.50", True)],
)
def test_a_zero_keeps_its_sign_and_a_constant_its_places(constant: str, made: bool) -> None:
    columns = {"i": NumberColumn(np.array([0, 1, 12], np.int64))}
    batch = ColumnBatch([None] * 3, StructColumn(columns, dict), np.arange(3), np.arange(3))
    expression = f.col("i") * decimal.Decimal(constant)
    found = Vectors(expression, scope_of({"i": int})).column(batch)
    assert isinstance(found, DecimalColumn) is made
    assert found is not None
    assert list(map(str, found.to_list())) == [str(i * decimal.Decimal(constant)) for i in (0, 1, 12)]


@pytest.mark.parametrize("j", [1 << 61, (1 << 61) // 1000, 9_007_199_254_740_993, -(1 << 60), 7])
def test_large_numbers_in_another_scale_are_compared_exactly(j: int) -> None:
    exact = [j - 1, j, j + 1]
    columns = {"i": np.array(exact), "j": np.full(3, j), "k": np.full(3, 5)}
    value = StructColumn({name: NumberColumn(array) for name, array in columns.items()}, dict)
    batch = ColumnBatch([None] * 3, value, np.arange(3), np.arange(3))
    rows = [{"i": i, "j": j, "k": 5} for i in exact]
    thousandth = decimal.Decimal("0.001")
    for left, right in (
        (f.col("i") * decimal.Decimal("1.000"), f.col("j")),
        (f.col("i"), f.col("j") + decimal.Decimal("0.0005")),
        (f.col("i") * thousandth, f.col("j") * decimal.Decimal("0.0010")),
        (f.col("i") * thousandth, f.lit(thousandth * j)),
        (f.lit(5) * thousandth, f.col("j")),
        (f.col("k") * thousandth, f.col("j")),
    ):
        for compare in ("__lt__", "__le__", "__eq__", "__gt__"):
            check(getattr(left, compare)(right), scope_of({"i": int, "j": int, "k": int}), rows, batch)


@pytest.mark.parametrize("value", [decimal.Decimal("NaN"), decimal.Decimal("-Infinity"), True, 1.5, None, 1 << 62])
def test_other_constants_are_not_taken(value: Any) -> None:
    assert fixed_point.of_constant(value) is None
