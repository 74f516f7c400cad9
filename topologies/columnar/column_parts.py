"""Helpers of columnar operators: nulls, distinct values and groups of a column, and columns as bytes.

A function that returns ``None`` has done and reported nothing: the caller must take the row path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import BYTES, FLOAT, INT, PRESENCE, Serde
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.topologies.columnar.encoded_columns import (
    SAME_BYTES,
    CollectionColumn,
    EncodedColumn,
    ParsedColumn,
    WrittenColumn,
)
from penstock.topologies.columnar.kernels import Coder, Groups, grouped
from penstock.topologies.columnar.text_columns import TextColumn
from penstock.topologies.columnar.windowed_keys import is_windowed, written_windows
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    Mask,
    NumberColumn,
    Places,
    StructColumn,
)

FEWEST = 64
"""For smaller batches the row path is faster than setting up arrays."""


def enough(rows: int) -> bool:
    """Whether this number of rows is worth columns."""
    return rows >= FEWEST


def worth_columns(batch: Batch) -> TypeGuard[ColumnBatch]:
    """Whether to try the columns of a batch."""
    if not isinstance(batch, ColumnBatch):
        return False
    return len(batch) >= FEWEST or (isinstance(batch.value_column, CollectionColumn) and len(batch) > 0)


def worth_columns_together(batches: Sequence[Batch]) -> bool:
    """Whether to try the columns of several batches at once."""
    columns = any(isinstance(batch, ColumnBatch) for batch in batches)
    return columns and sum(map(len, batches)) >= FEWEST


def by_columns_or_rows(
    columns: Callable[[int, ColumnBatch], Batch | None], rows: Callable[[int, Batch], None], port: int, batch: Batch
) -> None:
    """Hand a batch to ``columns`` where that is worth it, and to ``rows`` what it leaves (``None``: nothing). The engine
    does so with the batches of every operator, an operator that cuts batches with its pieces."""
    left = columns(port, batch) if worth_columns(batch) else batch
    if left is not None:
        rows(port, left)


def nulls_of(column: Column) -> Mask | None:
    """The mask of null values; ``None`` if none is null."""
    nulls: Mask | None = None
    if isinstance(column, EncodedColumn):
        nulls = column.nulls
    elif isinstance(column, CodedColumn):
        if None in column.values:
            nulls = np.fromiter((v is None for v in column.values), np.bool_, len(column.values))[column.codes]
    elif isinstance(column, (BytesColumn, NumberColumn, StructColumn)):
        nulls = column.nulls
    else:
        values = column.to_list()
        nulls = np.fromiter((v is None for v in values), np.bool_, len(values))
    return nulls if nulls is not None and nulls.any() else None


def coded(column: Column) -> CodedColumn | None:
    """The column as codes of distinct values, not all of which need be used."""
    if isinstance(column, CodedColumn):
        return column
    if isinstance(column, BytesColumn):
        return Coder(0).code(column)
    if isinstance(column, NumberColumn) and column.array.dtype == np.int64:
        values = column.to_list()
        index = {value: code for code, value in enumerate(dict.fromkeys(values))}
        return CodedColumn(np.fromiter(map(index.__getitem__, values), np.int32, len(values)), list(index))
    return None  # whether NaNs, or zeros of both signs, are equal depends on the serde


def has_bytes_of(column: Column | None, serde: Serde[Any]) -> TypeGuard[EncodedColumn]:
    """Whether a column's bytes are those that this serde writes of its values."""
    if not isinstance(column, EncodedColumn) or column.serde != serde:
        return False
    return serde in SAME_BYTES or isinstance(column, WrittenColumn)


def with_nulls(column: Column, nulls: Mask) -> Column | None:
    """The column with additional nulls at these rows. ``None``: it is of a kind that takes none."""
    if not nulls.any():
        return column
    if isinstance(column, CodedColumn):
        return CodedColumn(np.where(nulls, np.int32(len(column.values)), column.codes), [*column.values, None])
    if isinstance(column, NumberColumn):
        return NumberColumn(column.array, nulls if column.nulls is None else column.nulls | nulls)
    if isinstance(column, BytesColumn):
        return BytesColumn(column.data, column.offsets, nulls if column.nulls is None else column.nulls | nulls)
    if not isinstance(column, StructColumn) or type(column) not in (StructColumn, ParsedColumn):
        return None
    fields: dict[str, Column] = {}
    for name, field in column.fields.items():
        made = with_nulls(field, nulls)
        if made is None:
            return None
        fields[name] = made
    every = nulls if column.nulls is None else column.nulls | nulls
    if isinstance(column, ParsedColumn):
        raw = with_nulls(column.raw, nulls)
        assert isinstance(raw, BytesColumn)
        return ParsedColumn(raw, column.serde, fields, every)
    return StructColumn(fields, column.build, every)


