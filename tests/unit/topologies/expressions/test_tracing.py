"""Which plain functions become expressions, which do not and why, and when their columns are used."""

from __future__ import annotations

import dataclasses
import linecache
import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.tracing.traced_function import Columns, TracedFunction
from penstock.topologies.expressions.types import schema_of
from tests.properties.traced_programs import define


class Bid(msgspec.Struct, frozen=True):
    price: int


class Order(msgspec.Struct, frozen=True):
    kind: str
    n: int
    price: float
    bid: Bid
    ok: bool = True
    note: str | None = None
    left: int | None = None
    last: Bid | None = None


class Wide(Order, frozen=True):
    tags: list[str] = []

    @property
    def twice(self) -> int:
        return self.n * 2


class Out(msgspec.Struct):
    a: int
    b: str | None = None


class Checked(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        assert self.a


@dataclasses.dataclass
class Own:
    a: int

    def __init__(self, a: int) -> None:
        self.a = a + 1


class Falsy(msgspec.Struct):
    a: int

    def __bool__(self) -> bool:
        return False


@dataclasses.dataclass
class Hidden:
    a: int

    def __getattribute__(self, name: str) -> Any:
        return 7


class Tenfold:
    """A field that is set as ten times what it is given."""

    def __get__(self, owner: Any, python: type) -> int:
        return 7 if owner is None else owner.__dict__["ten"]

    def __set__(self, owner: Any, value: int) -> None:
        owner.__dict__["ten"] = value * 10


@dataclasses.dataclass
class Described:
    a: int = Tenfold()  # type: ignore[assignment]  # a descriptor


RATE = 3
LIST = [1, 2]


def noted(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def around(fn: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fn)
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


def traced(
    fn: Any, gives: Any = "condition", value: Any = Order, key: Any = str, serdes: Any = (), **options: Any
) -> Any:
    scope = ExpressionScope(schema_of(value), schema_of(key))
    return TracedFunction(fn, scope, options.get("arguments", ("key", "value")), gives, serdes)


def why(fn: Any, *args: Any, **options: Any) -> str:
    found = traced(fn, *args, **options).columns
    return "traced" if isinstance(found, Columns) else found


def text(fn: Any, *args: Any, **options: Any) -> str:
    found = traced(fn, *args, **options).columns
    assert isinstance(found, Columns), found
    return ", ".join(part.expression.text() for part in found.parts)


NAMES = {"RATE": 3, "LIST": [1], "len": len, "ps": ps}
NAMES |= {python.__name__: python for python in (Out, Checked, Own, Described, Order)}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("print(v)", "it calls print"),
        ("v.n in LIST", "it reads the global LIST, a list, which may change"),
        ("v.n > ps.RATE", "it reads the global ps, a module, which may change"),
        ("v.n > NEW", "it reads NEW, which has no value yet"),
        ("isinstance(v, Order)", "it calls isinstance"),
        ("v", "traced"),
        ("v.missing", "its record has no field missing"),
        ("v.twice", "its record has no field twice"),
        ("v.tags", "its field tags is of type list"),
        ("v['n']", "it reads an item of Wide, which has attributes"),
        ("v.kind[0]", "it reads an item"),
        ("v.kind + v.n", "it computes str + int"),
        ("v.ok + 1", "it computes bool + int"),
        ("v.price // 2", "it computes float // int"),
        ("v.price % 2", "it computes float % int"),
        ("v.n ** 2", "it has a part that has no expression: v.n ** 2"),
        ("v.n & 1", "it has a part that has no expression: v.n & 1"),
        ("v.n == 'a'", "it compares int == str"),
        ("v.n == True", "it compares int == bool"),
        ("v.ok < True", "it compares bool < bool"),
        ("v.left == 2.5", "it compares an int with a float, one of which may be null"),
        ("v == None", "it compares a record, whose class may say what that means; use is None"),
        ("v.n is 3", "it asks for the identity of objects"),
        ("v.n in (1, 'a')", "it looks for int among (1, 'a')"),
        ("v.n in (1, None)", "it looks for int among (1, None)"),
        ("v.n in (v.left, 2)", "it looks for a value among others that are not constant"),
        ("v.n > 9223372036854775808", "9223372036854775808 has more than 64 bits"),
        ("v.price > 9007199254740993", "it computes with 9007199254740993, which is not exact as a float"),
        ("v.n / 9007199254740993", "it computes with 9007199254740993, which is not exact as a float"),
        ("v.n > 1 / 0", "1 / 0 raises ZeroDivisionError"),
        ("v.n > None", "it computes with None"),
        ("[x for x in (1, 2)]", "it has a comprehension"),
        ("(x := v.n) > 2", "it assigns within an expression"),
        ("(lambda: 3)()", "it defines another function or class"),
        ("v.kind.title()", "it uses .title"),
        ("v.kind.strip('x')", "it calls .strip()"),
        ("v.kind.startswith(('a', 'b'))", "it uses a tuple that it has made"),
        ("f'{v.n:03}'", "it formats a value by a specification"),
        ("f'{v.n!r}'", "it formats a value by a specification"),
        ("f'{v.price}'", "it formats a value of type float"),
        ("str(v.price)", "it calls str of float"),
        ("int(v.price)", "it calls int of float"),
        ("len(v.tags)", "its field tags is of type list"),
        ("max(v.n, v.price)", "it calls max with 2 arguments"),
        ("Out(a=1)", "it uses a record that it has made"),
        ("(v.n, 1)", "it uses a tuple that it has made"),
        ("len", "it uses the function len as a value"),
        ("...", "it has the constant Ellipsis"),
        ("v.n > 1j", "it has the constant 1j"),
        ("max(*(1, 2))", "it calls with * or **"),
        ("await_(v)", "it reads await_, which has no value yet"),
    ],
)
def test_why_a_condition_is_not_traced(body: str, reason: str) -> None:
    assert why(define(f"fn = lambda k, v: {body}\n", NAMES), value=Wide) == reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("Out(b=None, a=v.price)", "Out.a is int, and is given float"),
        ("Out(a=None)", "Out.a is given null"),
        ("Out(v.n, 'a', 3)", "it makes a Out of values that it does not take"),
        ("Out(a=v.n, c=3)", "it makes a Out of values that it does not take"),
        ("Out(v.n, a=3)", "it makes a Out without values, or with one given twice"),
        ("Checked(a=v.n)", "it makes a Checked, which has a __post_init__"),
        ("Own(a=v.n)", "it makes a Own, which customizes how it is made"),
        ("Described(a=v.n)", "it makes a Described, and Described.a is not a plain field"),
        ("v.bid", "traced"),
        ("v.last if v.ok else v.bid", "it gives a record in one case and something else in another"),
        ("v", "it uses value() as a whole"),
        ("None", "it gives null"),
        ("v.n if v.ok else v.price", "it gives int in one case and float in another"),
        ("v.n if v.ok else True", "it gives int in one case and bool in another"),
        ("Out(a=1) if v.ok else None", "it gives a record in one case and something else in another"),
        ("Out(a=1) if v.ok else {'a': 1}", "it makes records of different fields"),
        ("{'a': 1, 'a': 2}", "it makes a dict with the same key twice, or without any"),
        ("{}", "it makes a dict with the same key twice, or without any"),
        ("{v.kind: 1}", "it makes a dict with keys other than constant texts"),
        ("{'a': None}", "it computes with None"),
        ("{**v}", "it makes a dict with keys other than constant texts"),
    ],
)
def test_why_a_result_is_not_traced(body: str, reason: str) -> None:
    assert why(define(f"fn = lambda k, v: {body}\n", NAMES), "value") == reason


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    for x in (1, 2):\n        pass\n    return True", "it has a loop"),
        ("    while v.n:\n        pass", "it has a loop"),
        ("    if v.n > 2:\n        raise ValueError\n    return True", "it raises errors of its own"),
        ("    assert v.n\n    return True", "it raises errors of its own"),
        ("    try:\n        return v.n > 2\n    except Exception:\n        return False", "it handles errors"),
        ("    global RATE\n    RATE = 3\n    return True", "it assigns to a variable outside"),
        ("    print(v)\n    return True", "it calls print"),
        ("    v.n\n    return True", "it has a part that has no expression: v.n"),
        ("    low = v.note.lower\n    return v.ok or low() == 'a'", "it uses the function lower as a value"),
        ("    v.n = 3\n    return True", "it has a part that has no expression: v.n = 3"),
        ("    a, b = v.n, 1\n    return a > b", "it has a part that has no expression: a, b = (v.n, 1)"),
        ("    if v.ok:\n        x = 1\n    return x > v.n", "it reads x, which is not set on each way"),
        ("    import os\n    return True", "it imports"),
        ("    yield v", "it is a generator"),
    ],
)
def test_why_a_definition_is_not_traced(body: str, reason: str) -> None:
    assert why(define(f"def fn(k, v):\n{body}\n", dict(NAMES))) == reason


