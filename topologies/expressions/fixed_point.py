"""Decimals that are made of whole numbers and constants, as scaled whole numbers: no decimal is built for a row to compare
it, or to write it.

Exact, or ``None``: a value is below 2**62 in its scale, so it has at most 19 of the 38 digits that decimals keep, and its
sums, differences and products are those of the row interpreter (``numbers``). To compare them their digits are not kept: 1
and 1.0 are one. As results they are: ``computed_decimals``.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from penstock.topologies.expressions import kernels as k
from penstock.topologies.expressions.inference import Inference
from penstock.topologies.expressions.tree import Alias, Binary, Expression, Literal

F = TypeVar("F")
_BOUND = 1 << 62
_SCALE_MAX = 18


class Fixed(NamedTuple):
    """Numbers ``vec / 10**scale``. ``most``: none is further from 0 in this scale. ``minus_zero``: a 0 may stand for -0."""

    vec: k.Vec
    scale: int
    most: int
    minus_zero: bool = False


def compared_decimals(e: Binary, types: Inference, frame: F, vec_of: Callable[[Expression, F], k.Vec]) -> k.Vec | None:
    """A comparison with a decimal. ``vec_of``: a part's values in the frame. ``None``: it is none, or cannot be done so."""
    kinds = {types.of(e.left).kind, types.of(e.right).kind}
    if "decimal" not in kinds or not kinds <= {"decimal", "int64"}:
        return None
    a = _fixed(e.left, types, frame, vec_of)
    b = None if a is None else _fixed(e.right, types, frame, vec_of)
    return None if a is None or b is None else compared(e.op, a, b)


def computed_decimals(
    e: Expression, types: Inference, frame: F, vec_of: Callable[[Expression, F], k.Vec]
) -> Fixed | None:
    """The decimals that an expression yields, with the places that the row interpreter gives them: ``scale``. ``None``: it
    yields others, or they cannot be found so."""
    if types.of(e).kind != "decimal" or not _has_places(e):
        return None
    found = _fixed(e, types, frame, vec_of)
    return None if found is None or found.minus_zero else found


def _has_places(e: Expression) -> bool:
    """Whether its scale says which places each result has: all but constants such as ``1E+3``, and ``-0``."""
    match e:
        case Alias(of, _):
            return _has_places(of)
        case Binary(("+" | "-" | "*"), left, right):
            return _has_places(left) and _has_places(right)
        case Literal(decimal.Decimal() as value, _):
            exponent = value.as_tuple().exponent
            return isinstance(exponent, int) and exponent <= 0 and not (value.is_signed() and not value)
    return True


def _fixed(part: Expression, types: Inference, frame: F, vec_of: Callable[[Expression, F], k.Vec]) -> Fixed | None:
    match part:
        case Literal(value, _):
            return of_constant(value)
        case Alias(of, _):
            return _fixed(of, types, frame, vec_of)
    if types.of(part).kind == "int64":
        return of_integers(vec_of(part, frame))
    match part:
        case Binary(("+" | "-" | "*") as op, left, right):
            a = _fixed(left, types, frame, vec_of)
            b = None if a is None else _fixed(right, types, frame, vec_of)
            return None if a is None or b is None else arithmetic(op, a, b)
    return None


def of_integers(vec: k.Vec) -> Fixed | None:
    """Whole numbers; ``None`` for others, or nulls without a type."""
    array = vec.array
    if vec.null or array.dtype != np.int64:
        return None
    most = max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0
    return Fixed(vec, 0, most) if most < _BOUND else None


def of_constant(value: Any) -> Fixed | None:
    """A whole or finite decimal number."""
    if type(value) is decimal.Decimal and value.is_finite():
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if not -_SCALE_MAX <= exponent <= _SCALE_MAX:
            return None
        scale = max(-exponent, 0)
        unscaled = int(value.scaleb(scale, decimal.Context(prec=100)))
    elif type(value) is int:
        scale, unscaled = 0, value
    else:
        return None
    return Fixed(k.Vec(np.array(unscaled, np.int64)), scale, abs(unscaled)) if abs(unscaled) < _BOUND else None


def arithmetic(op: str, a: Fixed, b: Fixed) -> Fixed | None:
    """The sum, difference or product."""
    if op == "*":
        scale, most = a.scale + b.scale, a.most * b.most
    else:
        scale = max(a.scale, b.scale)
        scaled = _scaled(a, scale), _scaled(b, scale)
        if scaled[0] is None or scaled[1] is None:
            return None
        a, b = scaled[0], scaled[1]
        most = a.most + b.most
    if scale > _SCALE_MAX or most >= _BOUND:
        return None
    vec = k.arithmetic(op, a.vec, b.vec)
    signed = op == "*" and (_any_below_zero(a) or _any_below_zero(b)) and not np.asarray(vec.array).all()
    return Fixed(vec, scale, most, signed or a.minus_zero or b.minus_zero)


def _any_below_zero(a: Fixed) -> bool:
    array = np.asarray(a.vec.array)
    return array.size > 0 and int(array.min()) < 0


def compared(op: str, a: Fixed, b: Fixed) -> k.Vec | None:
    """A comparison."""
    scale = max(a.scale, b.scale)
    left, right = _scaled(a, scale), _scaled(b, scale)
    return None if left is None or right is None else k.compared(op, left.vec, right.vec)


def _scaled(a: Fixed, scale: int) -> Fixed | None:
    """Give the same numbers a larger scale."""
    if scale == a.scale:
        return a
    factor = 10 ** (scale - a.scale)
    if a.most * factor >= _BOUND:
        return None
    vec = a.vec
    scaled = k.Vec(np.asarray(vec.array * factor), vec.nulls, vec.errors)
    return Fixed(scaled, scale, a.most * factor, a.minus_zero)