def present(batch: Batch, values: Column) -> tuple[Places | None, Batch]:
    """Where ``values`` are not null (``None``: everywhere), and the batch with these of them as its values."""
    nulls = nulls_of(values)
    whole = batch.replace(values=values)
    if nulls is None:
        return None, whole
    places = np.flatnonzero(~nulls)
    return places, whole.pick(places)


def spread_over(column: Column, places: Places | None, rows: int) -> Column | None:
    """The values at these places (``None``: everywhere) of ``rows`` rows; null elsewhere. ``None``: row by row."""
    if places is None:
        return column
    if not len(places):
        return CodedColumn(np.zeros(rows, np.int32), [None])
    at = np.zeros(rows, np.intp)
    at[places] = np.arange(len(places))
    nulls = np.ones(rows, np.bool_)
    nulls[places] = False
    return with_nulls(column.take(at), nulls)


class Keyed:
    """Rows by the bytes of their key. ``groups`` has one group per distinct key, ``store_keys`` the groups' key bytes;
    ``keys``, made on first use, the keys themselves."""

    __slots__ = ("_distinct", "groups", "store_keys")

    def __init__(self, groups: Groups, store_keys: list[bytes], distinct: CodedColumn) -> None:
        self.groups = groups
        self.store_keys = store_keys
        self._distinct = distinct

    @property
    def keys(self) -> list[Any]:
        """The key of each group."""
        values = self._distinct.values
        return [values[c] for c in self.groups.codes.tolist()]


def keyed(column: Column, serde: Serde[Any]) -> Keyed | None:
    """Group the rows of a key column without nulls. ``None`` also if different keys have equal bytes."""
    if has_bytes_of(column, serde):
        return _keyed_by_bytes(column)
    distinct = coded(column)
    if distinct is None:
        return None
    groups = grouped(distinct.codes, len(distinct.values))
    keys = list(map(distinct.values.__getitem__, groups.codes.tolist()))
    store_keys = written(keys, serde)
    if store_keys is None:
        return None
    if len(set(store_keys)) == len(store_keys):
        return Keyed(groups, store_keys, distinct)  # type: ignore[arg-type]  # no nulls here
    numbers: dict[bytes | None, int] = {}
    same = [numbers.setdefault(k, len(numbers)) for k in store_keys]
    kept = _new(same)
    firsts = [keys[kept[number]] for number in same]
    if any(type(a) is not type(b) or a != b for a, b in zip(keys, firsts, strict=True)):
        return None
    places = np.array(kept, np.intp)
    one = Groups(np.array(same, np.intp)[groups.numbers], groups.codes[places], groups.firsts[places])
    return Keyed(one, [store_keys[i] for i in kept], distinct)  # type: ignore[misc]  # no nulls here


def keyed_lists(keys: list[Any], serde: Serde[Any]) -> Keyed | None:
    """``keyed`` of keys in a list, none of which is null."""
    store_keys = written(keys, serde)
    if store_keys is None:
        return None
    numbers: dict[bytes | None, int] = {}
    of_rows = [numbers.setdefault(k, len(numbers)) for k in store_keys]
    firsts = _new(of_rows)
    if len(firsts) < len(keys):
        for key, number in zip(keys, of_rows, strict=True):
            first = keys[firsts[number]]
            if first is not key and (type(first) is not type(key) or first != key):
                return None
    places = np.array(firsts, np.intp)
    groups = Groups(np.array(of_rows, np.intp), np.arange(len(firsts)), places)
    return Keyed(groups, list(numbers), CodedColumn(np.array([], np.int32), [keys[i] for i in firsts]))  # type: ignore[arg-type]  # no nulls here


