"""A join of two tables on columns: the other side's rows are read as texts, for a whole batch at once.

Does for a batch what the row form does for one change after another, and has done nothing where it leaves the batch to that
(``None``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import nulls_of, spread_over
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Mask
from penstock.topologies.operators.columnar.pairs import SIDES, Result, fields_read, result_of, still_means
from penstock.topologies.operators.columnar.side_values import PairsOfPools
from penstock.topologies.operators.columnar.stored_rows import (
    RowValues,
    bytes_of_keys,
    entries_of,
    present_texts,
    texts_of,
    time_of,
)


class _Rows(NamedTuple):
    """Rows of one side as its serde writes them, and which of them are there."""

    texts: BytesColumn
    there: Mask


class TableJoining:
    """Joins changes of either table with the rows of the other, which ``states`` keep as bytes. ``keeps``: for each side,
    whether its rows have a result without a partner. ``shared``, ``sends_olds``: see ``TableTableJoinSpec``."""

    def __init__(
        self,
        joiner: Any,
        values: tuple[RowValues, RowValues],
        states: tuple[KeyValueStoreView, KeyValueStoreView],
        keeps: tuple[bool, bool],
        *,
        shared: bool,
        sends_olds: bool,
    ) -> None:
        self._joiner = joiner
        self._result: Result = result_of(joiner)
        self._read = [fields_read(joiner, side) for side in SIDES]
        self._values = values
        self._states = states
        self._keeps = keeps
        self._shared = shared
        self._sends_olds = sends_olds

    def load(self, port: int, batch: ColumnBatch) -> bool:
        """Load the rows that the changes of a side meet. ``False``: nothing was done."""
        keys = self._keys(port, batch)
        if keys is not None:
            self._states[1 - port].load(keys)
        return keys is not None

    def _keys(self, port: int, batch: ColumnBatch) -> list[bytes] | None:
        """The keys as the other side's store has them; ``None``: one is null, or cannot be written."""
        keys = bytes_of_keys(batch, self._states[1 - port].spec.key_serde)
        there = [key for key in keys or () if key is not None]
        return there if keys is not None and len(there) == len(keys) else None

    def of(self, port: int, batch: ColumnBatch) -> ColumnBatch | None:
        """The results of the changes of a side, null where a result is gone."""
        keys = self._keys(port, batch) if still_means(self._joiner) else None
        news = self._rows_of(port, batch.value_column)
        with_olds = self._sends_olds or (self._keeps[port] and not self._shared)
        olds = self._rows_of(port, batch.old_column) if with_olds else None
        if keys is None or news is None or (with_olds and olds is None):
            return None
        entries = entries_of(self._states[1 - port], keys)
        others = _rows(self._values[1 - port].canonical(texts_of(entries)))
        if others is None:
            return None
        shown = np.ones(len(batch), np.bool_)
        if not self._shared:
            shown = others.there
            if olds is not None and self._keeps[port]:
                shown = shown | news.there | olds.there
        times = batch.times.copy()
        found = np.flatnonzero(others.there)
        met_ms = [time_of(entry) for entry in entries if entry is not None]
        times[found] = np.maximum(times[found], np.array(met_ms, np.int64))
        nothing = CodedColumn(np.zeros(len(batch), np.int32), [None])
        column = batch.key_column
        at = ColumnBatch(batch.keys if column is None else column, nothing, times, batch.orders, batch.headers)
        return self._emitted(port, at, (news, olds), others, shown)

    def _emitted(
        self, port: int, at: ColumnBatch, changes: tuple[_Rows, _Rows | None], others: _Rows, shown: Mask
    ) -> ColumnBatch | None:
        news, olds = changes
        now = self._joined(port, at, news, others)
        if now is None:
            return None
        made = at.replace(values=now)
        if self._sends_olds and olds is not None:
            before = self._joined(port, at, olds, others)
            if before is None:
                return None
            made = at.with_olds(now, before)
            shown = shown & ~(_nulls(now, len(at)) & _nulls(before, len(at)))
        assert isinstance(made, ColumnBatch)
        return made if shown.all() else made.pick(np.flatnonzero(shown))

    def _rows_of(self, side: int, column: Column | None) -> _Rows | None:
        return _rows(self._values[side].of_column(column))

    def _joined(self, port: int, at: ColumnBatch, own: _Rows, others: _Rows) -> Column | None:
        """The result of each row of a side with that of the other one, null where there is none."""
        mask = own.there & others.there
        if self._keeps[port]:
            mask = mask | own.there
        if self._keeps[1 - port]:
            mask = mask | others.there
        places = np.flatnonzero(mask)
        if not len(places):
            return CodedColumn(np.zeros(len(at), np.int32), [None])
        pools, codes = [], []
        for side, rows in enumerate((others, own) if port else (own, others)):
            pool = self._values[side].pool(present_texts(rows.texts, np.flatnonzero(rows.there)))
            names = self._read[side]
            if names and len(pool) and not pool.read(names):
                return None
            pools.append(pool)
            codes.append(np.where(rows.there, np.cumsum(rows.there) - 1, -1)[places])
        made = self._result(PairsOfPools([*pools], codes), at.pick(places))
        return None if made is None else spread_over(made, None if len(places) == len(at) else places, len(at))


def _rows(texts: BytesColumn | None) -> _Rows | None:
    if texts is None:
        return None
    return _Rows(texts, np.ones(len(texts), np.bool_) if texts.nulls is None else ~texts.nulls)


def _nulls(column: Column, rows: int) -> Mask:
    nulls = nulls_of(column)
    return np.zeros(rows, np.bool_) if nulls is None else nulls
