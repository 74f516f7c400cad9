"""Folding aggregate expressions by columns: each accumulator is made, and written, once per batch and entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints
from penstock.topologies.operators.aggregates.folds.strategy import OutKeys, Touched
from penstock.topologies.operators.columnar.folding import PartFolds
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.hopping import spread_columns
from penstock.topologies.operators.columnar.members import DistinctColumns

OpenDistinct = Callable[[list[bytes], Groups], DistinctColumns]
"""Opens the distinct counts, whose members are apart, for one batch: store keys of entries, and the records by entry."""
Show = Callable[[Batch], None]
"""Takes updates."""


class PartColumns:
    """Folds of aggregates that are tuples of their expressions' accumulators."""

    def __init__(
        self,
        state: KeyValueStoreView,
        parts: PartFolds,
        init: Callable[[], Any],
        distinct: OpenDistinct | None,
    ) -> None:
        self._state = state
        self._parts = parts
        self._init = init
        self._distinct = distinct

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        columns = self._parts.columns(batch)
        if columns is None:
            return False
        places, found = touched.records()
        if places is not None:
            columns = spread_columns(columns, places)
        state, init, store_keys = self._state, self._init, found.store_keys
        state.load(store_keys)
        before = list(map(state.entries.__getitem__, store_keys))
        distinct = None if self._distinct is None else self._distinct(store_keys, found.groups)
        new = self._parts.folded([init() if e is None else e[0] for e in before], found.groups, columns, distinct)
        if new is None:
            return False
        if distinct is not None:
            distinct.put()
        put_accumulators(state, store_keys, new, touched.latest(batch.times), before)
        return True


def put_accumulators(
    state: KeyValueStoreView, store_keys: list[bytes], new: list[Any], times: Ints, before: list[Any]
) -> None:
    """Change loaded entries. ``times``: the highest timestamps of their new records; ``before``: the entries so far."""
    entries, exact = state.entries, state.exact
    for key, acc, ts, entry in zip(store_keys, new, times.tolist(), before, strict=True):
        ts = ts if entry is None else max(ts, entry[1])
        entries[key] = (acc if type(acc) is exact else state.as_stored(acc), ts)
        state.dirty[key] = ts


def keys_of(rows: ColumnBatch, found: Entries, out_keys: OutKeys | None) -> list[Any] | Column:
    """The keys of the updates of records."""
    if out_keys is not None:
        return CodedColumn(found.groups.numbers.astype(np.int32), out_keys(found.store_keys, found.keys))
    return rows.keys if rows.key_column is None else rows.key_column
