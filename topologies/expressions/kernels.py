"""Kernels of expressions over arrays: the twins of the row interpreter's kernels (``numbers``, ``special``), for all
rows.

Values come with ``nulls`` and ``errors``: the rows on which the row interpreter would raise. An operator fails where an
operand fails, and where it fails itself on operands that are not null. Logic and branches fail only where the row would
have evaluated the failing part. An array's content at null or failing rows is meaningless.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.topologies.expressions.numbers import INT64_MAX, INT64_MIN
from penstock.topologies.operator_api.columns import BytesColumn, Mask

CodeArray: TypeAlias = NDArray[Any]
Array: TypeAlias = NDArray[Any]
_TYPES: dict[type, Any] = {int: np.int64, float: np.float64, bool: np.bool_}
_SPARSE = 4
"""If there are this many times more possible combinations than rows, sort to find them, else use a table of all."""


class Unsure(Exception):
    """Raised if the row path must do it."""


class NoKernel(Exception):
    """Raised if no kernel supports values of these types."""


@dataclasses.dataclass(frozen=True, slots=True)
class Vec:
    """Numbers or booleans, one per row, or one for all rows. ``null``: all are null, without a type."""

    array: Array
    nulls: Mask | None = None
    errors: Mask | None = None
    null: bool = False

    def vec(self) -> Vec:
        """The operand itself."""
        return self

    def condition(self) -> Vec:
        """The operand, as booleans."""
        if self.array.dtype != np.bool_:
            raise NoKernel
        return self

    def null_test(self) -> Vec:
        """The mask of nulls."""
        return Vec(np.zeros((), np.bool_) if self.nulls is None else self.nulls, None, self.errors)

    def present(self) -> Vec:
        """The operand, failing where it is null."""
        return Vec(self.array, None, either(self.errors, self.nulls))

    def failing_too(self, *conditions: Vec) -> Vec:
        """The operand, failing also where a condition is not true, or fails."""
        return dataclasses.replace(self, errors=either(self.errors, *map(_untrue, conditions)))

    def failed(self, present: Mask | None) -> bool:
        """Whether any existing row fails."""
        return _any(self.errors, present)


@dataclasses.dataclass(frozen=True, slots=True)
class Distinct:
    """Values of any kind by their codes. ``shared``: they are known to be of types that rows may share."""

    codes: CodeArray
    values: list[Any]
    errors: Mask | None = None
    shared: bool = False

    def vec(self) -> Vec:
        """As an array. Raises ``NoKernel`` unless all are numbers of one type, or booleans."""
        kinds = {type(v) for v in self.values} - {type(None)}
        if not kinds:
            return Vec(np.zeros((), np.bool_), np.ones((), np.bool_), self.errors, null=True)
        dtype = _TYPES.get(next(iter(kinds)))
        if len(kinds) > 1 or dtype is None:
            raise NoKernel
        if dtype is np.int64 and not all(v is None or INT64_MIN <= v <= INT64_MAX for v in self.values):
            raise NoKernel
        if len(self.values) == 1:
            return Vec(np.array(self.values[0], dtype), None, self.errors)
        nulls = gathered([v is None for v in self.values], self.codes) if None in self.values else None
        return Vec(np.array([0 if v is None else v for v in self.values], dtype)[self.codes], nulls, self.errors)

    def condition(self) -> Vec:
        """As booleans."""
        return self.vec().condition()

    def null_test(self) -> Vec:
        """The mask of nulls."""
        return Vec(gathered([v is None for v in self.values], self.codes), None, self.errors)

    def present(self) -> Distinct:
        """The operand, failing where it is null."""
        if None not in self.values:
            return self
        nulls = gathered([v is None for v in self.values], self.codes)
        return dataclasses.replace(self, errors=either(self.errors, nulls))

    def failing_too(self, *conditions: Vec) -> Distinct:
        """The operand, failing also where a condition is not true, or fails."""
        return dataclasses.replace(self, errors=either(self.errors, *map(_untrue, conditions)))

    def failed(self, present: Mask | None) -> bool:
        """Whether any existing row fails."""
        return _any(self.errors, present)


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts as their bytes, which are UTF-8, with the nulls of the column."""

    raw: BytesColumn
    errors: Mask | None = None

    def vec(self) -> Vec:
        """Raises ``NoKernel``: texts are not numbers."""
        raise NoKernel

    def condition(self) -> Vec:
        """Raises ``NoKernel``."""
        raise NoKernel

    def null_test(self) -> Vec:
        """The mask of nulls."""
        return Vec(np.zeros((), np.bool_) if self.raw.nulls is None else self.raw.nulls, None, self.errors)

    def present(self) -> EncodedTexts:
        """The operand, failing where it is null."""
        return dataclasses.replace(self, errors=either(self.errors, self.raw.nulls))

    def failing_too(self, *conditions: Vec) -> EncodedTexts:
        """The operand, failing also where a condition is not true, or fails."""
        return dataclasses.replace(self, errors=either(self.errors, *map(_untrue, conditions)))

    def failed(self, present: Mask | None) -> bool:
        """Whether any existing row fails."""
        return _any(self.errors, present)


