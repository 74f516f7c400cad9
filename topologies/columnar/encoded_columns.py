"""Columns that still hold the log's bytes, not decoded or with only some fields decoded.

Both kinds can always return their values as the serde would decode them, so a caller that needs rows gets rows. Values
that no caller needs are never built: a record that a filter drops, a key that is only passed on. Parts of a column
share its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.state.serdes.serde import BYTES, INT, INT32, STRING, Serde
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Codes,
    Column,
    Ints,
    Mask,
    Places,
    StructColumn,
    joined,
)

SAME_BYTES = (BYTES, STRING, INT, INT32)
"""Serdes whose serialized bytes equal the bytes that the value was read from."""


class _Bytes:
    """A bytes column, or a selection of one. A selection gets its own bytes on first use."""

    __slots__ = ("_places", "_whole")

    def __init__(self, whole: BytesColumn, places: Places | None = None) -> None:
        self._whole = whole
        self._places = places

    def __len__(self) -> int:
        return len(self._whole) if self._places is None else len(self._places)

    def own(self) -> BytesColumn:
        """The bytes."""
        if self._places is not None:
            self._whole, self._places = self._whole.take(self._places), None
        return self._whole

    def nulls(self) -> Mask | None:
        """The mask of nulls; ``None``: none is null."""
        nulls = self._whole.nulls
        return nulls if nulls is None or self._places is None else nulls[self._places]

    def take(self, places: Places) -> _Bytes:
        """The selection at these indices."""
        return _Bytes(self._whole, places if self._places is None else self._places[places])

    def slice(self, start: int, stop: int) -> _Bytes:
        """A slice."""
        if self._places is None:
            return _Bytes(self._whole.slice(start, stop))
        return _Bytes(self._whole, self._places[start:stop])

    @classmethod
    def within(cls, data: bytes | bytearray | memoryview, ends: Ints, nulls: Mask | None) -> _Bytes:
        """Values that lie within larger ones. ``ends``: where each begins and ends, two numbers a row, which never fall."""
        rows = len(ends) // 2
        if not rows:
            return cls(BytesColumn(b"", np.zeros(1, np.int64)))
        between: Mask | None = None
        if nulls is not None:
            between = np.zeros(2 * rows - 1, np.bool_)
            between[::2] = nulls
        # what lies between two values is not taken
        return cls(BytesColumn(data, ends, between), np.arange(0, 2 * rows, 2, dtype=np.intp))


class _Distinct:
    """Distinct byte strings and, on first use, their values, made once for all parts of a column. ``column``: the byte
    strings as a column without nulls, if there is one."""

    __slots__ = ("_data", "_read", "_values", "column")

    def __init__(self, data: list[bytes | None] | BytesColumn, serde: Serde[Any]) -> None:
        self.column = data if isinstance(data, BytesColumn) else None
        self._data = None if isinstance(data, BytesColumn) else data
        self._read = serde.deserialize
        self._values: list[Any] | None = None

    @property
    def data(self) -> list[bytes | None]:
        """They."""
        if self._data is None:
            assert self.column is not None
            self._data = self.column.to_list()
        return self._data

    def known(self, values: list[Any]) -> None:
        """Set the decoded values."""
        self._values = values

    def values(self) -> list[Any]:
        """The value of each."""
        if self._values is None:
            read = self._read
            self._values = [None if one is None else read(one) for one in self.data]
        return self._values


class EncodedColumn(CodedColumn):
    """Values of ``serde``, which is known to be able to read all of them. Decoded on first use of ``values``, once per
    distinct value; ``coder`` finds the distinct ones. ``raw``: their bytes."""

    __slots__ = ("_bytes", "_coded", "_coder", "serde")

    def __init__(
        self,
        raw: BytesColumn | _Bytes,
        serde: Serde[Any],
        coder: Coder,
        coded: tuple[Codes, _Distinct] | None = None,
    ) -> None:
        self._bytes = _Bytes(raw) if isinstance(raw, BytesColumn) else raw
        self._coder = coder
        self._coded = coded
        self.serde = serde

    @classmethod
    def known(
        cls,
        raw: BytesColumn,
        serde: Serde[Any],
        coder: Coder,
        codes: Codes,
        data: list[bytes | None],
        values: list[Any],
    ) -> EncodedColumn:
        """A column whose distinct values are already decoded."""
        distinct = _Distinct(data, serde)
        distinct.known(values)
        return cls(raw, serde, coder, (codes, distinct))

    @classmethod
    def of_codes(cls, codes: Codes, distinct: BytesColumn, serde: Serde[Any], coder: Coder) -> EncodedColumn:
        """Distinct values by codes; none is null."""
        return cls(_Bytes(distinct, codes.astype(np.intp)), serde, coder, (codes, _Distinct(distinct, serde)))

    @classmethod
    def within(
        cls,
        data: bytes | bytearray | memoryview,
        ends: Ints,
        serde: Serde[Any],
        coder: Coder,
        nulls: Mask | None,
    ) -> EncodedColumn:
        """Values that lie within larger ones. ``ends``: where each begins and ends, two numbers each, which never fall."""
        return cls(_Bytes.within(data, ends, nulls), serde, coder)

    @property
    def raw(self) -> BytesColumn:
        """The bytes of the values."""
        return self._bytes.own()

    @property
    def is_coded(self) -> bool:
        """Whether the distinct values were already looked for."""
        return self._coded is not None

    @property
    def by_codes(self) -> tuple[Codes, BytesColumn] | None:
        """Codes and the bytes of distinct values, not all of which need be used; ``None`` if they are not a column."""
        if self._coded is None or self._coded[1].column is None:
            return None
        return self._coded[0], self._coded[1].column

    @property
    def nulls(self) -> Mask | None:
        """The mask of null values; ``None``: none is null."""
        return self._bytes.nulls()

    @property
    def codes(self) -> Codes:  # type: ignore[override]  # made at the first time
        """As for any coded column."""
        return self._distinct()[0]

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """As for any coded column."""
        return self._distinct()[1].values()

    @property
    def encoded(self) -> CodedColumn:
        """The codes over the values' bytes."""
        codes, distinct = self._distinct()
        return CodedColumn(codes, distinct.data)

    def _distinct(self) -> tuple[Codes, _Distinct]:
        if self._coded is None:
            found = self._coder.code(self.raw)
            self._coded = found.codes, _Distinct(found.values, self.serde)
        return self._coded

    def __len__(self) -> int:
        return len(self._bytes)

    def to_list(self) -> list[Any]:
        if self._coded is not None:
            return super().to_list()
        return decoded(self.raw, self.serde)

    def take(self, places: Places) -> EncodedColumn:
        coded = None if self._coded is None else (self._coded[0][places], self._coded[1])
        return type(self)(self._bytes.take(places), self.serde, self._coder, coded)

    def slice(self, start: int, stop: int) -> EncodedColumn:
        coded = None if self._coded is None else (self._coded[0][start:stop], self._coded[1])
        return type(self)(self._bytes.slice(start, stop), self.serde, self._coder, coded)

    def followed_by(self, others: Sequence[Column]) -> EncodedColumn | None:
        parts = [self, *(c for c in others if isinstance(c, EncodedColumn) and type(c) is type(self))]
        if len(parts) <= len(others) or any(c.serde != self.serde for c in parts):
            return None
        known = [c._coded for c in parts if c._coded is not None]
        coded: tuple[Codes, _Distinct] | None = None
        if len(known) == len(parts) and all(distinct is known[0][1] for _, distinct in known):
            coded = np.concatenate([codes for codes, _ in known]), known[0][1]
        return type(self)(_joined_bytes(parts), self.serde, self._coder, coded)


