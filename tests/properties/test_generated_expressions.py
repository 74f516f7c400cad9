"""Generated functions against the row interpreter: the same values to the bit, and the same errors, on rows of any kind."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.inference import ExpressionScope, infer
from penstock.topologies.expressions.row_function import ExpressionFunction, to_function
from penstock.topologies.expressions.tree import Expression, Extend, StructOf
from penstock.topologies.expressions.types import UNKNOWN, DataType, schema_of
from tests.properties.test_expressions import COLUMNS, ROWS, Inner, Maker, Row, as_dicts, as_object

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(2**63 - 2, 2**63 + 2),
    st.floats(),
    st.text("a1", max_size=2),
    st.binary(max_size=2),
    st.decimals(allow_nan=True, places=2),
    st.datetimes(timezones=st.just(datetime.UTC)),
    st.lists(st.integers(-1, 1), max_size=2),
    st.just(Inner(3)),
    st.just({"v": 1}),
)


class Other(msgspec.Struct):
    """A record of another class than declared, which lacks most columns."""

    i: Any = 1
    s: Any = "x"


class Narrow(Row):
    """A subclass of the declared class."""


class Made(msgspec.Struct):
    """What expressions build."""

    i: int
    t: str | None = None
    at: datetime.datetime | None = None


@st.composite
def values(draw: Any) -> Any:
    """A record's value: mostly as declared, else null, of another class, or with columns that hold anything."""
    row = draw(ROWS)
    way = draw(st.integers(0, 9))
    if way < 3:
        return as_object(row)
    if way < 5:
        return row
    if way == 5:
        return draw(st.none() | ANYTHING)
    if way == 6:
        return Other(draw(ANYTHING), draw(ANYTHING))
    if way == 7:
        return msgspec.convert(row, Narrow)
    for name in draw(st.lists(st.sampled_from(sorted(row)), min_size=1, max_size=4)):
        row[name] = draw(ANYTHING)
    return row if way == 8 else Row(**row)


@st.composite
def trees(draw: Any) -> Expression:
    """An expression; now and then a struct, or one with columns added."""
    maker = Maker(draw, mixed=False)

    def one() -> Expression:
        return maker.make(draw(st.sampled_from(sorted(COLUMNS))), draw(st.integers(1, 3)))

    way = draw(st.integers(0, 7))
    if way == 0:
        return f.struct(a=one(), b=one(), c=one())
    if way == 1:
        fields = (("i", maker.make("int64", 2)), ("t", maker.make("string", 1)), ("at", f.col("i")))
        return StructOf(fields, Made)
    if way == 2:
        return Extend(f.value(), (("i", one()), ("new", one())))
    if way == 3:
        return StructOf((("v", one()),), None, f.col("n"))
    if way == 4:
        return f.struct(a=f.coalesce(one(), one()), b=Extend(f.col("n"), (("w", one()),)))["b"]
    return one()


def bits(value: Any) -> Any:
    """What tells results apart: types, the sign of a zero, one NaN from another number, the order of a dict."""
    if type(value) is float:
        return float, "nan" if math.isnan(value) else value.hex()
    if isinstance(value, dict):
        return dict, [(k, bits(v)) for k, v in value.items()]
    if isinstance(value, list):
        return list, [bits(v) for v in value]
    if isinstance(value, msgspec.Struct):
        return type(value), [bits(getattr(value, n)) for n in value.__struct_fields__]
    return type(value), str(value) if type(value) is decimal.Decimal else value


def outcome(run: Callable[..., Any], *args: Any) -> Any:
    try:
        return bits(run(*args))
    except ExpressionError as exc:
        return str(exc), type(exc.__cause__), exc.__context__ is exc.__cause__


def fitting(expression: Expression, schema: Any) -> DataType | None:
    """The schema, if the expression fits it."""
    try:
        infer(expression, ExpressionScope(schema_of(schema), record=False, keyed=False))
    except Exception:  # such an expression is refused before there is a row
        return None
    return schema_of(schema)


def check(function: ExpressionFunction, *args: Any) -> None:
    assert function.plain is not function.reference
    said, right = outcome(function.plain, *args), outcome(function.reference, *args)
    assert said == right, f"{function} of {args}: {said}, expected {right}"


@settings(max_examples=400, deadline=None)
@given(trees(), st.lists(values(), min_size=4, max_size=8))
def test_generated_functions_have_the_answers_and_errors_of_the_interpreter(tree: Expression, rows: list[Any]) -> None:
    """Over a class, over declared dicts, and over rows of which nothing is declared."""
    for schema in (Row, as_dicts(), UNKNOWN):
        declared = fitting(tree, schema)
        if declared is not None:
            function = to_function(tree, ("value",), declared)
            for row in rows:
                check(function, row)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.tuples(ANYTHING, values()), min_size=2, max_size=5))
def test_conditions_are_checked_alike(data: st.DataObject, rows: list[tuple[Any, Any]]) -> None:
    """Also what is no condition, of keys, timestamps and headers."""
    maker = Maker(data.draw, mixed=False)
    tests = [maker.make("bool", 2), f.col("b"), f.key() == f.col("i"), f.timestamp() > f.col("i"), ~f.col("s")]
    tests += [f.header("h").is_null(), (f.key() == 1) | f.col("c"), f.col("c") & (f.key() > 0)]
    tree = data.draw(st.sampled_from(tests))
    function = to_function(tree, ("key", "value", "timestamp", "headers"), UNKNOWN, condition=True)
    for key, value in rows:
        check(function, key, value, 7, data.draw(st.sampled_from([(), (("h", b"1"),)])))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.tuples(values(), values()), min_size=2, max_size=5))