Operand: TypeAlias = Vec | Distinct | EncodedTexts


def _any(errors: Mask | None, present: Mask | None) -> bool:
    if errors is None:
        return False
    return bool((errors if present is None else errors & present).any())


def _untrue(condition: Vec) -> Mask:
    untrue = ~true_of(condition)
    return untrue if condition.errors is None else untrue | condition.errors


def gathered(flags: Sequence[bool], codes: CodeArray) -> Mask:
    """The flag of each row, by its code."""
    return np.array(flags, np.bool_)[codes]


# -- distinct values -----------------------------------------------------------------------------------------------------


class Coded(NamedTuple):
    """A column by its distinct values."""

    codes: CodeArray
    values: list[Any]


def coded_numbers(array: Array, nulls: Mask | None) -> Coded:
    """Numbers compared by their bits, so that zeros of both signs differ."""
    bits = array.view(np.int64) if array.dtype == np.float64 else array
    found, codes = np.unique(bits, return_inverse=True)
    values: list[Any] = (found.view(np.float64) if array.dtype == np.float64 else found).tolist()
    if nulls is not None and nulls.any():
        codes = np.where(nulls, len(values), codes)
        values.append(None)
    return Coded(codes, values)


def combined(parts: list[Coded], rows: int) -> tuple[CodeArray, list[tuple[Any, ...]]]:
    """The distinct combinations of values, and the combination of each row."""
    if not parts:
        return np.zeros(rows, np.int32), [()]
    if len(parts) == 1 and len(parts[0].values) <= rows // _SPARSE + 16:
        return parts[0].codes, [(v,) for v in parts[0].values]
    bound = 1
    for part in parts:
        bound *= len(part.values)
        if bound >= 1 << 62:
            raise Unsure
    whole = np.zeros(rows, np.int64)
    for part in parts:
        whole = whole * len(part.values) + part.codes
    if bound <= _SPARSE * rows + 1024:
        there = np.zeros(bound, np.bool_)
        there[whole] = True
        found = np.flatnonzero(there)
        ranks = np.empty(bound, np.int32)
        ranks[found] = np.arange(len(found), dtype=np.int32)
        codes: CodeArray = ranks[whole]
    else:
        found, codes = np.unique(whole, return_inverse=True)
        codes = codes.astype(np.int32)
    columns: list[list[Any]] = []
    rest = found
    for part in reversed(parts):
        rest, place = np.divmod(rest, len(part.values))
        columns.insert(0, [part.values[i] for i in place.tolist()])
    return codes, list(zip(*columns, strict=True))


# -- reading -----------------------------------------------------------------------------------------------------------

_READS: dict[str, tuple[Any, ...]] = {
    "int64": (np.int64,),
    "timestamp": (np.int64,),
    "float64": (np.float64, np.int64),
    "bool": (np.bool_,),
    "unknown": (np.int64, np.float64, np.bool_),
}


def read(array: Array, kind: str) -> Array:
    """Check a column against its declared kind. Raises ``NoKernel`` if it has another."""
    if array.dtype not in _READS.get(kind, ()):
        raise NoKernel
    return array.astype(np.float64) if kind == "float64" and array.dtype == np.int64 else array


# -- nulls and errors ----------------------------------------------------------------------------------------------------


