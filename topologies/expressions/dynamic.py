"""Operators on two values of undeclared types: checked row by row, with the rules of ``inference``."""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable
from typing import Any

from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.numbers import DECIMAL_KERNELS, FLOATS, INTEGERS, Kernel
from penstock.topologies.expressions.readers import kind_of

COMPARE: dict[str, Kernel] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparisons of two values of one type, or of an int64 with a timestamp or decimal."""

_SCALARS = (int, float, bool, str, bytes, decimal.Decimal)


def comparison(op: str) -> Kernel:
    """A comparison of values of any two types; those without a common type are a fault."""
    compare = COMPARE[op]

    def kernel(a: Any, b: Any) -> Any:
        ta, tb = type(a), type(b)
        if ta is tb and ta in _SCALARS:
            return compare(a, b)
        pair = {ta, tb}
        if pair == {int, float}:
            return compare(float(a), float(b))
        if pair == {int, decimal.Decimal}:
            return compare(a, b)
        raise Fault(
            f"{op} cannot compare {kind_of(a)} {a!r:.100} with {kind_of(b)} {b!r:.100}; cast one of them, "
            "or declare a schema"
        )

    return kernel


def widened_comparison(op: str) -> Kernel:
    """A comparison of an int64 with a float64, as float64."""
    compare = COMPARE[op]

    def kernel(a: float, b: float) -> Any:
        return compare(float(a), float(b))

    return kernel


def arithmetic(op: str) -> Kernel:
    """Arithmetic of values of any two types; those for which it is not defined are a fault."""
    kernels: dict[tuple[type, type], Kernel] = {
        (int, int): INTEGERS[op],
        (float, float): FLOATS[op],
        (int, float): FLOATS[op],
        (float, int): FLOATS[op],
        (decimal.Decimal, decimal.Decimal): DECIMAL_KERNELS[op],
        (int, decimal.Decimal): DECIMAL_KERNELS[op],
        (decimal.Decimal, int): DECIMAL_KERNELS[op],
    }
    if op == "+":
        kernels[str, str] = operator.add

    def kernel(a: Any, b: Any) -> Any:
        found = kernels.get((type(a), type(b)))
        if found is None:
            raise Fault(
                f"{kind_of(a)} {op} {kind_of(b)} is not defined ({a!r:.100} {op} {b!r:.100}); cast one of them, "
                "or declare a schema"
            )
        return found(a, b)

    return kernel


def expecting(kinds: frozenset[str], function: str) -> Callable[[Any], Any]:
    """Check a value of undeclared type against what a function takes. Null passes."""

    def check(value: Any) -> Any:
        if value is None:
            return None
        kind = kind_of(value)
        if kind in kinds or (kind == "int64" and "timestamp" in kinds):
            return value
        raise Fault(f"{function}() takes {' or '.join(sorted(kinds))}, but got {kind} {value!r:.100}; cast it")

    return check


def condition(value: Any) -> Any:
    """Check a value of undeclared type that must be true, false or null."""
    if value is None or type(value) is bool:
        return value
    raise Fault(f"a condition must be true, false or null, not {value!r:.100}; compare it with something")
