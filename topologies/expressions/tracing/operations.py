"""Python's operators on the values of a traced function, as expressions that give the same or fail. The package's docstring
says why each is the same."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions.tracing.meanings import (
    EXACT_INTS,
    KINDS,
    NAMES,
    Built,
    Callee,
    Constant,
    Meaning,
    Method,
    Pair,
    Scalar,
    Untraceable,
    Whole,
    null,
    scalar,
    sure,
    unusable,
)
from penstock.topologies.expressions.tree import Binary, Call, Case, Expression, Unary, literal

_NUMBERS = ("int64", "float64")
_EMPTY: dict[str, Any] = {"int64": 0, "float64": 0.0, "string": "", "bytes": b""}
_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def arithmetic(op: str, left: Meaning, right: Meaning) -> Meaning:
    """``+ - * / // %``."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _folded(op, left, right)
    a, b = scalar(left), scalar(right)
    kinds = {a.kind, b.kind}
    if op == "+" and kinds == {"string"}:
        return Scalar(Binary("+", sure(a), sure(b)), "string")
    if not kinds <= set(_NUMBERS) or (op in ("//", "%") and "float64" in kinds):
        raise Untraceable(f"it computes {NAMES[a.kind]} {op} {NAMES[b.kind]}")
    if op == "/" and kinds == {"int64"}:
        return Scalar(Binary(op, _exact(left), _exact(right)), "float64")
    kind = "float64" if op == "/" or "float64" in kinds else "int64"
    return Scalar(Binary(op, sure(a), sure(b)), kind)


def _folded(op: str, left: Constant, right: Constant) -> Constant:
    """Compute it of two constants, as Python does."""
    a, b = left.value, right.value
    kinds = {type(a), type(b)}
    if not (kinds <= {int, float, bool} or (kinds == {str} and op not in ("*", "%")) or op in ("==", "!=")):
        raise Untraceable(f"it computes {a!r:.60} {op} {b!r:.60}")
    try:
        return Constant(_FOLDED[op](a, b))
    except Exception as exc:
        raise Untraceable(f"{a!r:.60} {op} {b!r:.60} raises {type(exc).__name__}") from exc


def _exact(given: Meaning) -> Expression:
    """An int, failing where it is not exact as a float."""
    if isinstance(given, Constant):
        if not -EXACT_INTS <= given.value <= EXACT_INTS:
            raise Untraceable(f"it computes with {given.value}, which is not exact as a float")
        return literal(given.value)
    found = sure(given)
    return Call("provided", (found, Call("between", (found, literal(-EXACT_INTS), literal(EXACT_INTS)))))


def negated(given: Meaning) -> Meaning:
    """``-x``."""
    if isinstance(given, Constant) and type(given.value) in (int, float):
        return Constant(-given.value)
    found = scalar(given)
    if found.kind not in _NUMBERS:
        raise Untraceable(f"it computes - of {NAMES[found.kind]}")
    return Scalar(Unary("-", sure(found)), found.kind)


# -- comparisons ---------------------------------------------------------------------------------------------------------


def compared(op: str, left: Meaning, right: Meaning) -> Meaning:
    """``== != < <= > >=``, ``is`` and ``is not``, which take ``None`` only, ``in`` and ``not in``."""
    if op in ("in", "not in"):
        found = _contained(left, right)
        return found if op == "in" else inverse(found)
    if op in ("is", "is not"):
        if right != Constant(None):
            raise Untraceable("it asks for the identity of objects")
        return _null_test(left, negative=op == "is not")
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _folded(op, left, right)
    if op in ("==", "!="):
        for one, other in ((left, right), (right, left)):
            if other == Constant(None):
                if isinstance(one, Whole):
                    raise Untraceable("it compares a record, whose class may say what that means; use is None")
                return _null_test(one, negative=op == "!=")
        equal = _equal(left, right)
        return equal if op == "==" else inverse(equal)
    a, b = _both(op, left, right)
    return Scalar(Binary(op, a, b), "bool")


def _null_test(given: Meaning, *, negative: bool) -> Meaning:
    function = "is_not_null" if negative else "is_null"
    match given:
        case Constant(value):
            return Constant((value is None) != negative)
        case Whole() | Scalar():
            return Scalar(Call(function, (given.expression,)), "bool")
    raise Untraceable(unusable(given))


def _both(op: str, left: Meaning, right: Meaning) -> tuple[Expression, Expression]:
    """Both sides of a comparison, failing where one is null."""
    a, b = scalar(left), scalar(right)
    _check_kinds(op, a, b)
    if a.kind == b.kind:
        return sure(a), sure(b)
    return (_exact(left), sure(b)) if a.kind == "int64" else (sure(a), _exact(right))


def _check_kinds(op: str, a: Scalar, b: Scalar) -> None:
    kinds = {a.kind, b.kind}
    if not (kinds == set(_NUMBERS) or len(kinds) == 1) or (op not in ("==", "!=") and "bool" in kinds):
        raise Untraceable(f"it compares {NAMES[a.kind]} {op} {NAMES[b.kind]}")


