"""Print expressions in Python's syntax, with columns as bare names: ``(amount * 2 > 100) & lower(name).is_null()`` is
printed as ``(amount * 2 > 100) & is_null(lower(name))``. Prints brackets only where precedence needs them."""

from __future__ import annotations

import datetime
import keyword
import math
from typing import Any

from penstock.topologies.expressions.tree import (
    COMPARISONS,
    AggregateExpression,
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    Extend,
    Field,
    HeaderValue,
    Input,
    Literal,
    StructOf,
    Unary,
)

_PRECEDENCE = {**dict.fromkeys(COMPARISONS, 1), "|": 2, "&": 3, "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
_UNARY = 6
_POSTFIX = 7
_SIDES = ("left", "right")


def text_of(expression: Expression) -> str:
    """See ``Expression.text``."""
    return _print(expression)[0]


def default_name(expression: Expression) -> str:
    """The default name of a result: an alias, a field's name, else the text."""
    if isinstance(expression, (Alias, Field)):
        return expression.name
    return text_of(expression)


def _print(e: Expression) -> tuple[str, int]:
    """The text, and how tightly it binds."""
    match e:
        case Literal():
            return _literal(e), _POSTFIX
        case Input(which):
            return f"{which}()", _POSTFIX
        case HeaderValue(name):
            return f"header({name!r})", _POSTFIX
        case Field(of, name):
            return _field(of, name), _POSTFIX
        case Unary(op, of):
            inner = _within(of, _UNARY)
            return f"{op}({inner})" if isinstance(of, Literal) else f"{op}{inner}", _UNARY
        case Binary(op, left, right):
            level = _PRECEDENCE[op]
            # comparisons would form a chain, so a side that is a comparison needs brackets
            first = _within(left, level + 1 if op in COMPARISONS else level)
            return f"{first} {op} {_within(right, level + 1)}", level
        case _:
            return _print_call(e), _POSTFIX


def _within(e: Expression, least: int) -> str:
    text, level = _print(e)
    return text if level >= least else f"({text})"


def _print_call(e: Expression) -> str:
    match e:
        case Call(function, args):
            return f"{function}({', '.join(map(text_of, args))})"
        case Case(branches, default):
            cases = ".".join(f"when({text_of(c)}).then({text_of(v)})" for c, v in branches)
            return f"{cases}.otherwise({text_of(default)})"
        case Cast(of, to, strict):
            return f"{'cast' if strict else 'try_cast'}({text_of(of)}, {str(to)!r})"
        case Alias(of, name):
            return f"{_within(of, _POSTFIX)}.alias({name!r})"
        case StructOf(fields, python, of):
            made = "struct" if python is None else python.__name__
            return f"{made}({'' if of is None else f'{text_of(of)}, '}{_fields(fields)})"
        case Extend(of, fields):
            return f"extend({text_of(of)}, {_fields(fields)})"
        case AggregateExpression(function, of, args, condition):
            parts = [] if of is None else [text_of(of)]
            parts += [repr(a) for a in args]
            parts += [] if condition is None else [f"where={text_of(condition)}"]
            return f"{function}({', '.join(parts)})"
    raise AssertionError(f"{type(e).__name__} has no text")


def _field(of: Expression, name: str) -> str:
    plain = name.isidentifier() and not keyword.iskeyword(name)
    if isinstance(of, Input):
        if of.which == "value":
            return name if plain and name not in _SIDES else f"col({name!r})"
        if of.which in _SIDES:
            return f"{of.which}.{name}" if plain else f"{of.which}()[{name!r}]"
    before = _within(of, _POSTFIX)
    return f"{before}.{name}" if plain else f"{before}[{name!r}]"


def _fields(fields: tuple[tuple[str, Expression], ...]) -> str:
    if all(n.isidentifier() and not keyword.iskeyword(n) for n, _ in fields):
        return ", ".join(f"{n}={text_of(e)}" for n, e in fields)
    return "**{" + ", ".join(f"{n!r}: {text_of(e)}" for n, e in fields) + "}"


def _literal(e: Literal) -> str:
    value: Any = e.value
    if e.type.kind == "timestamp":
        return f"timestamp({iso_text(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


_EPOCH = datetime.datetime(1970, 1, 1)


def iso_text(time_ms: int) -> str:
    """A timestamp as ``2024-01-31T12:00:00.000Z``. Raises ``OverflowError`` outside the years 1 to 9999."""
    return (_EPOCH + datetime.timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds") + "Z"
