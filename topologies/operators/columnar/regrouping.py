"""Changes of a table's rows as changes of groups, by columns: for each change a removal, an addition, or both at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import INT, Serde
from penstock.topologies.columnar.change_columns import change_column
from penstock.topologies.columnar.column_parts import nulls_of, present, serialized, with_nulls, written
from penstock.topologies.columnar.json_writing import encoder_of, written_json
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    Ints,
    Mask,
    NumberColumn,
    Places,
    StructColumn,
    joined,
)
from penstock.topologies.operator_api.required_columns import ALL_AS_ROWS, InputMode, RequiredColumns
from penstock.topologies.operators.columnar.stateless import ColumnarStep, keys_of, reads


def regrouping_mode(fn: Callable[..., Any]) -> InputMode:
    """How changes are taken that go, whole, to the groups that ``fn`` gives."""
    found = reads(fn)
    if isinstance(found, str):
        return InputMode(ALL_AS_ROWS, found)
    return InputMode(found | RequiredColumns(value=True))


class _Side(NamedTuple):
    """The new rows of changes, or the old ones, that belong to a group: their places, and their groups."""

    places: Places
    groups: Column


class Regrouping:
    """Regroups whole rows."""

    def __init__(self, step: ColumnarStep, keys: Serde[Any]) -> None:
        self._step = step
        self._keys = keys

    @classmethod
    def of(cls, fn: Callable[..., Any], keys: Serde[Any]) -> Regrouping | None:
        """By the groups that ``fn`` gives, which ``keys`` writes. ``None``: row by row."""
        step = None if isinstance(reads(fn), str) else keys_of(fn)
        return None if step is None else cls(step, keys)

    def of_batch(self, batch: ColumnBatch) -> Batch | None:
        """The changes of groups: of a row whose group changes, its removal before its addition. ``None``: row by row."""
        news, olds = batch.value_column, batch.old_column
        if news is None or olds is None:
            return None
        added, removed = self._side(batch, news), self._side(batch, olds)
        if added is None or removed is None:
            return None
        rows = len(batch)
        numbers = self._numbers(added.groups, removed.groups)
        if numbers is None:
            return None
        has_new, has_old = _mask(added.places, rows), _mask(removed.places, rows)
        of_new, of_old = np.zeros((2, rows), np.int64)
        of_new[added.places], of_old[removed.places] = numbers
        same = has_new & has_old & (of_new == of_old)
        places = np.flatnonzero(np.column_stack((has_old & ~same, has_new)).ravel())
        sources, is_new = places >> 1, (places & 1).astype(np.bool_)
        keys = _chosen(added, removed, sources, is_new, rows)
        new = with_nulls(news.take(sources), ~is_new)
        old = with_nulls(olds.take(sources), is_new & ~same[sources])
        if keys is None or new is None or old is None:
            return None
        headers = None if batch.headers is None else [batch.headers[i] for i in sources.tolist()]
        return ColumnBatch(keys, change_column(new, old), batch.times[sources], batch.orders[sources], headers)

    def _side(self, batch: ColumnBatch, values: Column) -> _Side | None:
        """``None``: row by row, also where a group cannot be computed."""
        places, rows = present(batch, values)
        if places is None:
            places = np.arange(len(batch))
        if not len(places):
            return _Side(places, CodedColumn(np.zeros(0, np.int32), []))
        groups: Column | None = self._step.make(rows) if isinstance(rows, ColumnBatch) else None
        if groups is None:
            return None
        nulls = nulls_of(groups)
        if nulls is None:
            return _Side(places, groups)
        kept = np.flatnonzero(~nulls)
        return _Side(places[kept], groups.take(kept))

    def _numbers(self, one: Column, other: Column) -> tuple[Ints, Ints] | None:
        """Numbers that are equal where groups have equal bytes. ``None``: one cannot be written."""
        if self._keys is INT and isinstance(one, NumberColumn) and isinstance(other, NumberColumn):
            if one.array.dtype == other.array.dtype == np.int64:
                return one.array, other.array
            return None
        seen: dict[bytes | None, int] = {}
        out = []
        for column in (one, other):
            data = self._written(column)
            if data is None:
                return None
            codes = np.fromiter(
                (seen.setdefault(value, len(seen)) for value in data.values), np.int64, len(data.values)
            )
            out.append(codes[data.codes])
        return out[0], out[1]

    def _written(self, column: Column) -> CodedColumn | None:
        """The bytes of groups."""
        data: Column | list[bytes | None] | None = serialized(column, self._keys)
        if data is None and isinstance(column, StructColumn):
            encode = encoder_of(self._keys)
            data = None if encode is None else written_json(column, encode)
        if data is None:
            data = written(column.to_list(), self._keys)
        if isinstance(data, BytesColumn):
            data = data.to_list()
        return CodedColumn(np.arange(len(data), dtype=np.int32), data) if isinstance(data, list) else _coded(data)


def _coded(column: Column | None) -> CodedColumn | None:
    return column if isinstance(column, CodedColumn) else None


def _mask(places: Places, rows: int) -> Mask:
    out = np.zeros(rows, np.bool_)
    out[places] = True
    return out


def _chosen(added: _Side, removed: _Side, sources: Places, is_new: Mask, rows: int) -> Column | None:
    """The group of each change of groups."""
    of_new, of_old = np.zeros((2, rows), np.intp)
    of_new[added.places], of_old[removed.places] = np.arange(len(added.places)), np.arange(len(removed.places))
    if is_new.all():
        return added.groups.take(of_new[sources])
    if not is_new.any():
        return removed.groups.take(of_old[sources])
    both = joined([added.groups, removed.groups])
    at = np.where(is_new, of_new[sources], len(added.places) + of_old[sources])
    return None if both is None else both.take(at)
