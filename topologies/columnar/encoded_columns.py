"""Columns that still have the log's bytes: of values that have not been decoded, or of which only some fields have been.

Both can always give their values as the serde would have, so that whoever asks for rows gets the rows. What nobody asks for
is never made: a record that a filter drops, a key that is only passed on. Parts of a column share its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from penstock.state.serdes.serde import BYTES, INT, INT32, STRING, Serde
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Codes, Column, Mask, Places, StructColumn

SAME_BYTES = (BYTES, STRING, INT, INT32)
"""Serdes that write what they have read as the bytes that it was read from."""


class _Bytes:
    """Bytes, or those at some places of them. A part becomes bytes of its own when somebody asks."""

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
        """Which of them are null; no array: none is."""
        nulls = self._whole.nulls
        return nulls if nulls is None or self._places is None else nulls[self._places]

    def take(self, places: Places) -> _Bytes:
        """Those at places."""
        return _Bytes(self._whole, places if self._places is None else self._places[places])

    def slice(self, start: int, stop: int) -> _Bytes:
        """A run of them."""
        if self._places is None:
            return _Bytes(self._whole.slice(start, stop))
        return _Bytes(self._whole, self._places[start:stop])


class _Distinct:
    """Distinct byte strings and, when somebody asks, their values: made once for all parts of a column. ``column``: they
    are there as a column, without nulls."""

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
        """They have been decoded: to these."""
        self._values = values

    def values(self) -> list[Any]:
        """The value of each."""
        if self._values is None:
            read = self._read
            self._values = [None if one is None else read(one) for one in self.data]
        return self._values


class EncodedColumn(CodedColumn):
    """Values of ``serde``, which is known to read all of them. They are decoded, each distinct one once, when ``values``
    are asked for; ``coder`` finds those. ``raw``: their bytes."""

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
        """One whose distinct values have been decoded already."""
        distinct = _Distinct(data, serde)
        distinct.known(values)
        return cls(raw, serde, coder, (codes, distinct))

    @classmethod
    def of_codes(cls, codes: Codes, distinct: BytesColumn, serde: Serde[Any], coder: Coder) -> EncodedColumn:
        """Distinct values, of which none is null, by codes."""
        return cls(_Bytes(distinct, codes.astype(np.intp)), serde, coder, (codes, _Distinct(distinct, serde)))

    @property
    def raw(self) -> BytesColumn:
        """The bytes of the values."""
        return self._bytes.own()

    @property
    def by_codes(self) -> tuple[Codes, BytesColumn] | None:
        """Codes and distinct values' bytes, not all of which need be used; ``None`` where they are not there as a column."""
        if self._coded is None or self._coded[1].column is None:
            return None
        return self._coded[0], self._coded[1].column

    @property
    def nulls(self) -> Mask | None:
        """Which values are null; no array: none is."""
        return self._bytes.nulls()

    @property
    def codes(self) -> Codes:  # type: ignore[override]  # made at the first time
        """As of any coded column."""
        return self._distinct()[0]

    @property
    def values(self) -> list[Any]:  # type: ignore[override]  # made at the first time
        """As of any coded column."""
        return self._distinct()[1].values()

    @property
    def encoded(self) -> CodedColumn:
        """The same codes of the values' bytes."""
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


class WrittenColumn(EncodedColumn):
    """One whose bytes are those that ``serde`` writes of its values."""

    __slots__ = ()


class ParsedColumn(StructColumn):
    """Records of ``serde``, which is known to read all of them, of which only ``fields`` have been read. Their list is what
    the serde makes of their bytes."""

    __slots__ = ("_bytes", "serde")

    def __init__(
        self, raw: BytesColumn | _Bytes, serde: Serde[Any], fields: Mapping[str, Column], nulls: Mask | None
    ) -> None:
        # a function of its own, so that no two of them are taken for parts of one column
        super().__init__(fields, partial(_no_record), nulls)
        self._bytes = _Bytes(raw) if isinstance(raw, BytesColumn) else raw
        self.serde = serde

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
        return ParsedColumn(self._bytes.take(places), self.serde, fields, nulls)

    def slice(self, start: int, stop: int) -> ParsedColumn:
        fields = {name: c.slice(start, stop) for name, c in self.fields.items()}
        nulls = None if self.nulls is None else self.nulls[start:stop]
        return ParsedColumn(self._bytes.slice(start, stop), self.serde, fields, nulls)


def _no_record(*values: Any) -> Any:
    raise AssertionError("records are read from their bytes, not built of some of their fields")


def decoded(raw: BytesColumn, serde: Serde[Any]) -> list[Any]:
    """The values, nulls kept. Raises what the serde raises."""
    data = raw.to_list()
    if serde is BYTES:
        return data
    read = serde.deserialize
    if raw.nulls is not None:
        return [None if one is None else read(one) for one in data]
    return list(map(read, data))  # type: ignore[arg-type]  # no nulls here