class WrittenColumn(EncodedColumn):
    """A column whose bytes are those that ``serde`` writes for its values."""

    __slots__ = ()


class AddressedColumn(WrittenColumn):
    """Such a column whose values go to known partitions of a topic, as ``route`` finds from each; ``addressed`` puts the
    partition into a value."""

    __slots__ = ("addressed", "partitions", "route")

    def __init__(
        self,
        raw: BytesColumn | _Bytes,
        serde: Serde[Any],
        coder: Coder,
        partitions: Ints,
        route: Callable[[Any, Any, int], int],
        addressed: Callable[[Any, int], Any],
    ) -> None:
        super().__init__(raw, serde, coder)
        self.partitions = partitions
        self.route = route
        self.addressed = addressed

    def to_list(self) -> list[Any]:
        return list(map(self.addressed, super().to_list(), self.partitions.tolist()))

    def _part(self, raw: _Bytes, partitions: Ints) -> AddressedColumn:
        return AddressedColumn(raw, self.serde, self._coder, partitions, self.route, self.addressed)

    def take(self, places: Places) -> AddressedColumn:
        return self._part(self._bytes.take(places), self.partitions[places])

    def slice(self, start: int, stop: int) -> AddressedColumn:
        return self._part(self._bytes.slice(start, stop), self.partitions[start:stop])

    def followed_by(self, others: Sequence[Column]) -> AddressedColumn | None:
        parts = [self, *(c for c in others if isinstance(c, AddressedColumn))]
        if len(parts) <= len(others) or any((c.serde, c.route) != (self.serde, self.route) for c in parts):
            return None
        return self._part(_Bytes(_joined_bytes(parts)), np.concatenate([c.partitions for c in parts]))