def test_functions_that_are_none_of_python() -> None:
    plain = "it is not defined by def or lambda"
    assert why(partial(partial, 3)) == plain
    assert why(partial(lambda k, v, r: v.n > r, v=3)) == "it takes another number of arguments"
    assert why(partial(lambda r, k, v: v.n in r, [3])) == "it reads the bound argument 0, a list, which may change"
    assert why(str.lower) == plain
    assert why("a".startswith) == plain
    assert why(Out) == plain

    class Called:
        def __call__(self, k: Any, v: Any) -> bool:
            return bool(v)

    assert why(Called()) == plain
    assert why(around(lambda k, v: v.n > 3)) == "it takes any number of arguments, or keywords"
    assert why(lambda *both: True) == "it takes any number of arguments, or keywords"
    assert why(lambda k, v, *, rate=2: v.n > rate) == "it takes any number of arguments, or keywords"


def test_types_that_are_not_known() -> None:
    assert why(lambda k, v: v["n"] > 3, value=Any) == "its value has no declared type"
    assert why(lambda k, v: k == v.kind, key=Any) == "its key has no declared type"
    assert why(lambda k, v: v.n > 3, key=Any) == "traced"
    assert why(lambda k, v: v.a, value=Hidden) == "Hidden customizes attribute access"
    assert why(lambda k, v: v and v.a, value=Falsy) == "Falsy says itself when it is true"


