"""Arithmetic of one row. Kernels take values that are not null and raise ``Fault``."""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.signature import FunctionSignature, Mismatch, common_of_all, same
from penstock.topologies.expressions.types import BOOL, FLOAT64, INT64

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

DECIMALS = decimal.Context(
    prec=38,
    rounding=decimal.ROUND_HALF_EVEN,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)
"""The context of decimal arithmetic: 38 digits, ties to even, independent of the thread's context."""

_REMAINDERS = decimal.Context(prec=10_000, traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Inexact])
"""A remainder has hardly more digits than its operands."""

Kernel = Callable[[Any, Any], Any]


def overflow(result: int) -> Fault:
    """The fault for an int64 out of range."""
    return Fault(f"int64 overflow: {result} does not fit into 64 bits; cast to decimal or float64 before")


def within(result: int) -> int:
    """The result, if it is an int64."""
    if INT64_MIN <= result <= INT64_MAX:
        return result
    raise overflow(result)


def _zero() -> Fault:
    return Fault("division by zero; guard it: when(divisor != 0).then(…)")


def _add(a: int, b: int) -> int:
    r = a + b
    if INT64_MIN <= r <= INT64_MAX:
        return r
    raise overflow(r)


def _subtract(a: int, b: int) -> int:
    r = a - b
    if INT64_MIN <= r <= INT64_MAX:
        return r
    raise overflow(r)


def _multiply(a: int, b: int) -> int:
    r = a * b
    if INT64_MIN <= r <= INT64_MAX:
        return r
    raise overflow(r)


def _int_floor(a: int, b: int) -> int:
    if b == 0:
        raise _zero()
    return within(a // b)


def _int_modulo(a: int, b: int) -> int:
    if b == 0:
        raise _zero()
    return a % b


def _divide(a: float, b: float) -> float:
    if b == 0:
        raise _zero()
    return float(a) / float(b)


def _float_floor(a: float, b: float) -> float:
    if b == 0:
        raise _zero()
    return float(a) // float(b)


def _float_modulo(a: float, b: float) -> float:
    if b == 0:
        raise _zero()
    return float(a) % float(b)


def _decimals(compute: Callable[[Any, Any], decimal.Decimal]) -> Kernel:
    """Translate Decimal's signals to faults; an int64 operand is converted exactly."""

    def kernel(a: Any, b: Any) -> decimal.Decimal:
        try:
            return compute(a, b)
        except (decimal.DivisionByZero, ZeroDivisionError) as exc:
            raise _zero() from exc
        except decimal.InvalidOperation as exc:
            # zero divided by zero is an invalid operation to the decimal module
            if not b:
                raise _zero() from exc
            raise Fault(f"the decimal result of {a} and {b} cannot be represented in 38 digits") from exc
        except decimal.Overflow as exc:
            raise Fault(f"the decimal result of {a} and {b} is out of range") from exc

    return kernel


def _divided(a: Any, b: Any) -> tuple[decimal.Decimal, decimal.Decimal, bool]:
    """Quotient and remainder towards zero, both exact, and whether the floor is one below that quotient."""
    whole = DECIMALS.divide_int(a, b)
    rest = _REMAINDERS.remainder(a, b)
    return whole, rest, bool(rest) and (rest < 0) != (b < 0)


def _floor_divided(a: Any, b: Any) -> decimal.Decimal:
    whole, _, below = _divided(a, b)
    return DECIMALS.subtract(whole, 1) if below else whole


def _modulo(a: Any, b: Any) -> decimal.Decimal:
    _, rest, below = _divided(a, b)
    return DECIMALS.add(rest, b) if below else DECIMALS.plus(rest)


INTEGERS: dict[str, Kernel] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": _int_floor,
    "%": _int_modulo,
}
FLOATS: dict[str, Kernel] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "//": _float_floor,
    "%": _float_modulo,
}
"""Arithmetic of two floats, or of a float and an int64."""
DECIMAL_KERNELS: dict[str, Kernel] = {
    "+": _decimals(DECIMALS.add),
    "-": _decimals(DECIMALS.subtract),
    "*": _decimals(DECIMALS.multiply),
    "/": _decimals(DECIMALS.divide),
    "//": _decimals(_floor_divided),
    "%": _decimals(_modulo),
}


def negative(value: Any) -> Any:
    """``-value``."""
    if type(value) is int:
        return within(-value)
    return DECIMALS.minus(value) if isinstance(value, decimal.Decimal) else -value


def _absolute(value: Any) -> Any:
    if type(value) is int:
        return within(abs(value))
    return DECIMALS.abs(value) if isinstance(value, decimal.Decimal) else abs(value)


def _whole(towards: Callable[[Any], int], mode: str) -> Callable[[Any], Any]:
    def kernel(value: Any) -> Any:
        if type(value) is int:
            return value
        if isinstance(value, decimal.Decimal):
            return value.to_integral_value(mode, DECIMALS)
        # keep the sign of a zero, as the columnar kernels do
        return math.copysign(float(towards(value)), value) if math.isfinite(value) else value

    return kernel


