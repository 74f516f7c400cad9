"""Random functions as source text over a typed record, and the records that they meet."""

from __future__ import annotations

import dataclasses
import itertools
import json
import linecache
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.state.log import Record


class Inner(msgspec.Struct, frozen=True):
    c: int
    w: str
    h: float | None = None


class Row(msgspec.Struct, frozen=True):
    a: int
    b: int
    x: float
    y: float
    s: str
    t: str
    p: bool
    inner: Inner
    m: int | None = None
    z: float | None = None
    u: str | None = None
    q: bool | None = None
    maybe: Inner | None = None


@dataclasses.dataclass(frozen=True)
class Noted:
    a: int
    b: int
    x: float
    y: float
    s: str
    t: str
    p: bool
    inner: Inner
    m: int | None = None
    z: float | None = None
    u: str | None = None
    q: bool | None = None
    maybe: Inner | None = None


class Made(msgspec.Struct):
    i: int
    f: float = 1.5
    t: str | None = None
    b: bool | None = None


@dataclasses.dataclass
class Kept:
    i: int
    f: float = 1.5
    t: str | None = None
    b: bool | None = None


INTS = (0, 1, 2, 3, -1, -7, 10, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 2**70)
FLOATS = (0.0, -0.0, 1.0, 1.5, 2.0, 1e308, -3.25, 2.0**53, 5e-324)
TEXTS = ("view", "click", "größe", "", "View", "x")
GLOBALS: dict[str, Any] = {
    "Made": Made,
    "Kept": Kept,
    "RATE": 3,
    "SHARE": 0.5,
    "WORD": "view",
    "FEW": (1, 2, 3),
    "WORDS": frozenset({"view", ""}),
    "ON": True,
    "NOTHING": None,
}
_numbers = itertools.count()


