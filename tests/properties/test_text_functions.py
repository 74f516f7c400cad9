"""Functions of texts that are columns of bytes: what the row interpreter gives for each text, and no text becomes an object
where the compiled part has them."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.inference import ExpressionScope, scope_of
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import StructColumn
from tests.properties.test_column_expressions import check, texts

LETTERS = st.text(alphabet="a/ß", max_size=7) | st.text(alphabet="ab/é😀\x00", max_size=12)
SHORT = st.text(alphabet="a/ß", max_size=2)
COLUMNS = ("s", "t")


def text(draw: st.DrawFn) -> Expression:
    of: Expression = f.col(draw(st.sampled_from(COLUMNS)))
    for _ in range(draw(st.integers(0, 2))):
        match draw(st.integers(0, 2)):
            case 0:
                of = of.replace(draw(SHORT), draw(SHORT))
            case 1:
                of = of.split_part(draw(SHORT), draw(st.integers(-1, 3)))
            case _:
                of = of.alias("other")
    return of


def number(draw: st.DrawFn) -> Expression:
    length = text(draw).length()
    match draw(st.integers(0, 3)):
        case 0:
            return length
        case 1:
            return length - text(draw).length()
        case 2:
            return length * 3 + draw(st.integers(-2, 2))
    return -length


def truth(draw: st.DrawFn) -> Expression:
    of, what = text(draw), draw(SHORT)
    match draw(st.integers(0, 5)):
        case 0:
            return of.contains(what)
        case 1:
            return of.starts_with(what) | text(draw).ends_with(what)
        case 2:
            return ~of.ends_with(what)
        case 3:
            return number(draw).between(1, 4)
        case 4:
            return number(draw) > number(draw)
    return of.contains(what) & (number(draw) >= 2)


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    return draw(st.sampled_from((text, number, truth)))(draw)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[dict[str, Any] | None], ColumnBatch]:
    values = st.none() | LETTERS if draw(st.booleans()) else LETTERS
    rows: list[Any] = draw(st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, values)), min_size=1, max_size=8))
    if draw(st.integers(0, 3)) == 0:
        rows[draw(st.integers(0, len(rows) - 1))] = None
    fields = {name: texts([None if row is None else row[name] for row in rows]) for name in COLUMNS}
    nulls = np.array([row is None for row in rows], np.bool_)
    value = StructColumn(fields, lambda *held: dict(zip(fields, held, strict=True)), nulls if nulls.any() else None)
    return rows, ColumnBatch([None] * len(rows), value, np.arange(len(rows)), np.arange(len(rows)))


def scope(*, nullable: bool) -> ExpressionScope:
    return scope_of(dict.fromkeys(COLUMNS, "string?" if nullable else "string"))


@settings(max_examples=500, deadline=None)
@given(expressions(), batches(), st.booleans())
def test_columns_have_the_answers_of_the_rows(e: Expression, drawn: tuple[Any, ColumnBatch], nullable: bool) -> None:
    rows, batch = drawn
    check(e, scope(nullable=nullable), rows, batch)
    check(e, ExpressionScope(), rows, batch)


@pytest.mark.parametrize(
    "e",
    [
        f.col("s").length() - f.col("s").replace("c", "").length(),
        f.col("s").split_part("/", 1),
        f.col("s").replace("/", "-").alias("x"),
        f.col("s").contains("/") & ~f.col("t").starts_with("a"),
        (f.col("s").length() + 1).between(2, 9),
    ],
)
def test_no_text_becomes_an_object(e: Expression) -> None:
    rows = [{"s": "a/b" * i, "t": f"{i}"} for i in range(9)]
    value = StructColumn(
        {name: texts([row[name] for row in rows]) for name in COLUMNS},
        lambda *held: dict(zip(COLUMNS, held, strict=True)),
    )
    batch = ColumnBatch([None] * len(rows), value, np.arange(len(rows)), np.arange(len(rows)))
    by_value = Vectors._by_value

    def of_constants(self: Vectors, part: Expression, leaves: tuple[Any, ...], frame: Any) -> Any:
        assert leaves == () or native.compiled() is None
        return by_value(self, part, leaves, frame)

    with mock.patch.object(Vectors, "_by_value", of_constants):
        assert Vectors(e, scope(nullable=False)).column(batch) is not None
