"""The meanings of the parts of a traced function: values, of which some are expressions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.topologies.expressions.tree import Binary, Call, Case, Expression, Literal, literal
from penstock.topologies.expressions.types import BOOL, BYTES, FLOAT64, INT64, STRING, DataType

KINDS: dict[type, str] = {int: "int64", float: "float64", bool: "bool", str: "string", bytes: "bytes"}
"""The kinds of values that are traced."""
NAMES = {kind: python.__name__ for python, kind in KINDS.items()}
"""Their names in Python."""
TYPES: dict[str, DataType] = {t.kind: t for t in (INT64, FLOAT64, BOOL, STRING, BYTES)}
EXACT_INTS = 2**53
"""All ints up to this one are exact as floats."""
INT64_RANGE = range(-(2**63), 2**63)


class Untraceable(Exception):
    """Raised for a function that is not traced. Says why, in words that follow "it is given a Python function; "."""


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value that is the same for all rows: a plain one, or a tuple or frozenset of such."""

    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Scalar:
    """A number, truth value, text or bytes that an expression gives. ``nullable``: it may be ``None``."""

    expression: Expression
    kind: str
    nullable: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Whole:
    """A record, or an object within one. ``there``: the conditions under which it can be read, where it is a result."""

    expression: Expression
    type: DataType
    nullable: bool
    there: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Built:
    """A new record: a dict, or an instance of ``python``."""

    python: type | None
    fields: tuple[tuple[str, Meaning], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A tuple of two: a key and a value."""

    key: Meaning
    value: Meaning


@dataclasses.dataclass(frozen=True, eq=False)
class Callee:
    """A builtin or a class, by its name."""

    name: str
    called: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """A method of a value."""

    owner: Meaning
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class Opaque:
    """An argument that must not be used, and why."""

    why: str


Meaning: TypeAlias = Constant | Scalar | Whole | Built | Pair | Callee | Method | Opaque


def scalar(given: Meaning) -> Scalar:
    """The value as a scalar; a constant as a literal. Raises ``Untraceable`` for others, and for ``None``."""
    if isinstance(given, Scalar):
        return given
    if isinstance(given, Constant):
        kind = KINDS.get(type(given.value))
        if kind is None:
            raise Untraceable(f"it computes with {given.value!r:.60}")
        if kind == "int64" and given.value not in INT64_RANGE:
            raise Untraceable(f"{given.value} has more than 64 bits")
        return Scalar(literal(given.value), kind)
    raise Untraceable(unusable(given))


def unusable(given: Meaning) -> str:
    """Why a value cannot be computed with."""
    match given:
        case Opaque(why):
            return why
        case Whole():
            return f"it uses {given.expression.text()} as a whole"
        case Built():
            return "it uses a record that it has made"
        case Pair():
            return "it uses a tuple that it has made"
        case Callee(name, _) | Method(_, name):
            return f"it uses the function {name} as a value"
    raise AssertionError(given)


def sure(given: Meaning) -> Expression:
    """The value as an expression that fails where it is null, as Python does with ``None``."""
    found = scalar(given)
    return Call("present", (found.expression,)) if found.nullable else found.expression


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluated:
    """A requirement of a value: that this expression does not fail."""

    expression: Expression


Requirement: TypeAlias = Expression | Evaluated
"""A condition that must be true, or what must not fail, where Python would have raised otherwise."""


def provided(given: Meaning, requirements: Sequence[Requirement]) -> Meaning:
    """The value, failing where a requirement is not met."""
    evaluated: set[int] = set()
    for e in expressions_of(given):
        certain(e, evaluated)
    conditions: dict[int, Expression] = {}
    for one in requirements:
        if not isinstance(one, Evaluated):
            conditions[id(one)] = one
        elif id(one.expression) not in evaluated:
            of = (one.expression,)
            conditions[id(one.expression)] = Binary("|", Call("is_null", of), Call("is_not_null", of))
    return _failing_unless(given, tuple(conditions.values())) if conditions else given


def _failing_unless(given: Meaning, conditions: tuple[Expression, ...]) -> Meaning:
    match given:
        case Pair(key, value):
            return Pair(_failing_unless(key, conditions), value)
        case Built(python, ((name, first), *others)):
            return Built(python, ((name, _failing_unless(first, conditions)), *others))
        case Constant() | Scalar():
            found = scalar(given)
            return Scalar(Call("provided", (found.expression, *conditions)), found.kind, found.nullable)
        case Whole():
            return dataclasses.replace(given, there=(*given.there, *conditions))
    raise Untraceable(unusable(given))


def expressions_of(given: Meaning) -> tuple[Expression, ...]:
    """The expressions that a value consists of."""
    match given:
        case Scalar(expression=e) | Whole(expression=e):
            return (e,)
        case Built(_, fields):
            return tuple(e for _, part in fields for e in expressions_of(part))
        case Pair(key, value):
            return (*expressions_of(key), *expressions_of(value))
    return ()


def certain(e: Expression, found: set[int]) -> None:
    """Add the nodes, by their ids, that are evaluated whenever ``e`` is: not the sides that it may leave out."""
    if id(e) in found:
        return
    found.add(id(e))
    match e:
        case Case(branches, _):
            children: tuple[Expression, ...] = (branches[0][0],)
        case Call("coalesce", args):
            children = args[:1]
        case _:
            children = e.children()[:1] if getattr(e, "op", None) in ("&", "|") else e.children()
    for child in children:
        certain(child, found)


def size(e: Expression, known: dict[int, int]) -> int:
    """The number of nodes, each as often as it stands there."""
    if id(e) not in known:
        known[id(e)] = 1 + sum(size(child, known) for child in e.children())
    return known[id(e)]


def null() -> Literal:
    """The constant ``None``."""
    return literal(None)