class CollectionColumn(EncodedColumn):
    """A column of aggregates, or of values that may hold many others each, so that columns pay for any number of rows."""

    __slots__ = ()


class ParsedColumn(StructColumn):
    """Records of ``serde``, which is known to be able to read all of them; only ``fields`` have been read. ``to_list``
    decodes the records' bytes by the serde."""

    __slots__ = ("_bytes", "serde")

    def __init__(
        self, raw: BytesColumn | _Bytes, serde: Serde[Any], fields: Mapping[str, Column], nulls: Mask | None
    ) -> None:
        # a separate function each, so that two columns are never taken for parts of one
        super().__init__(fields, partial(_no_record), nulls)
        self._bytes = _Bytes(raw) if isinstance(raw, BytesColumn) else raw
        self.serde = serde

    @classmethod
    def within(
        cls,
        data: bytes | bytearray | memoryview,
        ends: Ints,
        serde: Serde[Any],
        fields: Mapping[str, Column],
        nulls: Mask | None,
    ) -> ParsedColumn:
        """Records that lie within larger ones. ``ends``: where each begins and ends, two numbers a record, which never
        fall."""
        return cls(_Bytes.within(data, ends, nulls), serde, fields, nulls)

    @property
    def raw(self) -> BytesColumn:
        """The bytes of the records."""
        return self._bytes.own()

    def __len__(self) -> int:
        return len(self._bytes)

    def to_list(self) -> list[Any]:
        return decoded(self.raw, self.serde)

    def take(self, places: Places) -> ParsedColumn:
        fields = {name: c.take(places) for name, c in self.fields.items()}
        nulls = None if self.nulls is None else self.nulls[places]
        if nulls is not None and not nulls.any():
            nulls = None
        return ParsedColumn(self._bytes.take(places), self.serde, fields, nulls)

    def slice(self, start: int, stop: int) -> ParsedColumn:
        fields = {name: c.slice(start, stop) for name, c in self.fields.items()}
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return ParsedColumn(self._bytes.slice(start, stop), self.serde, fields, nulls)

    def followed_by(self, others: Sequence[Column]) -> ParsedColumn | None:
        parts = [self, *(c for c in others if isinstance(c, ParsedColumn))]
        if len(parts) <= len(others) or any((c.serde, [*c.fields]) != (self.serde, [*self.fields]) for c in parts):
            return None
        fields: dict[str, Column] = {}
        for name in self.fields:
            whole = joined([c.fields[name] for c in parts])
            if whole is None:
                return None
            fields[name] = whole
        raw = _joined_bytes(parts)
        return ParsedColumn(raw, self.serde, fields, raw.nulls)


def _joined_bytes(columns: Sequence[EncodedColumn | ParsedColumn]) -> BytesColumn:
    """The bytes of columns, one after the other."""
    whole = joined([c.raw for c in columns])
    assert isinstance(whole, BytesColumn)
    return whole


def _no_record(*values: Any) -> Any:
    raise AssertionError("records are read from their bytes, not built from some of their fields")


def decoded(raw: BytesColumn, serde: Serde[Any]) -> list[Any]:
    """The values; keeps nulls. Raises what the serde raises."""
    data = raw.to_list()
    if serde is BYTES:
        return data
    read = serde.deserialize
    if raw.nulls is not None:
        return [None if one is None else read(one) for one in data]
    return list(map(read, data))  # type: ignore[arg-type]  # no nulls here
