"""Aggregates of numbers: count, sum, mean, variance, minimum and maximum, moving average.

``number`` declares what the column holds. ``int`` and ``Decimal`` are exact in any order, so partials merge exactly;
a value of another type is an error of its record. ``float`` takes ints and floats and folds in record order. ``None``
takes any number as it comes, and promises nothing about merges.

NaN and the infinities are counted separately from the finite numbers, so that their records can be removed again.
With NaN or both infinities among the values, the sum and the mean are NaN; with one infinity they are that infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any, TypeAlias, cast

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import FLOAT, INT, Serde, SerdeLike, serde_of
from penstock.state.type_parameters import T, V
from penstock.topologies.aggregators.base import AggregateInput, Aggregator, Step, getter, named
from penstock.topologies.aggregators.encoding import DECIMAL, FLAT, INT_JSON, RESULT_JSON, maybe, scalar

NumberType: TypeAlias = "type[int] | type[float] | type[Decimal] | None"

_EXACT = Context(prec=2_000, traps=[Inexact, InvalidOperation, Overflow])
"""Sums of decimals are exact or an error. 2,000 digits are enough for any sum of doubles in decimal notation."""
_DIVIDING = Context(prec=28, traps=[DivisionByZero, InvalidOperation, Overflow])


def count(of: AggregateInput[V] = None) -> Aggregator[int, V]:
    """The number of records; for a column, of those in which it is not null."""
    name = named("count", of)
    pick = None if of is None else getter(of, name)

    def add(acc: int, value: Any, timestamp_ms: int) -> int:
        return acc + 1 if pick is None or pick(value) is not None else acc

    def inverse(acc: int, value: Any, timestamp_ms: int) -> int:
        return acc - 1 if pick is None or pick(value) is not None else acc

    return Aggregator(
        name=name,
        init=int,
        add=add,
        result=int,
        serde=INT,
        result_serde=INT,
        merge=_plus,
        inverse=inverse,
        subtract=_minus,
        exact_merge=True,
    )


def sum_(of: AggregateInput[V] = None, *, number: type[T] | None = None) -> Aggregator[T, V]:
    """The sum; null if there are no values."""

    def result(acc: _Total) -> Any:
        return _whole(acc) if acc[0] or len(acc) > 2 else None

    kinds: dict[Any, Serde[Any]] = {float: FLOAT, Decimal: DECIMAL, int: INT_JSON}
    return _total("sum", of, cast("NumberType", number), result, kinds.get(number, RESULT_JSON))


def mean(of: AggregateInput[V] = None, *, number: NumberType = None) -> Aggregator[Any, V]:
    """The mean; null if there are no values. The mean of ints is a float, that of decimals a decimal of 28 digits."""

    def result(acc: _Total) -> Any:
        if len(acc) == 2 and not acc[0]:
            return None
        count, total = acc[0] + sum(acc[2:]), _whole(acc)
        return _DIVIDING.divide(total, Decimal(count)) if type(total) is Decimal else total / count

    return _total("mean", of, number, result, DECIMAL if number is Decimal else FLOAT)


def _total(
    kind: str, of: AggregateInput, number: NumberType, result: Callable[[_Total], Any], result_serde: Serde[Any]
) -> Aggregator:
    name = named(kind, of)
    pick, checked = getter(of, name), _checker(name, number)
    zero: Any = 0 if number is None else number(0)

    def init() -> _Total:
        return 0, zero

    def add(acc: _Total, x: Any, timestamp_ms: int) -> _Total:
        x = checked(x)
        plain = len(acc) == 2 and (type(x) is int or _finite(x))
        return (acc[0] + 1, _plus(acc[1], x)) if plain else merge(acc, one(x))

    def one(x: Any) -> _Total:
        return (1, x) if _finite(x) else (0, zero, int(x != x), int(x == _INFINITE), int(x == -_INFINITE))

    def inverse(acc: _Total, value: Any, timestamp_ms: int) -> _Total:
        x = pick(value)
        return acc if x is None else taken(acc, one(checked(x)))

    def taken(acc: _Total, other: _Total) -> _Total:
        # a rounding error does not outlive the last value
        left = acc[0] - other[0]
        specials = [a - b for a, b in zip(_specials(acc), _specials(other), strict=True)]
        finite = (left, _minus(acc[1], other[1]) if other[0] else acc[1]) if left else init()
        return (*finite, *specials) if any(specials) else finite

    def merge(a: _Total, b: _Total) -> _Total:
        count, total = a[0] + b[0], _plus(a[1], b[1]) if b[0] else a[1]
        if len(a) == len(b) == 2:
            return count, total
        return (count, total, *(x + y for x, y in zip(_specials(a), _specials(b), strict=True)))

    step = Step(add)
    return Aggregator(
        name=name,
        init=init,
        add=step.of(pick),
        step=step,
        result=result,
        serde=FLAT,
        result_serde=result_serde,
        merge=merge,
        inverse=inverse,
        subtract=taken,
        exact_merge=number in (int, Decimal),
    )


_NUMBERS = frozenset({int, float, Decimal})
_Total: TypeAlias = "tuple[Any, ...]"
"""The number of finite numbers and their sum; then, only if there are any, the numbers of NaN, ∞ and -∞."""
_INFINITE = math.inf


def _finite(x: Any) -> bool:
    if isinstance(x, Decimal):
        return x.is_finite()
    return not isinstance(x, float) or math.isfinite(x)


def _specials(acc: _Total) -> tuple[int, ...]:
    return acc[2:] or (0, 0, 0)


def _whole(acc: _Total) -> Any:
    """The sum of the finite numbers and the others."""
    if len(acc) == 2:
        return acc[1]
    nans, highs, lows = acc[2:]
    total = math.nan if nans or (highs and lows) else _INFINITE if highs else -_INFINITE
    return Decimal(total) if type(acc[1]) is Decimal else total


def _plus(a: Any, b: Any) -> Any:
    return _EXACT.add(a, b) if type(a) is Decimal or type(b) is Decimal else a + b


def _minus(a: Any, b: Any) -> Any:
    return _EXACT.subtract(a, b) if type(a) is Decimal or type(b) is Decimal else a - b


def _checker(name: str, number: NumberType) -> Callable[[Any], Any]:
    """A function that converts a value to the declared type, or raises ``TypeError``."""
    takes: dict[Any, tuple[type, ...]] = {
        None: (int, float, Decimal),
        int: (int,),
        float: (int, float),
        Decimal: (int, Decimal),
    }
    if number not in takes:
        raise TopologyError(f"aggregate {name!r}: number={number!r:.60}; use int, float, Decimal or nothing")
    types, convert = takes[number], cast("Callable[[Any], Any] | None", number)

    def checked(x: Any) -> Any:
        if not isinstance(x, types) or isinstance(x, bool):
            shown = "a number" if number is None else number.__name__
            raise TypeError(f"aggregate {name!r} takes {shown}, not {type(x).__name__} {x!r:.60}")
        # a store would return the plain number, so it is one from the beginning
        made = x if convert is None or type(x) is number else convert(x)
        return made if type(made) in _NUMBERS else next(t for t in types if isinstance(made, t))(made)

    return checked


def variance(
    of: AggregateInput[V] = None, *, population: bool = False, number: NumberType = None
) -> Aggregator[float, V]:
    """The sample variance (null for one value), or that of the whole ``population``; a float.

    Ints and decimals are summed exactly. From the first float on, Welford's method is used.
    """
    return _moments("variance", of, population, number, _itself)


def std_dev(
    of: AggregateInput[V] = None, *, population: bool = False, number: NumberType = None
) -> Aggregator[float, V]:
    """The standard deviation: the root of the ``variance``."""
    return _moments("std-dev", of, population, number, math.sqrt)


def _itself(x: Any) -> Any:
    return x


# Moments are (count, sum, sum of squares, True) while exact, else (count, mean, sum of squared distances, False);
# then, only if there are any, the numbers of NaN and infinities, which the other numbers do not include.
_Moments: TypeAlias = "tuple[Any, ...]"


def _moments(
    kind: str, of: AggregateInput, population: bool, number: NumberType, final: Callable[[float], float]
) -> Aggregator:
    name = named(f"{kind}-population" if population else kind, of)
    pick, checked = getter(of, name), _checker(name, number)
    none: _Moments = (0, 0.0, 0.0, False) if number is float else (0, 0, 0, True)

    def one(x: Any) -> _Moments:
        if not _finite(x):
            return (*none, 1)
        return (1, x, 0.0, False) if type(x) is float else (1, x, _EXACT.multiply(x, x) if _dec(x) else x * x, True)

    def init() -> _Moments:
        return none

    def add(acc: _Moments, x: Any, timestamp_ms: int) -> _Moments:
        return merge(acc, one(checked(x)))

    def inverse(acc: _Moments, value: Any, timestamp_ms: int) -> _Moments:
        x = pick(value)
        return acc if x is None else subtract(acc, one(checked(x)))

    def merge(a: _Moments, b: _Moments) -> _Moments:
        if len(a) == len(b) == 4:
            return _merged(a, b)
        return (*_merged(a[:4], b[:4]), sum(a[4:]) + sum(b[4:]))

    def subtract(a: _Moments, b: _Moments) -> _Moments:
        finite = none if a[0] == b[0] else _parted(a[:4], b[:4]) if b[0] else a[:4]
        specials = sum(a[4:]) - sum(b[4:])
        return (*finite, specials) if specials else finite

    def result(acc: _Moments) -> float | None:
        n, _, squares, _ = acc[:4] if not acc[3] else _as_floats(acc[:4])
        if len(acc) > 4:
            n, squares = n + acc[4], math.nan
        over = n if population else n - 1
        if squares != squares:
            return math.nan if over > 0 else None
        return final(max(squares, 0.0) / over) if over > 0 else None

    step = Step(add)
    return Aggregator(
        name=name,
        init=init,
        add=step.of(pick),
        step=step,
        result=result,
        serde=FLAT,
        result_serde=FLOAT,
        merge=merge,
        inverse=inverse,
        subtract=subtract,
        exact_merge=number in (int, Decimal),
    )


def _dec(x: Any) -> bool:
    return type(x) is Decimal


def _as_floats(acc: _Moments) -> _Moments:
    n, total, squares, exact = acc
    if not exact:
        return acc
    if not n:
        return 0, 0.0, 0.0, False
    total = Fraction(total)
    return n, float(total / n), float(Fraction(squares) - total * total / n), False


def _merged(a: _Moments, b: _Moments) -> _Moments:
    if a[3] and b[3]:
        return a[0] + b[0], _plus(a[1], b[1]), _plus(a[2], b[2]), True
    (na, ma, sa, _), (nb, mb, sb, _) = _as_floats(a), _as_floats(b)
    n = na + nb
    if not na or not nb:
        return (nb, mb, sb, False) if nb else (na, ma, sa, False)
    delta = mb - ma
    return n, ma + delta * nb / n, sa + sb + delta * delta * na * nb / n, False


def _parted(a: _Moments, b: _Moments) -> _Moments:
    if a[3] and b[3]:
        return a[0] - b[0], _minus(a[1], b[1]), _minus(a[2], b[2]), True
    (na, ma, sa, _), (nb, mb, sb, _) = _as_floats(a), _as_floats(b)
    n = na - nb
    mean = ma + (ma - mb) * nb / n
    delta = mb - mean
    return n, mean, max(sa - sb - delta * delta * n * nb / na, 0.0), False


def min_(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[T, V]:
    """The smallest value; -0.0 is below 0.0. Null if there are no values. ``value``: the serde of the column, if it
    is not a plain scalar."""
    return _extreme("min", of, value, lambda new, old: _above(old, new))


def max_(of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None) -> Aggregator[T, V]:
    """The greatest value; NaN is above all numbers. Null if there are no values. ``value``: as for ``min_``."""
    return _extreme("max", of, value, lambda new, old: _above(new, old))


def _above(a: Any, b: Any) -> bool:
    if a != a or b != b:  # NaN
        return bool(a != a and b == b)
    if a == b and (type(a) is not type(b) or type(a) is Decimal or not a):  # 1 and 1.0, 1.0 and 1.00, zeros with a sign
        return _apart(a) > _apart(b)
    return bool(a > b)


def _apart(x: Any) -> tuple[bool, str, str]:
    """The order of equal numbers, so that the minimum does not depend on the order of records: -0.0 is below all
    zeros."""
    if not isinstance(x, (int, float, Decimal)):
        return False, "", ""  # the class decides what else is equal
    return not str(x).startswith("-"), type(x).__name__, str(x)


def _extreme(kind: str, of: AggregateInput, value: Any, better: Callable[[Any, Any], bool]) -> Aggregator:
    """Accumulators ``()`` or ``(value,)``."""
    name = named(kind, of)
    pick = getter(of, name)
    kept: Callable[[Any], Any] = scalar if value is None else _itself

    def add(acc: tuple[Any, ...], x: Any, timestamp_ms: int) -> tuple[Any, ...]:
        return acc if acc and not better(x, acc[0]) else (kept(x),)

    def merge(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return b if not a or (b and better(b[0], a[0])) else a

    step = Step(add)
    return Aggregator(
        name=name,
        init=tuple,
        add=step.of(pick),
        step=step,
        result=_only,
        serde=FLAT if value is None else maybe(serde_of(value)),
        result_serde=RESULT_JSON if value is None else serde_of(value),
        merge=merge,
        exact_merge=True,
    )


def _only(acc: tuple[Any, ...]) -> Any:
    return acc[0] if acc else None


def ewma(alpha: float, of: AggregateInput[V] = None) -> Aggregator[float, V]:
    """The exponentially weighted moving average: ``alpha·x + (1 − alpha)·last``; the first value is the first
    average. ``0 < alpha <= 1``."""
    name = named("ewma", of)
    if not 0 < alpha <= 1:
        raise TopologyError(f"aggregate {name!r}: alpha={alpha!r}; it must be above 0 and at most 1")
    pick, checked = getter(of, name), _checker(name, float)

    def add(acc: tuple[float, ...], value: Any, timestamp_ms: int) -> tuple[float, ...]:
        x = pick(value)
        if x is None:
            return acc
        x = checked(x)
        return (alpha * x + (1 - alpha) * acc[0],) if acc else (x,)

    return Aggregator(
        name=name,
        init=tuple,
        add=add,
        result=_only,
        serde=FLAT,
        result_serde=FLOAT,
        ordered=True,
    )