def key_bytes(column: Column | None, serde: Serde[Any]) -> BytesColumn | None:
    """A key column as the bytes of the store, if the column already has them."""
    if isinstance(column, EncodedColumn) and column.serde == serde and serde in SAME_BYTES:
        return column.raw
    return column if isinstance(column, BytesColumn) and serde is BYTES else None


def row_bytes(column: Column | None, serde: Serde[Any]) -> BytesColumn | None:
    """A key column as the bytes of the store, if it has no nulls and its keys are what these bytes are read as."""
    found: Column | None = None
    if has_bytes_of(column, serde):
        found = column.raw
    elif serde in SAME_BYTES and isinstance(column, CodedColumn):
        if set(map(type, column.values)) != {serde.exact}:
            return None
        data = written(column.values, serde)
        found = None if data is None else BytesColumn.of(data).take(column.codes.astype(np.intp))
    elif serde in SAME_BYTES and isinstance(column, (BytesColumn, NumberColumn)):
        found = serialized(column, serde)
    if not isinstance(found, BytesColumn) or (found.nulls is not None and found.nulls.any()):
        return None
    return found


def _keyed_by_bytes(column: EncodedColumn) -> Keyed:
    """Keys whose bytes in the store are the bytes that they were read from."""
    data = column.encoded
    groups = grouped(data.codes, len(data.values))
    return Keyed(groups, list(map(data.values.__getitem__, groups.codes.tolist())), column)


def _new(same: list[int]) -> list[int]:
    """The index of each number's first occurrence; numbers first occur in ascending order."""
    out: list[int] = []
    for i, number in enumerate(same):
        if number == len(out):
            out.append(i)
    return out


def written(values: list[Any], serde: Serde[Any]) -> list[bytes | None] | None:
    """The values as bytes; keeps nulls."""
    try:
        return serde.serialize_all(values)
    except SerdeError:
        return None


def packed_values(values: list[Any], serde: Serde[Any]) -> BytesColumn:
    """The values as a column of bytes; keeps nulls. Raises ``SerdeError``."""
    whole = None if serde.lists is None else serde.lists.pack(values)
    return BytesColumn.of(serde.serialize_all(values)) if whole is None else BytesColumn.of_raw(*whole)


def serialized(column: Column, serde: Serde[Any]) -> Column | None:
    """The column as bytes, with each distinct value serialized once: a ``BytesColumn``, or a ``CodedColumn`` of
    bytes."""
    if serde == PRESENCE:
        return BytesColumn(b"", np.zeros(len(column) + 1, np.int64), nulls_of(column))
    if isinstance(column, BytesColumn):
        return column if serde is BYTES else None
    if isinstance(column, TextColumn):
        return column.raw if column.pool.readers.serde == serde else None
    if has_bytes_of(column, serde):
        return column.raw
    if isinstance(serde, WindowedSerde) and is_windowed(column):
        keys = inner_bytes(column, serde.inner)
        return None if keys is None else written_windows(column, keys, serde)
    if isinstance(column, CodedColumn):
        distinct = column.compact() if len(column.values) > max(len(column), FEWEST) else column
        data = written(distinct.values, serde)
        return None if data is None else CodedColumn(distinct.codes, data)
    if isinstance(column, NumberColumn):
        for plain, kind, layout in ((INT, np.int64, ">i8"), (FLOAT, np.float64, ">f8")):
            if serde is plain and column.array.dtype == kind:
                return _fixed(column, layout)
    return None


def inner_bytes(column: StructColumn, serde: Serde[Any]) -> BytesColumn | None:
    """The keys within windowed keys, as bytes; ``None``: row by row."""
    data = serialized(column.fields["key"], serde)
    if data is None or isinstance(data, BytesColumn):
        return data
    return BytesColumn.of(data.to_list())


def _fixed(column: NumberColumn, layout: str) -> BytesColumn:
    """Numbers of 8 bytes. The content at null values is ignored."""
    offsets = np.arange(0, 8 * len(column) + 1, 8, dtype=np.int64)
    return BytesColumn(column.array.astype(layout).tobytes(), offsets, column.nulls)


def longest(column: Column) -> int:
    """The length of the longest value of a column of bytes, used or not."""
    if isinstance(column, BytesColumn):
        return int(np.diff(column.offsets).max()) if len(column) else 0
    assert isinstance(column, CodedColumn)
    return max((len(v) for v in column.values if v is not None), default=0)
