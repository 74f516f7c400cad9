"""Random typed expressions over columns: what the row interpreter gives row by row, or nothing where a row would raise."""

from __future__ import annotations

import decimal
import math
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.serdes.serde import STRING
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions import vectors
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.inference import ExpressionScope, infer, scope_of
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, NumberColumn, StructColumn
from tests.properties.test_expressions import ROWS, Row, as_dicts, as_object, expressions

DTYPES: dict[str, Any] = {"i": np.int64, "j": np.int64, "x": np.float64, "y": np.float64, "b": np.bool_, "c": np.bool_}
FAILED = object()
SHARED = (str, bytes, bool, int, float, decimal.Decimal, type(None))


def numbers(values: list[Any], dtype: Any) -> NumberColumn:
    """As a number column; where a value is null the array holds something."""
    nulls = np.array([v is None for v in values], np.bool_)
    array = np.array([-7 if v is None else v for v in values], dtype)
    return NumberColumn(array, nulls if nulls.any() else None)


def texts(values: list[str | None]) -> EncodedColumn:
    """As bytes that nobody has looked at yet."""
    return EncodedColumn(BytesColumn.of([None if v is None else v.encode() for v in values]), STRING, Coder())


def own_codes(values: list[Any]) -> CodedColumn:
    """Every row with a value of its own, which need not be hashable."""
    return CodedColumn(np.arange(len(values), dtype=np.int32), [*values, "not used"])


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[dict[str, Any] | None], Batch]:
    """Rows, some null, and the same as columns: numbers as arrays or coded, all others coded."""
    rows: list[dict[str, Any] | None] = draw(st.lists(ROWS, min_size=1, max_size=6))
    rows += [rows[i] for i in draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))]
    if draw(st.integers(0, 3)) == 0:
        rows[draw(st.integers(0, len(rows) - 1))] = None
    fields: dict[str, Column] = {}
    for name in ("i", "j", "x", "y", "s", "t", "b", "c", "l", "n"):
        values = [None if row is None else row[name] for row in rows]
        if name in DTYPES and draw(st.integers(0, 2)):
            fields[name] = numbers(values, DTYPES[name])
        elif name in ("l", "n"):
            fields[name] = own_codes(values)
        elif name in ("s", "t") and draw(st.integers(0, 2)):
            fields[name] = texts(values)
        else:
            fields[name] = CodedColumn.of(values)
    nulls = np.array([row is None for row in rows], np.bool_)
    value = StructColumn(fields, lambda *values: dict(zip(fields, values, strict=True)), nulls if nulls.any() else None)
    count = len(rows)
    return rows, ColumnBatch([None] * count, value, np.arange(count) * 1000, np.arange(count))


def bits(value: Any) -> Any:
    """What tells values apart, the sign of a zero and the digits of a decimal too."""
    if type(value) is float:
        return float, "nan" if math.isnan(value) else value.hex()
    return type(value), str(value) if type(value) is decimal.Decimal else value


def by_row(run: Any, rows: list[Any], times: list[int]) -> list[Any]:
    out = []
    for row, ts in zip(rows, times, strict=True):
        try:
            out.append(run(None, row, ts, ()))
        except ExpressionError:
            out.append(FAILED)
    return out


def check(expression: Expression, scope: ExpressionScope, rows: list[Any], batch: Batch) -> None:
    """The column is that of the rows; there is none if and only if a row fails, or holds what cannot be shared."""
    for many, combined in ((1, 0), (500, 2_048)):
        # by generated functions and by parts, and without them
        with mock.patch.object(vectors, "MANY", many), mock.patch.object(vectors, "COMBINED_MAX", combined):
            check_once(expression, scope, rows, batch)


def check_once(expression: Expression, scope: ExpressionScope, rows: list[Any], batch: Batch) -> None:
    expected = by_row(compile_row(expression, scope), rows, batch.timestamps)
    compiled = Vectors(expression, scope)
    found = compiled.column(batch)
    if FAILED in expected or any(type(v) not in SHARED for v in expected):
        assert found is None, f"{expression}: {found.to_list()}, expected {expected}"
        return
    assert found is not None, f"{expression} was left to the rows, which give {expected}"
    assert list(map(bits, found.to_list())) == list(map(bits, expected)), str(expression)
    if infer(expression, scope).kind == "bool":
        mask = compiled.mask(batch)
        assert mask is not None and mask.tolist() == [v is True for v in expected]


