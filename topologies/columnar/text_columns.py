"""Records as the JSON that a serde writes, whose fields are read, and which are decoded, only where that is needed.

A *pool* has the texts of distinct records; columns point into it. So what is read of a record is read once for all columns
of the pool, however often the record stands in them, and a field that is not read costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.encoded_columns import EncodedColumn, ParsedColumn
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    NumberColumn,
    Places,
    StructColumn,
    joined,
)

_MOST = 2
"""If fewer than one in this number of a pool's records are needed, only those are decoded."""


class FieldReaders:
    """Reads fields of the records of ``serde``, which reads JSON of the decoder's type."""

    def __init__(self, serde: Serde[Any], decoder: msgspec.json.Decoder[Any]) -> None:
        self.serde = serde
        self.names = tuple(f.name for f in _fields(decoder.type))
        self._type = decoder.type
        self._projections: dict[tuple[str, ...], JsonProjection | None] = {}

    def of(self, names: tuple[str, ...]) -> JsonProjection | None:
        """The projection to these fields; ``None``: they cannot be read apart."""
        if names not in self._projections:
            why = why_not_projected(self._type, names)
            made = None if why is not None else JsonProjection(self._type, names, self.serde.deserialize)
            self._projections[names] = made
        return self._projections[names]


def _fields(tp: Any) -> Iterable[Any]:
    return getattr(msgspec.inspect.type_info(tp), "fields", ())


class TextPool:
    """Texts as the serde of ``readers`` writes them, none of which is null."""

    def __init__(self, texts: BytesColumn, readers: FieldReaders, objects: list[Any] | None = None) -> None:
        self.texts = texts
        self.readers = readers
        self._columns: dict[str, Column | None] = {}
        self._with_nulls: dict[str, Column | None] = {}
        """The columns with a null behind them."""
        self._null_behind: BytesColumn | None = None
        self._objects = objects

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, names: Iterable[str]) -> bool:
        """Read these fields at once. ``False``: they cannot be."""
        missing = tuple(sorted(set(names) - self._columns.keys()))
        if missing:
            projection = self.readers.of(missing)
            found = None if projection is None else projection.read(self.texts)
            columns: Mapping[str, Column] = {} if found is None or found.failed else found.columns
            self._columns.update((name, columns.get(name)) for name in missing)
        return all(self._columns[name] is not None for name in names)

    def field(self, name: str) -> Column | None:
        """One field of all records; ``None``: it cannot be read."""
        self.read((name,))
        return self._columns[name]

    def taken(self, name: str, codes: Places) -> Column | None:
        """One field of the records at these indices, null for -1; ``None``: it cannot be read."""
        whole = self.field(name)
        if whole is None or (codes >= 0).all():
            return None if whole is None else whole.take(codes)
        if name not in self._with_nulls:
            self._with_nulls[name] = null_behind(whole)
        longer = self._with_nulls[name]
        return None if longer is None else longer.take(np.where(codes < 0, len(self), codes))

    def written(self, codes: Places) -> BytesColumn:
        """The texts at these indices, null for -1."""
        if (codes >= 0).all():
            return self.texts.take(codes)
        if self._null_behind is None:
            self._null_behind = null_behind_texts(self.texts)
        return self._null_behind.take(np.where(codes < 0, len(self), codes))

    def values(self, codes: Places) -> list[Any]:
        """The records at these indices, ``None`` for -1. Where an object can be changed, each gets its own."""
        if (codes < 0).any():
            there = iter(self.values(codes[codes >= 0]))
            return [next(there) if code >= 0 else None for code in codes.tolist()]
        read = self.readers.serde.deserialize
        if not self.readers.serde.immutable:
            return list(map(read, self.texts.take(codes).to_list()))  # type: ignore[arg-type]  # none is null
        if self._objects is None and len(used := np.unique(codes)) * _MOST < len(self):
            texts = self.texts.take(used).to_list()
            made = dict(zip(used.tolist(), map(read, texts), strict=True))  # type: ignore[arg-type]  # none is null
            return list(map(made.__getitem__, codes.tolist()))
        if self._objects is None:
            self._objects = list(map(read, self.texts.to_list()))  # type: ignore[arg-type]  # none is null
        return list(map(self._objects.__getitem__, codes.tolist()))


