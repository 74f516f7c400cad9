"""Random typed expressions on random rows: the row interpreter against a naive evaluator, types against the values that
come out, and texts against what they parse to."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.inference import infer
from penstock.topologies.expressions.readers import kind_of
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.tree import Binary, Call, Expression, Unary
from penstock.topologies.expressions.types import schema_of
from tests.properties.expression_oracle import Bad, evaluate, parsed


class Inner(msgspec.Struct):
    v: int | None


class Row(msgspec.Struct):
    i: int
    j: int | None
    x: float
    y: float | None
    s: str
    t: str | None
    b: bool
    c: bool | None
    l: list[int]  # noqa: E741  # a column's name
    n: Inner | None


COLUMNS: dict[str, tuple[str, ...]] = {
    "int64": ("i", "j", "n.v"),
    "float64": ("x", "y"),
    "string": ("s", "t"),
    "bool": ("b", "c"),
}
EXTREMES = st.sampled_from([2**63 - 1, 2**63 - 2, -(2**63), 2**53 + 1, 2**32])
INTS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), EXTREMES)
FLOATS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, 2.5, math.nan, math.inf, 1e308, float(2**53)]))
STRINGS = st.text(alphabet="aAbß/ 12-", max_size=5)
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "int64": INTS,
    "float64": FLOATS,
    "string": STRINGS,
    "bool": st.booleans(),
}
ROWS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "i": INTS,
        "j": st.none() | INTS,
        "x": FLOATS,
        "y": st.none() | FLOATS,
        "s": STRINGS,
        "t": st.none() | STRINGS,
        "b": st.booleans(),
        "c": st.none() | st.booleans(),
        "l": st.lists(INTS, max_size=3),
        "n": st.none() | st.fixed_dictionaries({"v": st.none() | INTS}),
    }
)
# One draw of rows serves one expression, since few of the values of one row meet the edges of an operator.
SEVERAL_ROWS = st.lists(ROWS, min_size=4, max_size=8)
Draw = Callable[[st.SearchStrategy[Any]], Any]


def as_object(row: dict[str, Any]) -> Row:
    """The row as an instance of its class."""
    inner = row["n"]
    return Row(**{**row, "n": None if inner is None else Inner(**inner)})


class Maker:
    """Draws expressions of a kind. ``mixed``: branches may hold int64 beside float64, whose common type only declared
    schemas can know."""

    def __init__(self, draw: Draw, mixed: bool) -> None:
        self.draw = draw
        self.mixed = mixed

    def make(self, kind: str, depth: int) -> Expression:
        """An expression of this kind."""
        if depth == 0 or self.draw(st.integers(0, 5)) == 0:
            return self.leaf(kind)
        ways = [*_WAYS[kind], _case, _coalesce]
        return self.draw(st.sampled_from(ways))(self, kind, depth - 1)  # type: ignore[no-any-return]  # a way gives one

    def leaf(self, kind: str) -> Expression:
        """A column, a constant, or now and then null."""
        way = self.draw(st.integers(0, 9))
        if way < 6:
            return f.col(self.draw(st.sampled_from(COLUMNS[kind])))
        return f.lit(None) if way == 9 else f.lit(self.draw(LITERALS[kind]))

    def number(self, depth: int) -> Expression:
        """Of either number type."""
        return self.make(self.draw(st.sampled_from(["int64", "float64"])), depth)

    def pick(self, *of: Any) -> Any:
        """One of these."""
        return self.draw(st.sampled_from(of))


def _case(m: Maker, kind: str, depth: int) -> Expression:
    branch = m.number if m.mixed and kind == "float64" else lambda d: m.make(kind, d)
    case = f.when(m.make("bool", depth)).then(branch(depth))
    if m.draw(st.booleans()):
        case = case.when(m.make("bool", depth)).then(branch(depth))
    made = case.otherwise(branch(depth))
    # the type that was asked for, where all branches happened to be narrower
    return made.cast("float64") if m.mixed and kind == "float64" else made


def _coalesce(m: Maker, kind: str, depth: int) -> Expression:
    return f.coalesce(m.make(kind, depth), m.make(kind, depth))


def _arithmetic(m: Maker, kind: str, depth: int) -> Expression:
    if kind == "int64":
        return Binary(m.pick("+", "-", "*", "//", "%"), m.make(kind, depth), m.make(kind, depth))
    sides = [m.make("float64", depth), m.number(depth)]
    if m.draw(st.booleans()):
        sides.reverse()
    return Binary(m.pick("+", "-", "*", "/", "//", "%"), *sides)


def _divided(m: Maker, kind: str, depth: int) -> Expression:
    return m.make("int64", depth) / m.make("int64", depth)


def _negative(m: Maker, kind: str, depth: int) -> Expression:
    return -m.make(kind, depth)


def _of_number(m: Maker, kind: str, depth: int) -> Expression:
    return Call(m.pick("abs", "floor"), (m.make(kind, depth),))


def _extreme(m: Maker, kind: str, depth: int) -> Expression:
    return Call(m.pick("least", "greatest"), (m.make(kind, depth), m.make(kind, depth)))


def _towards_zero(m: Maker, kind: str, depth: int) -> Expression:
    return Call(m.pick("quotient", "remainder"), (m.make(kind, depth), m.make(kind, depth)))


def _int_of_other(m: Maker, kind: str, depth: int) -> Expression:
    way = m.draw(st.integers(0, 4))
    if way == 0:
        return m.make("string", depth).length()
    if way == 1:
        return f.col("l").element(m.make("int64", depth))
    if way == 2:
        return m.make("int64", depth).hour()
    if way == 3:
        return m.make("int64", depth).floor_time("1h").cast("int64")
    source = m.make(m.pick("string", "float64"), depth)
    return source.cast("int64", strict=m.draw(st.booleans()))


def _root(m: Maker, kind: str, depth: int) -> Expression:
    return m.number(depth).sqrt()


def _text(m: Maker, kind: str, depth: int) -> Expression:
    a, b = m.make(kind, depth), m.make(kind, depth)
    way = m.draw(st.integers(0, 6))
    if way == 0:
        return f.concat(a, b, m.make(kind, depth))
    if way == 1:
        return a.lower()
    if way == 2:
        return a.substring(m.make("int64", depth), m.make("int64", depth))
    if way == 3:
        return a.split_part(b, m.make("int64", depth))
    if way == 4:
        return a.replace(b, m.make(kind, depth))
    return a + b if way == 5 else m.number(depth).cast("string")


def _compared(m: Maker, kind: str, depth: int) -> Expression:
    sides = [m.number(depth), m.number(depth)]
    if m.draw(st.booleans()):
        other = m.pick("string", "bool")
        sides = [m.make(other, depth), m.make(other, depth)]
    return Binary(m.pick("==", "!=", "<", "<=", ">", ">="), *sides)


def _logic(m: Maker, kind: str, depth: int) -> Expression:
    if m.draw(st.integers(0, 3)) == 0:
        return Unary("~", m.make(kind, depth))
    return Binary(m.pick("&", "|"), m.make(kind, depth), m.make(kind, depth))


def _tested(m: Maker, kind: str, depth: int) -> Expression:
    way = m.draw(st.integers(0, 3))
    if way == 0:
        return Call(m.pick("is_null", "is_not_null"), (m.make(m.pick(*COLUMNS), depth),))
    if way == 1:
        return m.number(depth).is_in(m.number(depth), m.number(depth))
    if way == 2:
        return m.number(depth).between(m.number(depth), m.number(depth))
    return Call(m.pick("contains", "starts_with"), (m.make("string", depth), m.make("string", depth)))


_WAYS: dict[str, list[Callable[[Maker, str, int], Expression]]] = {
    "int64": [_arithmetic, _arithmetic, _negative, _of_number, _extreme, _towards_zero, _int_of_other],
    "float64": [_arithmetic, _arithmetic, _divided, _negative, _of_number, _extreme, _root],
    "string": [_text],
    "bool": [_compared, _compared, _logic, _logic, _tested],
}


@st.composite
def expressions(draw: Draw, mixed: bool = True) -> Expression:
    """An expression of any kind, up to four levels deep."""
    return Maker(draw, mixed).make(draw(st.sampled_from(sorted(COLUMNS))), draw(st.integers(1, 4)))


def same(a: Any, b: Any) -> bool:
    """Equal in value and type; a NaN equals a NaN, and zeros of both signs are one."""
    return type(a) is type(b) and (a == b or (a != a and b != b))


def outcome(run: Callable[[], Any]) -> Any:
    """What comes out, or that the row has no answer."""
    try:
        return run()
    except (Bad, ExpressionError):
        return Bad


@settings(max_examples=400, deadline=None)
@given(expressions(), SEVERAL_ROWS)
def test_declared_rows_have_the_answers_of_the_oracle(expression: Expression, rows: list[dict[str, Any]]) -> None:
    """As dicts and as objects; and what comes out has the inferred type."""
    tp = infer(expression, Row)
    of_object, of_dict = compile_row(expression, Row), compile_row(expression, as_dicts())
    for row in rows:
        expected = widened(outcome(partial(evaluate, expression, row)), tp.kind)
        for run, held in ((of_object, as_object(row)), (of_dict, row)):
            got = outcome(partial(run, None, held, 0, ()))
            assert same(got, expected), f"{expression} of {row}: {got!r}, expected {expected!r}"
            if got is None:
                assert tp.nullable, f"{expression} is null, but was inferred to be {tp}"
            elif got is not Bad:
                assert kind_of(got) == tp.kind, f"{expression} is {got!r}, but was inferred to be {tp}"


def widened(expected: Any, kind: str) -> Any:
    """The oracle leaves an int64 as it is where a branch stands for a float64."""
    return float(expected) if kind == "float64" and type(expected) is int else expected


def as_dicts() -> Any:
    """The schema of the same rows as dicts."""
    fields = dict(schema_of(Row).fields)
    return {**fields, "n": schema_of({"v": "int64?"}).or_null()}


@settings(max_examples=200, deadline=None)
@given(expressions(mixed=False), SEVERAL_ROWS)
def test_undeclared_rows_have_the_same_answers(expression: Expression, rows: list[dict[str, Any]]) -> None:
    """Types looked at row by row lead to what declared ones do."""
    run = compile_row(expression)
    for row in rows:
        expected = outcome(partial(evaluate, expression, row))
        for held in (row, as_object(row)):
            got = outcome(partial(run, None, held, 0, ()))
            assert same(got, expected), f"{expression} of {row}: {got!r}, expected {expected!r}"


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_texts_parse_back_to_their_trees(expression: Expression) -> None:
    """So brackets stand where they must, and equal texts mean equal trees."""
    again = parsed(expression.text())
    assert again.same_as(expression), f"{expression} was read as {again}"
    assert again.text() == expression.text()


@settings(max_examples=100, deadline=None)
@given(expressions(), st.sampled_from(["i", "x", "s", "b"]))
def test_columns_of_a_null_record_are_null(expression: Expression, column: str) -> None:
    """A tombstone has an answer wherever constants alone have one."""
    expected = outcome(partial(evaluate, expression, None))
    got = outcome(partial(compile_row(expression, Row), None, None, 0, ()))
    assert same(got, widened(expected, infer(expression, Row).kind))
    assert compile_row(f.col(column), Row)(None, None, 0, ()) is None


def test_the_oracle_tells_right_from_wrong() -> None:
    """A planted fault in each law is seen: the comparison of this file can fail."""
    assert not same(1, 1.0)
    assert not same(1, True)
    assert same(math.nan, math.nan)
    assert not parsed("a - (b - c)").same_as(parsed("a - b - c"))
    with pytest.raises(Bad):
        evaluate(f.lit(2**63 - 1) + 1, {})