@settings(max_examples=500, deadline=None)
@given(expressions(), batches())
def test_columns_have_the_answers_of_the_rows(expression: Expression, drawn: tuple[list[Any], Batch]) -> None:
    rows, batch = drawn
    objects = [None if row is None else as_object(row) for row in rows]
    check(expression, scope_of(Row), objects, batch)
    check(expression, scope_of(as_dicts()), rows, batch)


@settings(max_examples=300, deadline=None)
@given(expressions(mixed=False), batches())
def test_undeclared_columns_have_the_answers_of_the_rows(
    expression: Expression, drawn: tuple[list[Any], Batch]
) -> None:
    rows, batch = drawn
    check(expression, ExpressionScope(), rows, batch)


def test_the_time_and_the_key_are_columns_too() -> None:
    key = CodedColumn.of(["a", "b", None, "a"])
    batch = ColumnBatch(key, [None] * 4, np.array([1, 2, 3, 9_000]), np.arange(4))
    condition = (f.key() == "a") & (f.timestamp() > 5)
    assert Vectors(condition, ExpressionScope()).mask(batch).tolist() == [False, False, False, True]  # type: ignore[union-attr]  # there is one
    late = Vectors(f.timestamp() + 1, ExpressionScope()).column(batch)
    assert isinstance(late, NumberColumn)
    assert late.to_list() == [2, 3, 4, 9_001]
    floored = Vectors(f.timestamp().floor_time("1s"), ExpressionScope()).column(batch)
    assert floored is not None and floored.to_list() == [0, 0, 0, 9_000]


@pytest.mark.parametrize(
    "expression",
    [
        f.coalesce(f.col("i"), f.lit(None).cast("decimal")),
        f.when(f.col("i") > 0).then(f.col("i")).otherwise(f.lit(None).cast("decimal")),
        f.coalesce(f.lit(None).cast("float64"), f.col("i")),
    ],
)
def test_a_null_of_a_wider_type_widens(expression: Expression) -> None:
    """An int64 beside it is no int64 any more."""
    rows: list[Any] = [{"i": i} for i in (3, None, 0, -5)]
    fields: dict[str, Column] = {"i": numbers([row["i"] for row in rows], np.int64)}
    value = StructColumn(fields, lambda i: {"i": i}, None)
    batch = ColumnBatch([None] * 4, value, np.arange(4) * 1000, np.arange(4))
    check(expression, scope_of({"i": int | None}), rows, batch)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_branch_that_no_row_takes_raises_nothing(guarded: bool) -> None:
    batch = ColumnBatch([None] * 3, StructColumn({"i": numbers([4, 0, 5], np.int64)}, dict), np.arange(3), np.arange(3))
    quotient = 20 // f.col("i")
    expression = f.when(f.col("i") != 0).then(quotient).otherwise(None) if guarded else quotient
    found = Vectors(expression, scope_of({"i": "int64"})).column(batch)
    assert (None if found is None else found.to_list()) == ([5, None, 4] if guarded else None)


def test_the_check_tells_right_from_wrong() -> None:
    assert bits(0.0) != bits(-0.0)
    assert bits(1) != bits(True) != bits(1.0)
    assert bits(math.nan) == bits(-math.nan)
    run = partial(check, f.col("i") + 1, scope_of(Row), [as_object({**ROW, "i": 2})])
    run(ColumnBatch([None], StructColumn({"i": numbers([2], np.int64)}, dict), np.arange(1), np.arange(1)))
    with pytest.raises(AssertionError):
        run(ColumnBatch([None], StructColumn({"i": numbers([3], np.int64)}, dict), np.arange(1), np.arange(1)))


ROW: dict[str, Any] = {
    "i": 1,
    "j": None,
    "x": 0.5,
    "y": None,
    "s": "s",
    "t": None,
    "b": True,
    "c": None,
    "l": [1],
    "n": None,
}


def test_decimals_that_are_equal_keep_their_digits() -> None:
    texts = ["1.0", "1.00", "0", "-0", "1.0", "1e0"]
    rows = [{"s": text} for text in texts]
    columns: list[Column] = [CodedColumn.of(texts), CodedColumn(np.arange(len(texts), dtype=np.int32), texts)]
    for expression in (f.col("s").cast("decimal"), f.col("s").cast("decimal") * decimal.Decimal("1.0")):
        for column in columns:
            value = StructColumn({"s": column}, lambda i: rows[i], None)
            batch = ColumnBatch([None] * len(rows), value, np.arange(len(rows)) * 1000, np.arange(len(rows)))
            check(expression, scope_of({"s": str}), rows, batch)