class _Fields(Mapping[str, Column]):
    """The fields of a column, each taken from the pool at its first use."""

    def __init__(self, pool: TextPool, codes: Places) -> None:
        self._pool = pool
        self._codes = codes
        self._taken: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._taken:
            taken = self._pool.taken(name, self._codes) if name in self._pool.readers.names else None
            if taken is None:
                raise KeyError(name)
            self._taken[name] = taken
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool.readers.names)

    def __len__(self) -> int:
        return len(self._pool.readers.names)


class TextColumn(StructColumn):
    """Records of a pool: ``codes`` are their indices in it, -1 for null."""

    __slots__ = ("codes", "pool")

    def __init__(self, pool: TextPool, codes: Places) -> None:
        # a separate function each, so that two columns are never taken for parts of one
        nulls = codes < 0
        super().__init__(_Fields(pool, codes), partial(_no_record), nulls if nulls.any() else None)
        self.pool = pool
        self.codes = codes

    @property
    def raw(self) -> BytesColumn:
        """The records as their serde writes them."""
        return self.pool.written(self.codes)

    def __len__(self) -> int:
        return len(self.codes)

    def to_list(self) -> list[Any]:
        return self.pool.values(self.codes)

    def take(self, places: Places) -> TextColumn:
        return TextColumn(self.pool, self.codes[places])

    def slice(self, start: int, stop: int) -> TextColumn:
        return TextColumn(self.pool, self.codes[start:stop])

    def followed_by(self, others: Sequence[Column]) -> TextColumn | None:
        parts = [self, *(c for c in others if isinstance(c, TextColumn))]
        if len(parts) <= len(others) or any(c.pool.readers.serde != self.pool.readers.serde for c in parts):
            return None
        pools = list({id(c.pool): c.pool for c in parts}.values())
        texts = joined([pool.texts for pool in pools])
        assert isinstance(texts, BytesColumn)
        starts = dict(zip(map(id, pools), np.cumsum([0, *map(len, pools)]).tolist(), strict=False))
        codes = [np.where(c.codes < 0, -1, c.codes + starts[id(c.pool)]) for c in parts]
        pool = pools[0] if len(pools) == 1 else TextPool(texts, self.pool.readers)
        return TextColumn(pool, np.concatenate(codes))


def null_behind_texts(column: BytesColumn) -> BytesColumn:
    """The column with one null more."""
    longer = joined([column, BytesColumn(b"", np.zeros(2, np.int64), np.ones(1, np.bool_))])
    assert isinstance(longer, BytesColumn)
    return longer


def null_behind(column: Column) -> Column | None:
    """The column of a field with one null more; ``None``: of a kind that is not known."""
    if isinstance(column, NumberColumn):
        return joined([column, NumberColumn(np.zeros(1, column.array.dtype), np.ones(1, np.bool_))])
    if isinstance(column, EncodedColumn):
        return EncodedColumn(null_behind_texts(column.raw), column.serde, Coder())
    if isinstance(column, CodedColumn):
        return joined([column, CodedColumn(np.zeros(1, np.int32), [None])])
    if isinstance(column, ParsedColumn):
        fields = {name: null_behind(field) for name, field in column.fields.items()}
        there = {name: field for name, field in fields.items() if field is not None}
        nulls = np.zeros(len(column) + 1, np.bool_)
        nulls[: len(column)] = False if column.nulls is None else column.nulls
        nulls[-1] = True
        raw = null_behind_texts(column.raw)
        return ParsedColumn(raw, column.serde, there, nulls) if len(there) == len(fields) else None
    return None


def _no_record(*values: Any) -> Any:
    raise AssertionError("records are read from their texts, not built from some of their fields")