def test_what_functions_become() -> None:
    assert text(lambda k, v: v.n > RATE) == "present(n) > 3"
    assert text(lambda k, v: v.kind == "a" and not v.ok) == "(present(kind) == 'a') & ~present(ok)"
    assert text(lambda k, v: v.note == "a") == "provided(coalesce(note == 'a', False), is_not_null(value()))"
    assert text(lambda k, v: v.n / 2 > 1) == (
        "provided(present(n), between(present(n), -9007199254740992, 9007199254740992)) / 2 > 1"
    )
    assert text(lambda v: Out(b=v.note, a=v.n), "value", arguments=("value",)) == (
        "Out(a=provided(present(n), is_not_null(value())), b=note)"
    )
    assert text(lambda k, v: (v.kind, v), "pair") == "present(kind), value()"
    assert text(lambda k, v: {"n": v["n"]}, "value", value={"n": int}) == "struct(n=present(n))"


def test_an_init_of_a_class_that_was_executed_is_its_own() -> None:
    space: dict[str, Any] = {"dataclasses": dataclasses, "__name__": __name__}
    exec("@dataclasses.dataclass\nclass Ran:\n  a: int\n  def __init__(self, a: int): self.a = a + 1\n", space)
    fn = define("fn = lambda v: Ran(a=v.n)\n", {"Ran": space["Ran"]})
    assert why(fn, "value", arguments=("value",)) == "it makes a Ran, which customizes how it is made"


def test_partial_functions() -> None:
    assert text(partial(lambda r, k, v: v.n > r, 3)) == "present(n) > 3"
    assert text(partial(lambda k, v, r, s=2: v.n * s > r, r=3)) == "present(n) * 2 > 3"
    fn = partial(lambda k, v, r: v.n > r, r=3)
    found = traced(fn)
    assert isinstance(found.columns, Columns) and found.unchanged()
    fn.keywords["r"] = 4
    assert not found.unchanged()


def test_what_is_computed_and_not_used_may_fail_all_the_same() -> None:
    def fn(k: str, v: Order) -> bool:
        share = 10 // v.n
        if v.ok:
            return True
        return share > 2

    assert "is_null(10 // present(n)) | is_not_null(10 // present(n))" in text(fn)


def test_one_of_several_functions_in_a_line_is_found() -> None:
    both = [lambda k, v: v.n > 1, lambda k, v: v.n > 2]
    assert [text(fn) for fn in both] == ["present(n) > 1", "present(n) > 2"]


@pytest.mark.parametrize(
    "head",
    [
        "def head(k, v=lambda k, v: v.n > 1): return True\nfn = head.__defaults__[0]\n",
        "def head(k, v, *, of=lambda k, v: v.n > 1): return True\nfn = head.__kwdefaults__['of']\n",
        "head = lambda k, v=lambda k, v: v.n > 1: True; fn = head.__defaults__[0]\n",
    ],
)
def test_a_function_in_the_head_of_another_is_not_taken_for_it(head: str) -> None:
    assert text(define(head)) == "present(n) > 1"


def test_decorators_that_give_the_function_itself_do_no_harm() -> None:
    @noted
    def fn(k: str, v: Order) -> bool:
        """Whether it is large."""
        return v.n > 1

    assert text(fn) == "present(n) > 1"


def test_a_source_that_has_changed_is_not_believed() -> None:
    fn = define("fn = lambda k, v: v.n > 1\n")
    name = fn.__code__.co_filename
    for other in ("v.n > 2", "v.n > 1.0", "v.n >= 1", "v.m > 1", "v.n > -1", "v.n > True"):
        changed = f"fn = lambda k, v: {other}\n"
        linecache.cache[name] = (len(changed), None, [changed], name)
        assert why(fn) == "its source is not what it was compiled from"
    del linecache.cache[name]
    assert why(fn) == "its source cannot be read"


def test_constants_are_compared_with_their_types_and_signs() -> None:
    fn = define("fn = lambda k, v: v.price > 0.0\n")
    name = fn.__code__.co_filename
    linecache.cache[name] = (10, None, ["fn = lambda k, v: v.price > -0.0\n"], name)
    assert why(fn) == "its source is not what it was compiled from"


def test_tracing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn = define("fn = lambda k, v: v.kind == '\\d' or 3 is None\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert why(fn) == "traced"