def either(*masks: Mask | None) -> Mask | None:
    """Where any of them is set."""
    out: Mask | None = None
    for mask in masks:
        if mask is not None:
            out = mask if out is None else out | mask
    return out


def _without(mask: Mask | None, nulls: Mask | None) -> Mask | None:
    return mask if mask is None or nulls is None else mask & ~nulls


def _strict(array: Array, operands: Sequence[Vec], own: Mask | None = None) -> Vec:
    """A result that is null where an operand is, and fails where an operand fails or ``own`` is set."""
    nulls = either(*(o.nulls for o in operands))
    return Vec(array, nulls, either(*(o.errors for o in operands), _without(own, nulls)))


def _null_of(operands: Sequence[Vec]) -> Vec | None:
    """Null if the operand is null in every row."""
    if not any(o.null for o in operands):
        return None
    errors = either(*(o.errors for o in operands))
    return Vec(np.zeros((), np.bool_), np.ones((), np.bool_), errors, null=True)


def strictly(operands: Sequence[Vec], result: Vec) -> Vec:
    """The result, failing also where an operand fails."""
    return Vec(result.array, result.nulls, either(result.errors, *(o.errors for o in operands)), result.null)


# -- logic ---------------------------------------------------------------------------------------------------------------


def true_of(v: Vec) -> Mask:
    """The rows on which a condition is true; those that fail mean nothing."""
    return v.array if v.nulls is None else v.array & ~v.nulls


def _false(v: Vec) -> Mask:
    return ~v.array if v.nulls is None else ~v.array & ~v.nulls


def conjunction(a: Vec, b: Vec) -> Vec:
    """``&``: false if either is, else null if either is. The right side matters where the left one is not false."""
    errors = either(a.errors, None if b.errors is None else b.errors & ~_false(a))
    true, false = true_of(a) & true_of(b), _false(a) | _false(b)
    nulls = None if a.nulls is None and b.nulls is None else ~(true | false)
    return Vec(true, nulls, errors)


def disjunction(a: Vec, b: Vec) -> Vec:
    """``|``: true if either is, else null if either is. The right side matters where the left one is not true."""
    errors = either(a.errors, None if b.errors is None else b.errors & ~true_of(a))
    true, false = true_of(a) | true_of(b), _false(a) & _false(b)
    nulls = None if a.nulls is None and b.nulls is None else ~(true | false)
    return Vec(true, nulls, errors)


def inverse(a: Vec) -> Vec:
    """``~``."""
    return Vec(~a.array, a.nulls, a.errors)


# -- comparisons and arithmetic ------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_NUMBERS = (np.int64, np.float64)


def compared(op: str, a: Vec, b: Vec) -> Vec:
    """A comparison; of an int64 with a float64 as float64."""
    null = _null_of((a, b))
    if null is not None:
        return null
    x, y = a.array, b.array
    if x.dtype != y.dtype:
        x, y = _floats(x, y)
    return _strict(np.asarray(_COMPARE[op](x, y)), (a, b))


def _floats(x: Array, y: Array) -> tuple[Array, Array]:
    if x.dtype not in _NUMBERS or y.dtype not in _NUMBERS:
        raise NoKernel
    return x.astype(np.float64), y.astype(np.float64)


def arithmetic(op: str, a: Vec, b: Vec) -> Vec:
    """``+ - * / // %`` of numbers."""
    null = _null_of((a, b))
    if null is not None:
        return null
    x, y = a.array, b.array
    if x.dtype not in _NUMBERS or y.dtype not in _NUMBERS:
        raise NoKernel
    if op == "/" or x.dtype == np.float64 or y.dtype == np.float64:
        array, own = _of_floats(op, *_floats(x, y))
    else:
        array, own = _of_integers(op, x, y)
    return _strict(array, (a, b), own)


def _of_floats(op: str, x: Array, y: Array) -> tuple[Array, Mask | None]:
    with np.errstate(all="ignore"):
        if op == "/":
            return np.asarray(x / y), np.asarray(y == 0)
        if op in ("+", "-", "*"):
            return np.asarray({"+": np.add, "-": np.subtract, "*": np.multiply}[op](x, y)), None
    raise NoKernel