def define(text: str, names: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The function ``fn`` that the text defines, whose source can be found."""
    filename = f"<traced {next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = dict(GLOBALS if names is None else names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # comparisons of constants are meant here
        exec(compile(text, filename, "exec"), space)
    found: Callable[..., Any] = space["fn"]
    return found


class Writer:
    """Writes random functions. ``items``: fields are read as items of dicts; ``plain``: values are of this kind, and have no
    fields."""

    def __init__(self, rng: random.Random, *, items: bool = False, plain: str | None = None) -> None:
        self._rng = rng
        self._items = items
        self._plain = plain
        self._locals: dict[str, list[str]] = {}
        self._parameters: list[str] = []

    def _field(self, name: str) -> str:
        if self._plain is not None:
            return "v"
        first, *others = name.split(".")
        found = f'v["{first}"]' if self._items else f"v.{first}"
        return ".".join([found, *others])

    def of(self, kind: str, depth: int = 3) -> str:
        """An expression of a kind: ``int``, ``float``, ``str`` or ``bool``; now and then of another."""
        if self._rng.random() < 0.02:
            kind = self._rng.choice(("int", "float", "str", "bool"))
        if self._locals.get(kind) and self._rng.random() < 0.4:
            return self._rng.choice(self._locals[kind])
        if depth <= 0 or self._rng.random() < 0.15:
            return self._leaf(kind)
        return self._rng.choice(getattr(self, f"_{kind}"))(self, depth - 1)

    def _leaf(self, kind: str) -> str:
        rng = self._rng
        nested = [] if self._items else ["inner.c"] if kind == "int" else ["inner.w"] if kind == "str" else []
        unsure = {"int": ["m"], "float": ["z"], "str": ["u"], "bool": ["q"]}[kind]
        if not self._items:
            unsure += {"int": ["maybe.c"], "float": ["inner.h"], "str": ["maybe.w"], "bool": []}[kind]
        fields = {"int": ["a", "b"], "float": ["x", "y"], "str": ["s", "t"], "bool": ["p"]}[kind] * 3 + nested
        if rng.random() < 0.7 and self._plain in (None, kind):
            return self._field(rng.choice(fields if rng.random() < 0.85 else unsure))
        return rng.choice(
            {
                "int": ["0", "1", "2", "-3", "RATE", str(2**53), str(2**63 - 1), "7", "10"],
                "float": ["0.0", "0.5", "SHARE", "-2.0", "1e300", "3.0"],
                "str": ['"view"', '""', "WORD", '"x"'],
                "bool": ["True", "False", "ON"],
            }[kind]
        )

    def choice(self, kind: str, depth: int) -> str:
        return f"({self.of(kind, depth)} if {self.test(depth)} else {self.of(kind, depth)})"

    def test(self, depth: int) -> str:
        """Something whose truth is asked for."""
        rng = self._rng
        if rng.random() < 0.2:
            return self.of(rng.choice(("int", "float", "str")), depth)
        return self.of("bool", depth)

    def either(self, kind: str, depth: int) -> str:
        return f"({self.of(kind, depth)} {self._rng.choice(('and', 'or'))} {self.of(kind, depth)})"

    def null_test(self, depth: int) -> str:
        rng = self._rng
        inner = [] if self._items else ["maybe", "inner", "inner.h"]
        name = self._field(rng.choice(("m", "z", "u", "q", *inner)))
        of = rng.choice((name, name, name, *self._parameters, self.of("int", 0)))
        return f"({of} {rng.choice(('is', 'is not', '==', '!='))} None)"

    def guarded(self, depth: int) -> str:
        rng = self._rng
        inner = [] if self._items or self._plain else [("maybe", "")]
        name, kind = rng.choice((("m", "int"), ("z", "float"), ("u", "str"), *inner))
        kind = self._plain or kind
        field = self._field(name)
        used = f"{field}.c < {self.of('int', depth)}" if name == "maybe" else f"{field} < {self.of(kind, depth)}"
        return rng.choice((f"({field} is not None and {used})", f"({field} is None or {used})"))

    def compare(self, depth: int) -> str:
        rng = self._rng
        kind = rng.choice(("int", "int", "float", "str", "mixed"))
        ops = ("==", "!=", "<", "<=", ">", ">=")
        if kind == "mixed":
            sides = [self.of("int", depth), self.of("float", depth)]
            rng.shuffle(sides)
        else:
            sides = [self.of(kind, depth) for _ in range(rng.choice((2, 2, 3)))]
        return f"({sides[0]}" + "".join(f" {rng.choice(ops)} {s}" for s in sides[1:]) + ")"

    def among(self, depth: int) -> str:
        rng = self._rng
        op = rng.choice(("in", "not in"))
        if rng.random() < 0.5:
            return f"({self.of('int', depth)} {op} {rng.choice(('(1, 2)', 'FEW', '[0, 3, -1]', '{1, 7}'))})"
        container = rng.choice((self.of("str", 0), "WORDS", '(WORD, "")'))
        return f"({self.of('str', depth)} {op} {container})"

    _int: tuple[Any, ...] = (
        *[lambda w, d: f"({w.of('int', d)} {w._rng.choice('+-*')} {w.of('int', d)})"] * 3,
        lambda w, d: f"({w.of('int', d)} {w._rng.choice(('//', '%'))} {w.of('int', d)})",
        lambda w, d: f"-{w.of('int', d)}",
        lambda w, d: f"abs({w.of('int', d)})",
        lambda w, d: f"len({w.of('str', d)})",
        lambda w, d: f"{w._rng.choice(('min', 'max'))}({w.of('int', d)}, {w.of('int', d)})",
        lambda w, d: w.choice("int", d),
        lambda w, d: w.either("int", d),
    )
    _float: tuple[Any, ...] = (
        *[lambda w, d: f"({w.of('float', d)} {w._rng.choice('+-*')} {w.of('float', d)})"] * 2,
        lambda w, d: f"({w.of('float', d)} {w._rng.choice('+-*/')} {w.of('int', d)})",
        lambda w, d: f"({w.of('int', d)} {w._rng.choice('+-*/')} {w.of('float', d)})",
        lambda w, d: f"({w.of('float', d)} / {w.of('float', d)})",
        lambda w, d: f"({w.of('int', d)} / {w.of('int', d)})",
        lambda w, d: f"-{w.of('float', d)}",
        lambda w, d: f"abs({w.of('float', d)})",
        lambda w, d: f"float({w.of('int', d)})",
        lambda w, d: f"{w._rng.choice(('min', 'max'))}({w.of('float', d)}, {w.of('float', d)})",
        lambda w, d: w.choice("float", d),
        lambda w, d: w.either("float", d),
    )
    _str: tuple[Any, ...] = (
        lambda w, d: f"({w.of('str', d)} + {w.of('str', d)})",
        lambda w, d: f"{w.of('str', d)}.{w._rng.choice(('lower', 'upper', 'strip'))}()",
        lambda w, d: f"{w.of('str', d)}.replace({w.of('str', 0)}, {w.of('str', 0)})",
        lambda w, d: f"str({w.of(w._rng.choice(('int', 'str')), d)})",
        lambda w, d: "f'" + "-".join(f"{{{w._leaf(k)}}}".replace("'", '"') for k in ("int", "str")) + "'",
        lambda w, d: w.choice("str", d),
        lambda w, d: w.either("str", d),
    )
    _bool: tuple[Any, ...] = (
        *[lambda w, d: w.compare(d)] * 3,
        lambda w, d: w.among(d),
        lambda w, d: w.null_test(d),
        lambda w, d: w.guarded(d),
        lambda w, d: f"(not {w.test(d)})",
        lambda w, d: f"bool({w.test(d)})",
        lambda w, d: f"({w.of('bool', d)} {w._rng.choice(('==', '!='))} {w.of('bool', d)})",
        lambda w, d: f"{w.of('str', d)}.{w._rng.choice(('startswith', 'endswith'))}({w.of('str', 0)})",
        lambda w, d: f"({w.test(d)} {w._rng.choice(('and', 'or'))} {w.test(d)})",
        lambda w, d: f"({w.of('bool', d)} {w._rng.choice(('and', 'or'))} {w.of('bool', d)})",
        lambda w, d: w.choice("bool", d),
    )

    def result(self, gives: str, depth: int) -> str:
        """What a function returns."""
        rng = self._rng
        if gives == "test":
            return self.test(depth)
        if gives == "pair":
            value = "v" if rng.random() < 0.3 else self.result(rng.choice(("Made", "Kept")), depth)
            return f"({self.of('str', depth)}, {value})"
        if gives == "Inner":
            return self._field(rng.choice(("inner", "maybe")))
        if gives == "dict":
            parts = {"n": "int", "x": "float", "s": "str", "b": "bool"}
            return "{" + ", ".join(f'"{n}": {self.of(k, depth)}' for n, k in parts.items()) + "}"
        if gives in ("Made", "Kept"):
            parts = [f"i={self.of('int', depth)}"]
            parts += [f"f={self.of('float', depth)}"] if rng.random() < 0.6 else []
            parts += [f"t={self._field('u')}"] if rng.random() < 0.3 else []
            parts += [f"b={rng.choice(('None', self.of('bool', depth)))}"] if rng.random() < 0.5 else []
            rng.shuffle(parts)
            if rng.random() < 0.2:
                return f"{gives}({self.of('int', depth)}, {self.of('float', depth)})"
            return f"{gives}({', '.join(parts)})"
        if rng.random() < 0.1:
            return f"(None if {self.test(1)} else {self.of(gives, depth)})"
        return self.of(gives, depth)

    def function(self, parameters: str, gives: str) -> str:
        """A definition of ``fn``."""
        rng = self._rng
        self._locals, self._parameters = {}, parameters.split(", ")
        if rng.random() < 0.5:
            return f"fn = lambda {parameters}: {self.result(gives, rng.randint(0, 3))}\n"
        lines = [f"def fn({parameters}):"]
        for number in range(rng.randint(0, 2)):
            kind = rng.choice(("int", "float", "str", "bool"))
            lines.append(f"    l{number} = {self.of(kind, 2)}")
            self._locals.setdefault(kind, []).append(f"l{number}")
        if rng.random() < 0.6:
            lines.append(f"    if {self.test(2)}:")
            lines.append(f"        return {self.result(gives, 2)}")
            if rng.random() < 0.3:
                lines.append(f"    elif {self.test(1)}:")
                lines.append(f"        return {self.result(gives, 1)}")
        if rng.random() < 0.95 or len(lines) == 1:
            lines.append(f"    return {self.result(gives, 2)}")
        return "\n".join(lines) + "\n"


def random_value(rng: random.Random, *, plain: bool) -> bytes | None:
    """A record; a ``plain`` one has no extremes."""
    if not plain and rng.random() < 0.05:
        return None
    if not plain and rng.random() < 0.03:
        return b'{"a":1}'

    def inner() -> dict[str, Any]:
        h = {} if rng.random() < 0.5 else {"h": rng.choice((None, *FLOATS))}
        return {"c": rng.choice(INTS), "w": rng.choice(TEXTS), **h}

    ints = (1, 2, 3, -1, 5) if plain else INTS
    row: dict[str, Any] = {
        "a": rng.choice(ints),
        "b": rng.choice(ints),
        "x": rng.choice(FLOATS),
        "y": rng.choice((1.0, 2.5) if plain else FLOATS),
        "s": rng.choice(TEXTS),
        "t": rng.choice(TEXTS),
        "p": rng.random() < 0.5,
        "inner": inner(),
    }
    optional = (("m", ints), ("z", FLOATS), ("u", TEXTS), ("q", (True, False)))
    for name, values in optional:
        if rng.random() < 0.7:
            row[name] = rng.choice((None, *values, *values))
    if rng.random() < 0.6:
        row["maybe"] = rng.choice((None, inner()))
    assert all(math.isfinite(v) for v in row.values() if isinstance(v, float))
    return json.dumps(row).encode()


def random_records(rng: random.Random, *, plain: float = 0.3) -> list[Record]:
    """Records; ``plain``: the share of inputs without extremes, in which few rows fail."""
    only_plain = rng.random() < plain
    keys = [b"a", b"b", "ö".encode(), b"", b"view"] + [None] * (not only_plain)

    def value() -> bytes | None:
        return random_value(rng, plain=only_plain or rng.random() < 0.6)

    shared = value()
    return [
        Record(rng.choice(keys), shared if rng.random() < 0.2 else value(), i)
        for i in range(rng.choice((1, 3, 12, 40)))
    ]
