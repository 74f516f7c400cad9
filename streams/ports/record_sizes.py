"""How many bytes records take, without making lists of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.streams.ports.record_columns import RecordColumns
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column

_SAMPLED = 64


def size_of(records: RecordColumns[Any]) -> int:
    """Bytes of keys and values; for lists an estimate from the first records."""
    size = 0.0
    for column, of in ((records.key_column, "keys"), (records.value_column, "values")):
        if column is not None:
            size += _column_bytes(column)
            continue
        rows = getattr(records, of)
        some = rows[:_SAMPLED]
        size += sum(len(row) for row in some if row is not None) * len(rows) / max(len(some), 1)
    return int(size)


def _column_bytes(column: Column) -> float:
    if isinstance(column, BytesColumn):
        return int(column.offsets[-1]) - int(column.offsets[0])
    assert isinstance(column, CodedColumn), type(column)
    lengths = np.array([0 if value is None else len(value) for value in column.values], np.int64)
    return float(lengths[column.codes].sum()) if len(lengths) else 0.0
