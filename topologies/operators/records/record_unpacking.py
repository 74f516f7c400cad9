"""The rows of records that hold many."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.state.native import compiled
from penstock.state.serdes.serde import BYTES, INT, INT32, Serde
from penstock.state.serdes.tuple_lists import forms_of_parts
from penstock.topologies.columnar.encoded_columns import SAME_BYTES, CollectionColumn, EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.packing import PackedRecord, unpack
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, NumberColumn, joined
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.row_functions import map_rows

_WIDTHS: Final[dict[Serde[Any], int]] = {INT: 8, INT32: 4}


def read_in_columns(key_serde: Serde[Any], value_serde: Serde[Any]) -> bool:
    """Whether rows of these serdes are taken out as columns."""
    return key_serde in SAME_BYTES and (value_serde is INT or forms_of_parts(value_serde.lists) is not None)


class Unpacker:
    """Unpacks the rows, with their records' order. ``in_columns``: as columns, if the serdes allow it."""

    def __init__(
        self, ctx: OperatorContext, key_serde: Serde[Any], value_serde: Serde[Any], *, in_columns: bool
    ) -> None:
        self._ctx = ctx
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._forms = forms_of_parts(value_serde.lists)
        self._coder = self._value_coder = None
        if in_columns and read_in_columns(key_serde, value_serde):
            self._coder, self._value_coder = Coder(), Coder()

    def unpacked(self, batch: Batch) -> tuple[Batch, bool]:
        """The rows, and whether they are decoded, else keys and values are bytes."""
        packed, batch = map_rows(self._ctx, batch, unpack, batch.values)
        sizes = [len(p.times) for p in packed]
        if self._coder is not None and packed and (values := self._values(packed)) is not None:
            keys = joined([p.keys for p in packed])
            if isinstance(keys, BytesColumn) and self._readable(keys):
                column = EncodedColumn(keys, self._key_serde, self._coder)
                times = np.concatenate([p.times for p in packed])
                return ColumnBatch(column, values, times, np.repeat(batch.orders, sizes)), True
        rows = Batch(
            [k for p in packed for k in p.keys.to_list()],
            [v for p in packed for v in p.values.to_list()],
            [t for p in packed for t in p.times.tolist()],
            [at for at, size in zip(batch.order, sizes, strict=True) for _ in range(size)],
        )
        return rows, False

    def _values(self, packed: list[PackedRecord]) -> Column | None:
        """The values of all records as a column; ``None``: read them one by one."""
        if self._forms is None:
            return _longs(packed)
        values, native = joined([p.values for p in packed]), compiled()
        if native is None or self._value_coder is None or not isinstance(values, BytesColumn):
            return None
        data, offsets, _ = values.raw()
        if native.read_partials(data, offsets, self._forms, None) is None:
            return None
        return CollectionColumn(values, self._value_serde, self._value_coder)

    def _readable(self, keys: BytesColumn) -> bool:
        """Whether the serde can read all of them."""
        if self._key_serde == BYTES:
            return True
        if self._key_serde in _WIDTHS:
            return not bool((np.diff(keys.offsets) != _WIDTHS[self._key_serde]).any())
        low, high = int(keys.offsets[0]), int(keys.offsets[-1])
        data = bytes(memoryview(keys.data)[low:high])
        if data.isascii():
            return True
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
        # all of them together are text; none of them is alone if it begins within a character
        starts = keys.offsets[:-1][keys.offsets[:-1] < high] - low
        return not bool((np.frombuffer(data, np.uint8)[starts] & 0xC0 == 0x80).any())


def _longs(packed: list[PackedRecord]) -> NumberColumn | None:
    """The values as numbers; ``None`` if one does not have the length of a long."""
    arrays = []
    for p in packed:
        low, high = int(p.values.offsets[0]), int(p.values.offsets[-1])
        if high - low != 8 * len(p.values) or bool((np.diff(p.values.offsets) != 8).any()):
            return None
        arrays.append(np.frombuffer(p.values.data, ">i8", len(p.values), low))
    return NumberColumn(np.concatenate(arrays).astype(np.int64))
