"""Columns, which a batch holds instead of lists if a reader or an operator made them.

A column is an immutable sequence of values, most of which never become Python objects. There are four kinds:

* ``BytesColumn``: byte strings in one buffer, as read from the log.
* ``CodedColumn``: dictionary-encoded: small integers that point into the distinct values, which are Python objects.
  What depends on one column only (a predicate, a table lookup, a serde) is computed once per distinct value, by the
  same function that the row path calls, and spread by the codes: so it cannot differ from the row path.
* ``NumberColumn``: integers (64 bits, signed), floats or booleans as an array.
* ``StructColumn``: records as one column per field, with only the fields that some operator needs.

``to_list()`` returns what the row path would hold: equal values of equal types. Indices and masks are numpy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.state.native import compiled

Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]
Places: TypeAlias = NDArray[np.intp]
Mask: TypeAlias = NDArray[np.bool_]


class Column:
    """A sequence of values. Subclasses own their arrays and never change them."""

    __slots__ = ()

    def __len__(self) -> int:
        raise AssertionError(f"{type(self).__name__} has no length")

    def to_list(self) -> list[Any]:
        """The values as Python objects."""
        raise AssertionError(f"{type(self).__name__} cannot be listed")

    def take(self, places: Places) -> Column:
        """The values at these indices, which may repeat."""
        raise AssertionError(f"{type(self).__name__} cannot be taken from")

    def slice(self, start: int, stop: int) -> Column:
        """The values ``start <= i < stop``."""
        raise AssertionError(f"{type(self).__name__} cannot be sliced")

    def followed_by(self, others: Sequence[Column]) -> Column | None:
        """Its values and then those of others, as a column of its kind. ``None``: they are of another kind, or it has
        no way of its own."""
        return None


class ReadAhead(Protocol):
    """Gives what a reader read of a column's values before it was asked."""

    def by(self, projector: Any) -> tuple[bytes | None, list[tuple[Any, ...]]] | None:
        """Return what ``projector.project`` would. ``None``: it was not read; the reader reads the next columns of the
        same partition so, if it can. The projector is used for nothing else."""


class BytesColumn(Column):
    """``value[i] = data[offsets[i]:offsets[i + 1]]``; ``nulls[i]``: it is ``None`` (no array: none is). ``offsets`` has
    one entry more than there are values and need not begin at 0. ``ahead``: of a column as a reader made it."""

    __slots__ = ("ahead", "data", "nulls", "offsets")

    def __init__(
        self,
        data: bytes | bytearray | memoryview,
        offsets: Ints,
        nulls: Mask | None = None,
        ahead: ReadAhead | None = None,
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.nulls = nulls
        self.ahead = ahead

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> BytesColumn:
        """A column of these values."""
        if (native := compiled()) is not None and type(values) is list:
            return cls.of_raw(*native.pack_rows(values))
        lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int64, len(values))
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        nulls = np.fromiter((v is None for v in values), np.bool_, len(values)) if None in values else None
        return cls(b"".join(v for v in values if v is not None), offsets, nulls)

    @classmethod
    def of_raw(cls, data: bytes, offsets: bytes, nulls: bytes | None) -> BytesColumn:
        """A column in the format of the compiled part."""
        flags = None if nulls is None else np.frombuffer(nulls, np.bool_)
        return cls(data, np.frombuffer(offsets, np.int64), flags)

    def raw(self) -> tuple[bytes | bytearray | memoryview, Ints, NDArray[np.uint8] | None]:
        """Data, offsets and nulls, in the format of the compiled part."""
        nulls = None if self.nulls is None else np.ascontiguousarray(self.nulls).view(np.uint8)
        return self.data, np.ascontiguousarray(self.offsets), nulls

    def to_list(self) -> list[bytes | None]:
        if (native := compiled()) is not None:
            listed: list[bytes | None] = native.list_rows(*self.raw())
            return listed
        ends = self.offsets.tolist()
        low = ends[0]
        data = bytes(memoryview(self.data)[low : ends[-1]])
        out: list[bytes | None] = [data[a - low : b - low] for a, b in pairwise(ends)]
        if self.nulls is not None:
            for i in np.flatnonzero(self.nulls).tolist():
                out[i] = None
        return out

    def take(self, places: Places) -> BytesColumn:
        if (native := compiled()) is not None and places.dtype == np.intp:
            return self.of_raw(*native.take_rows(*self.raw(), np.ascontiguousarray(places)))
        starts = self.offsets[:-1][places]
        lengths = self.offsets[1:][places] - starts
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # index of each output byte in the input: the start of its value plus the offset within the value
        at = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        data = np.frombuffer(self.data, np.uint8)[at].tobytes()
        return BytesColumn(data, offsets, None if self.nulls is None else self.nulls[places])

    def slice(self, start: int, stop: int) -> BytesColumn:
        if start == 0 and stop == len(self):
            return self
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return BytesColumn(self.data, self.offsets[start : stop + 1], nulls)


