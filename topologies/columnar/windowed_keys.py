"""Windowed keys as columns: a struct of the key and of its window's start and end, which makes ``Windowed`` on demand."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from penstock.state.log import Windowed
from penstock.state.serdes.serde import INT, Serde
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, EncodedColumn, WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, NumberColumn, StructColumn

_LONG = 8


def windowed_column(keys: Column, starts: Ints, ends: Ints) -> StructColumn:
    """Windowed keys, of which none is null, nor any part."""
    return StructColumn({"key": keys, "start_ms": NumberColumn(starts), "end_ms": NumberColumn(ends)}, Windowed)


def is_windowed(column: Column | None) -> TypeGuard[StructColumn]:
    """Whether a column is of windowed keys."""
    return isinstance(column, StructColumn) and column.build is Windowed and column.nulls is None


def stored_keys(names: BytesColumn, serde: Serde[object]) -> Column:
    """Keys as the bytes that ``serde`` wrote of them, none of which is null."""
    if serde is INT and (np.diff(names.offsets) == _LONG).all():
        low, high = int(names.offsets[0]), int(names.offsets[-1])
        return NumberColumn(np.frombuffer(names.data, ">i8", (high - low) // _LONG, low).astype(np.int64))
    return (EncodedColumn if serde in SAME_BYTES else WrittenColumn)(names, serde, Coder())


def written_windows(column: StructColumn, keys: BytesColumn, serde: WindowedSerde) -> BytesColumn:
    """Windowed keys as ``serde`` writes them. ``keys``: the keys alone, as its ``inner`` does."""
    fields = ("start_ms",) if serde.suffix_bytes == _LONG else ("end_ms", "start_ms")
    numbers = [column.fields[name] for name in fields]
    arrays = [number.array for number in numbers if isinstance(number, NumberColumn)]
    rows, width = len(column), _LONG * len(fields)
    suffixes = np.stack(arrays, axis=1).astype(">i8").view(np.uint8).reshape(rows, width)
    offsets = keys.offsets - keys.offsets[0] + width * np.arange(rows + 1)
    cells = np.empty(int(offsets[-1]), np.uint8)
    of_suffixes = (offsets[1:, None] - width) + np.arange(width)
    of_keys = np.ones(len(cells), np.bool_)
    of_keys[of_suffixes] = False
    cells[of_keys] = np.frombuffer(keys.data, np.uint8)[int(keys.offsets[0]) : int(keys.offsets[-1])]
    cells[of_suffixes] = suffixes
    return BytesColumn(cells.tobytes(), offsets)
