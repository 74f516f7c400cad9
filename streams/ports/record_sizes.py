"""How many bytes records take, without making lists of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.streams.ports.record_columns import RecordColumns
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column

_SAMPLED = 64


def size_of(records: RecordColumns[Any]) -> int:
    """Bytes of keys and values; where they are objects, what the first records let expect."""
    size = 0.0
    for column, of in ((records.key_column, "keys"), (records.value_column, "values")):
        if isinstance(column, BytesColumn):
            size += int(column.offsets[-1]) - int(column.offsets[0])
        elif column is not None:
            size += _expected(_first_of(column), len(column))
        else:
            rows = getattr(records, of)
            size += _expected(rows[:_SAMPLED], len(rows))
    return int(size)


def _first_of(column: Column) -> list[Any]:
    """The first records' values: to look at all of them costs as much as other work per record."""
    assert isinstance(column, CodedColumn), type(column)
    return [column.values[code] for code in column.codes[:_SAMPLED].tolist()]


def _expected(some: Sequence[Any], count: int) -> float:
    return sum(len(row) for row in some if row is not None) * count / max(len(some), 1)