class CodedColumn(Column):
    """``value[i] = values[codes[i]]``. ``values`` may hold ``None``; they need not all be used."""

    __slots__ = ("codes", "values")

    def __init__(self, codes: Codes, values: list[Any]) -> None:
        self.codes = codes
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def of(cls, values: Sequence[Any]) -> CodedColumn:
        """A column of these values, ``None``, strings, bytes or numbers, coded in the order of their first appearance.
        Values that compare equal but differ (1, True, 1.0; 0.0, -0.0; decimals of other digits) are kept apart."""
        seen: dict[tuple[type, Any, Any], int] = {}
        if Decimal in set(map(type, values)):
            codes = [seen.setdefault((type(v), v, _digits(v)), len(seen)) for v in values]
        else:
            codes = [seen.setdefault((type(v), v, not v and _is_minus_zero(v)), len(seen)) for v in values]
        return cls(np.array(codes, np.int32), [v for _, v, _ in seen])

    def to_list(self) -> list[Any]:
        return list(map(self.values.__getitem__, self.codes.tolist()))

    def take(self, places: Places) -> CodedColumn:
        return CodedColumn(self.codes[places], self.values)

    def slice(self, start: int, stop: int) -> CodedColumn:
        return CodedColumn(self.codes[start:stop], self.values)

    def map(self, fn: Callable[[Any], Any]) -> CodedColumn:
        """Map ``fn`` over the values, once per distinct value, used or not. Raises what ``fn`` raises."""
        return CodedColumn(self.codes, list(map(fn, self.values)))

    def compact(self) -> CodedColumn:
        """The column with only the used values, in the order of their first appearance."""
        used, first, codes = np.unique(self.codes, return_index=True, return_inverse=True)
        by_appearance = np.argsort(first, kind="stable")
        rank = np.empty(len(used), np.int32)
        rank[by_appearance] = np.arange(len(used), dtype=np.int32)
        return CodedColumn(rank[codes], [self.values[c] for c in used[by_appearance].tolist()])


class NumberColumn(Column):
    """An array of int64, float64 or bool; ``nulls[i]``: it is ``None``, whatever the array holds there."""

    __slots__ = ("array", "nulls")

    def __init__(self, array: NDArray[Any], nulls: Mask | None = None) -> None:
        self.array = array
        self.nulls = nulls

    def __len__(self) -> int:
        return len(self.array)

    def to_list(self) -> list[Any]:
        out: list[Any] = self.array.tolist()
        if self.nulls is not None:
            for i in np.flatnonzero(self.nulls).tolist():
                out[i] = None
        return out

    def take(self, places: Places) -> NumberColumn:
        return NumberColumn(self.array[places], None if self.nulls is None else self.nulls[places])

    def slice(self, start: int, stop: int) -> NumberColumn:
        return NumberColumn(self.array[start:stop], None if self.nulls is None else self.nulls[start:stop])


