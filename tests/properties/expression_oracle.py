"""A naive evaluator and a naive parser of expressions, written from the documented meaning of every node.

The evaluator walks the tree for each row with plain values; integers are computed without bounds, in fractions, and held
to 64 bits afterwards. The parser reads an expression's text through Python's own grammar.
"""

from __future__ import annotations

import ast
import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions.tree import (
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    Field,
    Input,
    Literal,
    Unary,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_1_MS = -719_162 * DAY_MS
YEAR_10000_MS = 2_932_897 * DAY_MS


class Bad(Exception):
    """The row has no answer: overflow, division by zero, a value that cannot be cast."""


def evaluate(e: Expression, row: dict[str, Any] | None) -> Any:
    """The expression of a row whose values have their declared types."""
    match e:
        case Literal(value, _):
            return value
        case Input("value"):
            return row
        case Field(of, name):
            owner = evaluate(of, row)
            return None if owner is None else owner[name]
        case Unary("~", of):
            given = evaluate(of, row)
            return None if given is None else not given
        case Unary("-", of):
            given = evaluate(of, row)
            return None if given is None else int64(-given)
        case Binary("&" | "|" as op, left, right):
            decides = op == "|"
            first = evaluate(left, row)
            if first is decides:
                return decides
            second = evaluate(right, row)
            if second is decides:
                return decides
            return None if first is None or second is None else not decides
        case Binary(op, left, right):
            a, b = evaluate(left, row), evaluate(right, row)
            return None if a is None or b is None else operated(op, a, b)
        case Case(branches, default):
            for condition, value in branches:
                if evaluate(condition, row) is True:
                    return evaluate(value, row)
            return evaluate(default, row)
        case Cast(of, to, strict):
            given = evaluate(of, row)
            try:
                return None if given is None else converted(given, to.kind)
            except Bad:
                if strict:
                    raise
                return None
        case Call("coalesce", args):
            return next((v for a in args if (v := evaluate(a, row)) is not None), None)
        case Call(function, args):
            return called(function, [evaluate(a, row) for a in args])
    raise AssertionError(f"the oracle does not know {e!r}")


def int64(value: Any) -> Any:
    """Integers held to 64 bits; other values as they are."""
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise Bad("overflow")
    return value


def operated(op: str, a: Any, b: Any) -> Any:
    """An operator of two values that are not null."""
    if op in ("==", "!=", "<", "<=", ">", ">="):
        return compared(op, a, b)
    if isinstance(a, str):
        return "".join((a, b))
    if op in ("/", "//", "%") and b == 0:
        raise Bad("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        return int64(whole(op, a, b))
    if op == "/":
        return float(a) / float(b)
    a, b = float(a), float(b)
    return {"+": a + b, "-": a - b, "*": a * b}[op] if op in "+-*" else (a // b if op == "//" else a % b)


def whole(op: str, a: int, b: int) -> Any:
    """Arithmetic of integers."""
    if op == "/":
        return float(a) / float(b)
    if op in ("//", "%"):
        floor = math.floor(Fraction(a, b))
        return floor if op == "//" else a - b * floor
    return int({"+": Fraction(a) + b, "-": Fraction(a) - b, "*": Fraction(a) * b}[op])


def compared(op: str, a: Any, b: Any) -> bool:
    """A comparison; an integer beside a float is one."""
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        if math.isnan(a) or math.isnan(b):
            return op == "!="
    sign = (a > b) - (a < b)
    return {"==": sign == 0, "!=": sign != 0, "<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}[op]


def called(function: str, given: list[Any]) -> Any:
    """A function of arguments that are evaluated."""
    if function in ("is_null", "is_not_null"):
        return (given[0] is None) == (function == "is_null")
    if function == "is_in":
        return contained(given[0], given[1:])
    if function == "between":
        x, low, high = given
        if x is None:
            return None
        above = None if low is None else compared(">=", x, low)
        below = None if high is None else compared("<=", x, high)
        if above is False or below is False:
            return False
        return None if None in (above, below) else True
    if any(v is None for v in given):
        return None
    return _PLAIN[function](*given)


def contained(x: Any, values: list[Any]) -> Any:
    """SQL's IN."""
    if x is None:
        return None
    found = [None if v is None else compared("==", x, v) for v in values]
    return True if True in found else None if None in found else False


def converted(value: Any, kind: str) -> Any:
    """A cast of int64, float64 or string among each other."""
    if kind == "string":
        return value if isinstance(value, str) else repr(value)
    if kind == "float64":
        return float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Bad("no integer")
        return int64(math.trunc(value))
    if isinstance(value, str):
        if re.fullmatch(r"\s*[+-]?[0-9]+\s*", value) is None:
            raise Bad("no integer")
        return int64(int(value))
    return value


def _part(text: str, separator: str, place: int) -> str | None:
    if not separator:
        raise Bad("empty separator")
    parts = text.split(separator)
    return parts[place] if 0 <= place < len(parts) else None


def _substring(text: str, start: int, length: int) -> str:
    if length < 0:
        raise Bad("negative length")
    begin = start if start >= 0 else max(len(text) + start, 0)
    return "".join(c for i, c in enumerate(text) if begin <= i < begin + length)


def _root(x: float) -> float:
    if x < 0:
        raise Bad("negative")
    return math.sqrt(x)


def _towards_zero(a: int, b: int) -> int:
    if b == 0:
        raise Bad("division by zero")
    result: int = int64(math.trunc(Fraction(a, b)))
    return result


def _rest(a: int, b: int) -> int:
    if b == 0:
        raise Bad("division by zero")
    return a - b * math.trunc(Fraction(a, b))


def _greatest(*values: Any) -> Any:
    nan = next((v for v in values if v != v), None)
    if nan is not None:
        return nan
    best = values[0]
    for v in values[1:]:
        best = v if v > best else best
    return best


def _least(*values: Any) -> Any:
    nan = next((v for v in values if v != v), None)
    if nan is not None:
        return nan
    best = values[0]
    for v in values[1:]:
        best = v if v < best else best
    return best


_PLAIN: dict[str, Any] = {
    "abs": lambda x: int64(-x if x < 0 or (x == 0 and math.copysign(1, x) < 0) else x),
    # the floor of a negative zero is one (IEEE 754)
    "floor": lambda x: math.copysign(math.floor(x), x) if isinstance(x, float) and math.isfinite(x) else x,
    "sqrt": _root,
    "quotient": _towards_zero,
    "remainder": _rest,
    "least": _least,
    "greatest": _greatest,
    "lower": lambda s: s.lower(),
    "concat": lambda *parts: "".join(parts),
    "contains": lambda s, part: s.find(part) >= 0,
    "starts_with": lambda s, part: s[: len(part)] == part,
    "length": lambda s: sum(1 for _ in s),
    "substring": _substring,
    "split_part": _part,
    "replace": lambda s, old, new: new.join(s.split(old)) if old else re.sub("", lambda _: new, s),
    "element": lambda of, place: of[place] if -len(of) <= place < len(of) else None,
    "hour": lambda ms, zone: _hour(ms),
    "floor_time": lambda ms, step: int64(ms // HOUR_MS * HOUR_MS),
}


def _hour(time_ms: int) -> int:
    if not YEAR_1_MS <= time_ms < YEAR_10000_MS:
        raise Bad("no year between 1 and 9999")
    return time_ms % DAY_MS // HOUR_MS


def parsed(text: str) -> Expression:
    """The tree of an expression's text."""
    return _tree(ast.parse(text, mode="eval").body)


_SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _tree(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value):
            return f.lit(value)
        case ast.Name(name):
            return f.col(name)
        case ast.Attribute(of, name):
            return Field(_tree(of), name)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return f.lit(-value)
        case ast.UnaryOp(op, of):
            return Unary("-" if isinstance(op, ast.USub) else "~", _tree(of))
        case ast.BinOp(left, op, right):
            return Binary(_SYMBOLS[type(op)], _tree(left), _tree(right))
        case ast.Compare(left, [op], [right]):
            return Binary(_SYMBOLS[type(op)], _tree(left), _tree(right))
        case ast.Call(ast.Attribute(of, "then" | "when" | "otherwise" as step), [given]):
            return getattr(_case(of), step)(_tree(given))  # type: ignore[no-any-return]  # a step of a case gives a case
        case ast.Call(ast.Name(function), args):
            return _call(function, args)
    raise AssertionError(ast.dump(node))


def _case(node: ast.expr) -> Any:
    """What stands before a step of ``when(…).then(…)…``."""
    match node:
        case ast.Call(ast.Name("when"), [condition]):
            return f.when(_tree(condition))
        case ast.Call(ast.Attribute(of, "when"), [condition]):
            return _case(of).when(_tree(condition))
    return _tree(node)


def _call(function: str, args: list[ast.expr]) -> Expression:
    if function in ("cast", "try_cast"):
        assert isinstance(args[1], ast.Constant)
        return _tree(args[0]).cast(args[1].value, strict=function == "cast")
    if function == "float":
        assert isinstance(args[0], ast.Constant)
        return f.lit(float(str(args[0].value)))
    if function == "Decimal":
        assert isinstance(args[0], ast.Constant)
        return f.lit(Decimal(str(args[0].value)))
    return Call(function, tuple(_tree(a) for a in args))
