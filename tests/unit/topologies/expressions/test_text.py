"""The text of expressions, and what Python's own syntax would do to them unnoticed."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.functions import (
    coalesce,
    col,
    count,
    header,
    key,
    left,
    lit,
    right,
    struct,
    timestamp,
    value,
    when,
)
from penstock.topologies.expressions.text import default_name
from penstock.topologies.expressions.tree import Expression, Extend, Unary, walk


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("amount") * 2 > 100, "amount * 2 > 100"),
        ((col("a") > 1) & ~(col("b") == "x"), "(a > 1) & ~(b == 'x')"),
        ((col("a") & col("b")) | col("c"), "a & b | c"),
        (col("a") & (col("b") | col("c")), "a & (b | c)"),
        (col("a") - (col("b") - col("c")) - 1, "a - (b - c) - 1"),
        (-(col("a") + 1) * -3, "-(a + 1) * -3"),
        (Unary("-", lit(3)), "-(3)"),
        ((col("a") == 1) == (col("b") < 2), "(a == 1) == (b < 2)"),
        (col("bid.price"), "bid.price"),
        (col("bid")["odd name"], "bid['odd name']"),
        (col("odd name"), "col('odd name')"),
        (col("left.x") + left("x") + right("class"), "col('left').x + left.x + right()['class']"),
        (col("a").lower().contains("b"), "contains(lower(a), 'b')"),
        (key() == value(), "key() == value()"),
        (header("h").is_null(), "is_null(header('h'))"),
        (timestamp() > lit(datetime.datetime(2024, 1, 1)), "timestamp() > timestamp('2024-01-01T00:00:00.000Z')"),
        (coalesce(col("a"), float("nan"), Decimal("1.50")), "coalesce(a, float('nan'), Decimal('1.50'))"),
        (when(col("a")).then(1).otherwise(None), "when(a).then(1).otherwise(None)"),
        (col("a").cast("int64", strict=False), "try_cast(a, 'int64')"),
        (col("a").cast("int64?"), "cast(a, 'int64?')"),
        (struct(a=1, b=col("x")), "struct(a=1, b=x)"),
        (struct(a=1)["a"], "struct(a=1).a"),
        ((col("a") + 1).alias("b"), "(a + 1).alias('b')"),
        (Extend(value(), (("odd name", lit(1)),)), "extend(value(), **{'odd name': 1})"),
        (col("a").sum() / count().where(col("a") > 0), "sum(a) / count(where=a > 0)"),
        (col("a").variance(population=True), "variance(a, True)"),
    ],
)
def test_text(expression: Expression, text: str) -> None:
    """Brackets only where precedence needs them; the same after pickling."""
    assert expression.text() == repr(expression) == text
    assert pickle.loads(pickle.dumps(expression)).same_as(expression)


def test_trees_are_compared_by_same_as() -> None:
    """Constants of different types differ, a NaN is itself."""
    assert (col("a") + 1).same_as(col("a") + 1)
    assert not (col("a") + 1).same_as(col("a") + 1.0)
    assert not lit(1).same_as(lit(True))
    assert not (col("a") + 1).same_as(col("b") + 1)
    assert not col("a").same_as("a")
    assert lit(float("nan")).same_as(lit(float("nan")))
    assert not col("a").sum().same_as(col("a").sum().where(col("a") > 1))
    assert len(list(walk(col("a.b") + 1))) == 5


def test_default_names() -> None:
    """An alias, a field's own name, else the text."""
    names = [default_name(e) for e in (col("bid.price"), (col("a") + 1).alias("n"), col("a") + 1)]
    assert names == ["price", "n", "a + 1"]


def test_there_is_no_truth_value() -> None:
    """``and``, ``or``, ``not``, ``in``, chains and loops say what to write."""
    with pytest.raises(TopologyError, match=r"combine conditions with & \| ~"):
        bool(col("a") > 1)
    with pytest.raises(TopologyError, match="between"):
        1 < col("a") < 3  # noqa: B015  # the chain is the test
    with pytest.raises(TopologyError, match="use is_in"):
        _ = 3 in col("a")
    with pytest.raises(TopologyError, match=r"take its elements with element\(i\)"):
        list(col("a"))


def test_what_cannot_stand_in_an_expression() -> None:
    """Comparisons with None, foreign objects, ints that are too large, names that are none."""
    with pytest.raises(TopologyError, match="use is_null"):
        _ = col("a") == None  # noqa: E711  # the mistake is the test
    with pytest.raises(TopologyError, match="use is_null"):
        _ = col("a") != None  # noqa: E711  # as above
    with pytest.raises(TopologyError, match="is not allowed in an expression"):
        _ = col("a") + object()
    with pytest.raises(TopologyError, match="does not fit into int64"):
        lit(2**63)
    with pytest.raises(TopologyError, match="has an empty name in it"):
        col("a..b")
    with pytest.raises(TopologyError, match="give the name of a field or the number of an element"):
        col("a")[1.5]  # type: ignore[index]  # the mistake is the test
    with pytest.raises(TopologyError, match="give it at least one"):
        coalesce()
    with pytest.raises(TopologyError, match="has no fields"):
        struct()