class StructColumn(Column):
    """Records by field. ``build(*values)`` makes one record from its fields' values, in the order of ``fields``.
    ``nulls``: the record itself is ``None``; its fields then hold ``None``."""

    __slots__ = ("build", "fields", "nulls")

    def __init__(self, fields: Mapping[str, Column], build: Callable[..., Any], nulls: Mask | None = None) -> None:
        self.fields = fields
        self.build = build
        self.nulls = nulls

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def to_list(self) -> list[Any]:
        out = list(map(self.build, *(c.to_list() for c in self.fields.values())))
        if self.nulls is not None:
            for i in np.flatnonzero(self.nulls).tolist():
                out[i] = None
        return out

    def take(self, places: Places) -> StructColumn:
        fields = {name: c.take(places) for name, c in self.fields.items()}
        return StructColumn(fields, self.build, None if self.nulls is None else self.nulls[places])

    def slice(self, start: int, stop: int) -> StructColumn:
        fields = {name: c.slice(start, stop) for name, c in self.fields.items()}
        return StructColumn(fields, self.build, None if self.nulls is None else self.nulls[start:stop])


def joined(columns: Sequence[Column]) -> Column | None:
    """Concatenate the columns; ``None`` if their kinds differ or cannot be concatenated."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if (whole := first.followed_by(columns[1:])) is not None:
        return whole
    if all(isinstance(c, NumberColumn) for c in columns):
        return _joined_numbers([c for c in columns if isinstance(c, NumberColumn)])
    if all(isinstance(c, BytesColumn) for c in columns):
        return _joined_bytes([c for c in columns if isinstance(c, BytesColumn)])
    if all(isinstance(c, CodedColumn) for c in columns):
        return _joined_coded([c for c in columns if isinstance(c, CodedColumn)])
    if isinstance(first, StructColumn):
        return _joined_structs(first, columns)
    return None


def _joined_nulls(columns: Sequence[BytesColumn | NumberColumn | StructColumn]) -> Mask | None:
    if all(c.nulls is None for c in columns):
        return None
    return np.concatenate([np.zeros(len(c), np.bool_) if c.nulls is None else c.nulls for c in columns])


def _joined_numbers(columns: list[NumberColumn]) -> Column | None:
    if len({c.array.dtype for c in columns}) > 1:
        return None
    return NumberColumn(np.concatenate([c.array for c in columns]), _joined_nulls(columns))


def _is_minus_zero(value: Any) -> bool:
    return type(value) is float and value == 0 and math.copysign(1.0, value) < 0


def _digits(value: Any) -> Any:
    return value.as_tuple() if type(value) is Decimal else _is_minus_zero(value)


def _joined_bytes(columns: list[BytesColumn]) -> Column:
    parts: list[memoryview] = []
    ends: list[Ints] = [np.zeros(1, np.int64)]
    at = 0
    for c in columns:
        low, high = int(c.offsets[0]), int(c.offsets[-1])
        parts.append(memoryview(c.data)[low:high])
        ends.append(c.offsets[1:] + (at - low))
        at += high - low
    return BytesColumn(b"".join(parts), np.concatenate(ends), _joined_nulls(columns))


def _joined_coded(columns: list[CodedColumn]) -> Column:
    if all(c.values is columns[0].values for c in columns):
        return CodedColumn(np.concatenate([c.codes for c in columns]), columns[0].values)
    values: list[Any] = []
    codes: list[Codes] = []
    for c in columns:
        codes.append(c.codes + np.int32(len(values)))
        values += c.values
    return CodedColumn(np.concatenate(codes), values)


def _joined_structs(first: StructColumn, columns: Sequence[Column]) -> Column | None:
    structs = [c for c in columns if isinstance(c, StructColumn)]
    if len(structs) < len(columns) or any(c.build is not first.build for c in structs):
        return None
    if any(list(c.fields) != list(first.fields) for c in structs):
        return None
    fields: dict[str, Column] = {}
    for name in first.fields:
        whole = joined([c.fields[name] for c in structs])
        if whole is None:
            return None
        fields[name] = whole
    return StructColumn(fields, first.build, _joined_nulls(structs))
