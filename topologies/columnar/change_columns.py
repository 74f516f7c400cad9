"""Changes of a table's rows as columns: the new rows and the old ones, and both as the bytes of a repartition topic
(``penstock.state.serdes.change_serde``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.state.serdes.change_serde import BOTH, NEW, OLD, VARINT_MAX_BYTES, Change, varint
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Mask, StructColumn, joined

NEWS, OLDS = Change._fields
"""The fields of a change."""


def change_column(news: Column, olds: Column) -> StructColumn:
    """The changes of these rows; null: no row."""
    return StructColumn({NEWS: news, OLDS: olds}, Change)


def sides_of(column: Column | None) -> tuple[Column, Column] | None:
    """The new rows and the old ones of a column of changes; ``None`` for other columns."""
    if not isinstance(column, StructColumn) or column.build is not Change or column.nulls is not None:
        return None
    return column.fields[NEWS], column.fields[OLDS]


def written_changes(news: BytesColumn, olds: BytesColumn) -> BytesColumn | None:
    """The bytes of changes whose rows are these bytes. ``None``: one has neither row."""
    rows = len(news)
    has_new, has_old = _present(news), _present(olds)
    if not (has_new | has_old).all():
        return None
    both = has_new & has_old
    lengths, numbers = np.unique(np.where(both, np.diff(news.offsets), 0), return_inverse=True)
    heads = BytesColumn.of([varint(n) for n in lengths.tolist()])
    flags = BytesColumn.of([bytes([flag]) for flag in (OLD, NEW, BOTH)] + [b""])
    whole = joined([heads, _bytes_of(news), _bytes_of(olds), flags])
    assert isinstance(whole, BytesColumn)
    first_new = len(lengths)
    first_old, first_flag = first_new + rows, first_new + 2 * rows
    nothing, at = first_flag + len(flags) - 1, np.arange(rows)
    pieces = np.empty((rows, 4), np.intp)
    pieces[:, 0] = np.where(both, numbers, nothing)
    pieces[:, 1] = np.where(has_new, first_new + at, nothing)
    pieces[:, 2] = np.where(has_old, first_old + at, nothing)
    pieces[:, 3] = first_flag + np.where(both, BOTH, np.where(has_new, NEW, OLD))
    made = whole.take(pieces.ravel())
    return BytesColumn(made.data, made.offsets[::4])


def read_changes(column: BytesColumn) -> tuple[BytesColumn, BytesColumn] | None:
    """The bytes of the new rows and of the old ones, null where there is none. ``None``: a change is null, or is none."""
    starts, ends = column.offsets[:-1], column.offsets[1:] - 1
    if nulls_of(column) is not None or (ends < starts).any() or not len(starts):
        return None
    data = np.frombuffer(column.data, np.uint8)
    flags = data[ends]
    both = flags == BOTH
    if (flags > BOTH).any():
        return None
    split = _split(data, starts, ends, both)
    if split is None:
        return None
    begins, middles = split
    middles = np.where(flags == NEW, ends, middles)
    return _between(column, begins, middles, flags == OLD), _between(column, middles, ends, flags == NEW)


def _split(data: NDArray[np.uint8], starts: Ints, ends: Ints, both: Mask) -> tuple[Ints, Ints] | None:
    """Where the first row of each change begins, and where it ends if there are ``both``, else begins. ``None``: a length
    is none."""
    lengths, begins = np.zeros(len(starts), np.int64), starts.copy()
    open_ = both.copy()
    for place in range(VARINT_MAX_BYTES):
        if not open_.any():
            break
        if (begins[open_] >= ends[open_]).any():
            return None
        byte = np.where(open_, data[np.minimum(begins, ends)], 0).astype(np.int64)
        lengths |= (byte & 0x7F) << (7 * place)
        begins = begins + open_
        open_ = open_ & (byte >= 0x80)
    middles = begins + (lengths >> 1)
    if open_.any() or (lengths & 1).any() or (middles > ends).any():
        return None
    return begins, middles


def _between(column: BytesColumn, begins: Ints, ends: Ints, nulls: Mask) -> BytesColumn:
    """The bytes between these places, which never fall."""
    rows = len(begins)
    places = np.column_stack((begins, ends)).ravel()
    whole: Mask | None = None
    if nulls.any():
        whole = np.zeros(2 * rows - 1, np.bool_)
        whole[::2] = nulls
    return BytesColumn(column.data, places, whole).take(np.arange(0, 2 * rows, 2, dtype=np.intp))


def _present(column: BytesColumn) -> Mask:
    return np.ones(len(column), np.bool_) if column.nulls is None else ~column.nulls


def _bytes_of(column: BytesColumn) -> BytesColumn:
    return BytesColumn(column.data, column.offsets)