def test_functions_of_joins_are_alike(data: st.DataObject, rows: list[tuple[Any, Any]]) -> None:
    """Either side may be missing."""
    sides = [f.left, f.right]
    at = data.draw(st.sampled_from(["i", "j", "x", "s", "n"]))
    a, b = (data.draw(st.sampled_from(sides)) for _ in range(2))
    trees = [
        a(at) == b("i"),
        f.struct(one=a(), two=b()),
        f.struct(x=a(at), y=b("j"), z=a("n")),
        a("i").between(b("j"), 3),
    ]
    tree = f.lit(1) if not trees else data.draw(st.sampled_from(trees))
    declared = data.draw(st.sampled_from([schema_of(Row), UNKNOWN, schema_of(as_dicts())]))
    scope = ExpressionScope(declared, UNKNOWN, declared)
    try:
        function = to_function(tree, ("left", "right"), scope)
    except Exception:  # refused: the types do not fit
        return
    for one, two in rows:
        check(function, one, two)
        check(function, None, two)


def test_what_is_nested_too_deeply_is_left_to_the_interpreter() -> None:
    """Python takes a hundred levels of indentation."""
    tree: Any = f.when(f.col("i") == 0).then(0)
    for number in range(1, 200):
        tree = tree.when(f.col("i") == number).then(number * 2)
    function = to_function(tree, ("value",), {"i": int})
    assert function.plain is function.reference
    assert function({"i": 150}) == 300


def test_names_of_fields_are_never_source_text() -> None:
    """Fields may have any name."""
    name = "x\n  raise SystemExit #"
    function = to_function(f.struct(**{name: f.col(name), "class": f.col("class")}), ("value",))
    assert function.plain is not function.reference
    assert function({name: 1, "class": 2}) == {name: 1, "class": 2}


_N = f.col("n")
EDGES: list[Expression] = [
    f.col("i") + f.col("i"),
    f.col("i") * 3 - 1,
    f.col("i") // f.col("i") + f.col("i") % 7,
    -f.col("i"),
    f.col("x") * f.col("x") + 1,
    f.struct(a=f.col("i") * 1, b=f.col("i") * -1, c=f.col("x") * 1.0, d=f.col("x") * -1.0, e=f.col("i") * 1),
    f.struct(a=f.col("x") + 0.0, b=f.col("x") + -0.0, c=f.col("i") == 1, d=f.lit(1), e=f.lit(True), g=f.lit(1.0)),
    f.struct(a=StructOf((("v", f.col("i")),), None, _N), b=_N["v"], c=_N.is_null(), d=_N["v"] + 1),
    f.struct(a=Extend(_N, (("w", _N["v"]),)), b=_N["v"].is_null(), c=Extend(_N, (("v", f.col("i")),))),
    f.struct(a=f.when(f.col("i") > 0).then(f.col("j") + 1).otherwise(f.col("i")), b=f.col("j") + 1, c=f.col("j") < 2),
    f.struct(a=f.coalesce(f.col("j"), f.col("i") + 1, 3), b=f.col("i") + 1),
    f.col("j").is_in(1, 2),
    f.col("i").is_in(f.col("j"), 3),
    f.col("j").is_in(f.lit(None), 1),
    f.col("x").is_in(f.col("y"), f.col("i")),
    f.col("i").between(f.col("j"), 3),
    f.col("i").between(0, f.col("j")),
    f.col("j").between(0, 2),
    f.col("y").between(f.col("x"), f.col("i")),
    (f.col("b")) & (f.col("c")),
    (f.col("c")) & (f.col("b")),
    (f.col("c")) | (f.col("b")),
    (f.col("b")) | (f.col("c")),
    (f.col("c")) & (f.col("j") / f.col("i") > 1),
    ~f.col("c"),
    f.col("s") + f.col("t"),
    f.col("t").length() + f.col("i"),
    f.col("s").cast("int64", strict=False),
    f.col("s").cast("int64"),
    f.col("l").element(0) + f.col("i"),
    f.col("x") == f.col("i"),
    f.col("x").floor().cast("int64"),
]


def test_edges_of_every_node() -> None:
    """Bounds of 64 bits, signs of zeros, nulls in every place, and parts that occur twice."""
    held: dict[str, list[Any]] = {
        "i": [0, 1, -1, 2**62, 2**63 - 1, -(2**63)],
        "j": [None, 1, 2, 2**63 - 1],
        "x": [0.0, -0.0, 1.0, math.nan, math.inf],
        "y": [None, 0.0, math.nan],
        "s": ["", "12", "a"],
        "t": [None, "b"],
        "b": [True, False],
        "c": [None, True, False],
        "l": [[], [1], ["a"], [None]],
        "n": [None, {"v": None}, {"v": 3}],
    }
    rows = [
        {name: some[(turn // (1 + place)) % len(some)] for place, (name, some) in enumerate(held.items())}
        for turn in range(48)
    ]
    functions = [
        to_function(tree, ("value",), declared)
        for tree in EDGES
        for schema in (Row, as_dicts(), UNKNOWN)
        if (declared := fitting(tree, schema)) is not None
    ]
    assert len(functions) > 2 * len(EDGES)
    for function in functions:
        for row in rows:
            check(function, row)
            check(function, as_object(row))