def _equal(left: Meaning, right: Meaning) -> Scalar:
    """``==``, which is false where one side is ``None``, and true where both are."""
    a, b = scalar(left), scalar(right)
    if not (a.nullable or b.nullable):
        return Scalar(Binary("==", *_both("==", left, right)), "bool")
    _check_kinds("==", a, b)
    if a.kind != b.kind:
        raise Untraceable("it compares an int with a float, one of which may be null")
    if a.nullable and b.nullable:
        both: Expression = Binary("&", Call("is_null", (a.expression,)), Call("is_null", (b.expression,)))
    else:
        both = literal(False)
    return Scalar(Call("coalesce", (Binary("==", a.expression, b.expression), both)), "bool")


def _contained(item: Meaning, container: Meaning) -> Scalar:
    """``in``: a text within a text, or a value among constants."""
    if isinstance(container, Constant) and isinstance(container.value, (tuple, frozenset)):
        found = scalar(item)
        # a set has no order, but an expression must be the same in every process
        values = container.value if isinstance(container.value, tuple) else sorted(container.value, key=repr)
        if any(KINDS.get(type(v)) != found.kind or v != v for v in values) or not values:
            raise Untraceable(f"it looks for {NAMES[found.kind]} among {container.value!r:.60}")
        among = Call("is_in", (found.expression, *(scalar(Constant(v)).expression for v in values)))
        return Scalar(Call("coalesce", (among, literal(False))) if found.nullable else among, "bool")
    whole, part = scalar(container), scalar(item)
    if {whole.kind, part.kind} != {"string"}:
        raise Untraceable(f"it looks for {NAMES[part.kind]} in {NAMES[whole.kind]}")
    return Scalar(Call("contains", (sure(whole), sure(part))), "bool")


# -- truth and choices ---------------------------------------------------------------------------------------------------


def truth(given: Meaning) -> Constant | Scalar:
    """Whether it is true, as ``if`` asks."""
    match given:
        case Constant(value):
            return Constant(bool(value))
        case Whole(expression=expression, type=tp):
            if tp.python is not None and (hasattr(tp.python, "__bool__") or hasattr(tp.python, "__len__")):
                raise Untraceable(f"{tp.python.__name__} says itself when it is true")
            return Scalar(Call("is_not_null", (expression,)), "bool")
        case Scalar(e, kind, nullable):
            test = e if kind == "bool" else Binary("!=", e, literal(_EMPTY[kind]))
            return Scalar(Call("coalesce", (test, literal(False))) if nullable else test, "bool")
    raise Untraceable(unusable(given))


def inverse(given: Meaning) -> Constant | Scalar:
    """``not x``."""
    found = truth(given)
    return Constant(not found.value) if isinstance(found, Constant) else Scalar(Unary("~", found.expression), "bool")


def choice(test: Scalar, then: Meaning, other: Meaning) -> Meaning:
    """``then if test else other``; ``test`` is a condition that is never null."""
    match then, other:
        case Built(python, fields), Built(python2, others):
            if python is not python2 or [n for n, _ in fields] != [n for n, _ in others]:
                raise Untraceable("it makes records of different fields")
            both = zip(fields, others, strict=True)
            return Built(python, tuple((name, choice(test, a, b)) for (name, a), (_, b) in both))
        case Pair(), Pair():
            return Pair(choice(test, then.key, other.key), choice(test, then.value, other.value))
        case ((Constant() | Scalar()), (Constant() | Scalar())):
            return _chosen(test, then, other)
    for one in (then, other):
        if isinstance(one, (Callee, Method)):
            raise Untraceable(unusable(one))
    raise Untraceable("it gives a record in one case and something else in another")


def _chosen(test: Scalar, then: Constant | Scalar, other: Constant | Scalar) -> Meaning:
    nothing = Constant(None)
    if then == nothing and other == nothing:
        raise Untraceable("it gives null in each case")
    known = scalar(other if then == nothing else then)
    a = Scalar(null(), known.kind, nullable=True) if then == nothing else known
    b = Scalar(null(), known.kind, nullable=True) if other == nothing else scalar(other)
    if a.kind != b.kind:
        raise Untraceable(f"it gives {NAMES[a.kind]} in one case and {NAMES[b.kind]} in another")
    holds = test.expression
    if a.kind == "bool":
        for one, rest, made in (
            (then, b, {True: ("|", holds), False: ("&", Unary("~", holds))}),
            (other, a, {True: ("|", Unary("~", holds)), False: ("&", holds)}),
        ):
            if isinstance(one, Constant) and one.value is not None:
                op, first = made[one.value]
                return Scalar(Binary(op, first, rest.expression), "bool", rest.nullable)
    return Scalar(Case(((holds, a.expression),), b.expression), a.kind, a.nullable or b.nullable)