def _of_integers(op: str, x: Array, y: Array) -> tuple[Array, Mask | None]:
    with np.errstate(all="ignore"):
        if op == "+":
            r = np.asarray(x + y)
            return r, np.asarray(((x ^ r) & (y ^ r)) < 0)
        if op == "-":
            r = np.asarray(x - y)
            return r, np.asarray(((x ^ y) & (x ^ r)) < 0)
        if op == "*":
            return _product(x, y)
        lowest = (x == INT64_MIN) & (y == -1)
        divisor = np.where((y == 0) | lowest, 1, y)
        if op == "//":
            return np.asarray(x // divisor), np.asarray((y == 0) | lowest)
        return np.asarray(np.where(lowest, 0, x % divisor)), np.asarray(y == 0)


def _product(x: Array, y: Array) -> tuple[Array, Mask | None]:
    r = np.asarray(x * y)
    if _largest(x) * _largest(y) <= INT64_MAX:
        return r, None
    lowest = ((x == INT64_MIN) & (y == -1)) | ((y == INT64_MIN) & (x == -1))
    divisor = np.where((x == 0) | lowest, 1, x)
    return r, np.asarray(lowest | ((x != 0) & ~lowest & (r // divisor != y)))


def _largest(x: Array) -> int:
    return max(-int(x.min()), int(x.max())) if x.size else 0


def negative(a: Vec) -> Vec:
    """``-`` of a number."""
    return _of_number(a, np.negative)


def absolute(a: Vec) -> Vec:
    """``abs`` of a number."""
    return _of_number(a, np.abs)


def _of_number(a: Vec, do: Callable[[Array], Array]) -> Vec:
    if a.null:
        return a
    if a.array.dtype not in _NUMBERS:
        raise NoKernel
    with np.errstate(all="ignore"):
        own = np.asarray(a.array == INT64_MIN) if a.array.dtype == np.int64 else None
        return _strict(np.asarray(do(a.array)), (a,), own)


def cast(a: Vec, kind: str) -> Vec:
    """A cast that cannot fail."""
    if a.null:
        return a
    dtype = a.array.dtype
    if kind == "float64" and dtype in _NUMBERS:
        return dataclasses.replace(a, array=a.array.astype(np.float64))
    if (dtype == np.int64 and kind in ("int64", "timestamp")) or (dtype == np.bool_ and kind == "bool"):
        return a
    raise NoKernel


# -- branches ------------------------------------------------------------------------------------------------------------


def widened(a: Vec, kind: str) -> Vec:
    """The value as the common type of several."""
    if a.null or a.array.dtype != np.int64 or kind == "int64":
        return a
    if kind == "decimal":
        raise NoKernel
    return cast(a, kind) if kind == "float64" else a


def _one_type(vecs: Sequence[Vec]) -> Any:
    """The array type of the branches that have values. Raises ``NoKernel`` for several types."""
    types = {v.array.dtype for v in vecs if not v.null}
    if len(types) > 1:
        raise NoKernel
    return next(iter(types), np.dtype(np.bool_))


def coalesced(vecs: Sequence[Vec]) -> Vec:
    """The first that is not null."""
    return chosen([(inverse(v.null_test()), v) for v in vecs[:-1]], vecs[-1])


def chosen(branches: Sequence[tuple[Vec, Vec]], default: Vec) -> Vec:
    """For each row the value of the first branch whose condition is true."""
    dtype = _one_type([v for _, v in branches] + [default])
    array: Array = np.zeros((), dtype)
    nulls: Mask = np.zeros((), np.bool_)
    errors: Mask = np.zeros((), np.bool_)
    left: Mask = np.ones((), np.bool_)
    for holds, then in (*branches, (None, default)):
        taken = left if holds is None else left & true_of(holds)
        if holds is not None and holds.errors is not None:
            errors = errors | (left & holds.errors)
            taken = taken & ~holds.errors
        array = np.where(taken, then.array.astype(dtype), array)
        if then.nulls is not None:
            nulls = nulls | (taken & then.nulls)
        if then.errors is not None:
            errors = errors | (taken & then.errors)
        left = left & ~taken
    return Vec(np.asarray(array), nulls, errors, null=all(v.null for _, v in branches) and default.null)