def _rounding(constants: Sequence[Any]) -> Callable[[Any], Any]:
    digits = constants[0] if constants else 0
    if not 0 <= digits <= 30:
        raise Mismatch(f"round() to {digits} digits; use 0 to 30")

    def kernel(value: Any) -> Any:
        if type(value) is int:
            return value
        if isinstance(value, decimal.Decimal):
            exponent = value.as_tuple().exponent
            short = isinstance(exponent, int) and -exponent <= digits
            return value if short else value.quantize(decimal.Decimal(1).scaleb(-digits), context=DECIMALS)
        return round(value, digits)

    return kernel


_FLOATS_UP = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation])
"""Wide enough for any float64 with 30 digits behind its point."""
_DECIMALS_UP = decimal.Context(prec=DECIMALS.prec, rounding=decimal.ROUND_HALF_UP, traps=[decimal.InvalidOperation])


def _rounding_up(constants: Sequence[Any]) -> Callable[[Any], Any]:
    """As ``_rounding``, but ties go away from zero; a float64 is taken by its shortest text, so that 2.675 is a tie."""
    to_even, digits = _rounding(constants), constants[0] if constants else 0
    place = decimal.Decimal(1).scaleb(-digits)

    def kernel(value: Any) -> Any:
        if type(value) is float and math.isfinite(value):
            return float(decimal.Decimal(repr(value)).quantize(place, context=_FLOATS_UP))
        if isinstance(value, decimal.Decimal) and value.is_finite() and -value.as_tuple().exponent > digits:  # type: ignore[operator]  # a finite one's is a number
            return value.quantize(place, context=_DECIMALS_UP)
        return to_even(value)

    return kernel


def _fitting(constants: Sequence[Any]) -> Callable[[Any], Any]:
    """The value, if it has at most this many digits before its point."""
    fits = _fitting_or_null(constants)

    def kernel(value: Any) -> Any:
        if fits(value) is None:
            raise Fault(f"{value} has more than {constants[0]} digits before its point; cast it to a wider decimal")
        return value

    return kernel


def _fitting_or_null(constants: Sequence[Any]) -> Callable[[Any], Any]:
    digits = constants[0]

    def kernel(value: decimal.Decimal) -> decimal.Decimal | None:
        return value if not value or value.adjusted() < digits else None

    return kernel


def _square_root(value: Any) -> float:
    if value < 0:
        raise Fault(f"the square root of {value}, which is negative; guard it with when()")
    return math.sqrt(value)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise _zero()
    q = abs(a) // abs(b)
    return within(q if (a < 0) == (b < 0) else -q)


def _int_remainder(a: int, b: int) -> int:
    if b == 0:
        raise _zero()
    r = abs(a) % abs(b)
    return -r if a < 0 else r


def _float_remainder(a: float, b: float) -> float:
    if b == 0:
        raise _zero()
    # the remainder of an infinite dividend is NaN, which fmod refuses
    return math.nan if math.isinf(a) else math.fmod(a, b)


_decimal_remainder = _decimals(DECIMALS.remainder)


def _remainder(a: Any, b: Any) -> Any:
    kinds = {type(a), type(b)}
    if kinds == {int}:
        return _int_remainder(a, b)
    if kinds <= {int, float}:
        return _float_remainder(a, b)
    if kinds <= {int, decimal.Decimal}:
        return _decimal_remainder(a, b)
    raise Fault(f"{a!r} and {b!r} are numbers of different types; cast one of them")


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*values: Any) -> Any:
        kinds = {type(v) for v in values}
        if kinds == {int, float}:
            values = tuple(map(float, values))
        elif len(kinds) > 1 and kinds != {int, decimal.Decimal}:
            raise Fault(f"values of different types cannot be compared: {', '.join(map(repr, values)):.200}")
        for v in values:
            if v != v:
                return v
        best = pick(values)
        return decimal.Decimal(best) if type(best) is int and decimal.Decimal in kinds else best

    return kernel


def _plain(kernel: Callable[..., Any]) -> Callable[[Sequence[Any]], Callable[..., Any]]:
    return lambda constants: kernel


FUNCTIONS: dict[str, FunctionSignature] = {
    "abs": FunctionSignature(("number",), same, make=_plain(_absolute)),
    "floor": FunctionSignature(("number",), same, make=_plain(_whole(math.floor, decimal.ROUND_FLOOR))),
    "ceil": FunctionSignature(("number",), same, make=_plain(_whole(math.ceil, decimal.ROUND_CEILING))),
    "round": FunctionSignature(("number", "int64"), same, optional=1, constants=1, make=_rounding),
    "round_half_up": FunctionSignature(("number", "int64"), same, optional=1, constants=1, make=_rounding_up),
    "fitting": FunctionSignature(("number", "int64"), same, constants=1, make=_fitting),
    "fitting_or_null": FunctionSignature(
        ("number", "int64"), same, constants=1, make=_fitting_or_null, may_be_null=True
    ),
    "sqrt": FunctionSignature(("number",), FLOAT64, make=_plain(_square_root)),
    "quotient": FunctionSignature(("int64", "int64"), INT64, make=_plain(_quotient)),
    "remainder": FunctionSignature(("number", "number"), common_of_all, make=_plain(_remainder)),
    "least": FunctionSignature(("ordered",), common_of_all, variadic=True, make=_plain(_extreme(min))),
    "greatest": FunctionSignature(("ordered",), common_of_all, variadic=True, make=_plain(_extreme(max))),
    "is_nan": FunctionSignature(("float64",), BOOL, make=_plain(math.isnan)),
}
