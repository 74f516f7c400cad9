"""Counting on columns: one step per entry of the store, for any number of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.kernels import counted_so_far, highest_so_far, summed
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints, NumberColumn
from penstock.topologies.operators.columnar.grouping import Entries

_HIGHEST = (1 << 63) - 1

OutKeys = Callable[[list[bytes], list[Any]], list[Any]]
"""The keys of emitted records, from store keys and the records' keys."""


def add_counts(state: KeyValueStoreView, found: Entries, counts: list[int], latest: Ints) -> None:
    """Add the number of records to each loaded entry; ``latest`` are their highest timestamps."""
    entries, dirty = state.entries, state.dirty
    for key, records, ts in zip(found.store_keys, counts, latest.tolist(), strict=True):
        entry = entries[key]
        if entry is not None:
            count, entry_ts = entry
            records += count
            if entry_ts > ts:
                ts = entry_ts
        entries[key] = (records, ts)
        dirty[key] = ts


def sums_of(batch: ColumnBatch, found: Entries) -> list[int] | None:
    """The sum of each entry's values, which are numbers of records; ``None``: take the row path, also if a sum
    overflows int64."""
    column = batch.value_column
    if not isinstance(column, NumberColumn) or column.array.dtype != np.int64 or column.nulls is not None:
        return None
    sums = summed(found.groups, column.array)
    return None if sums is None else sums.tolist()


def counted_updates(
    batch: ColumnBatch, found: Entries, before: list[Any], out_keys: OutKeys, *, windowed: bool
) -> ColumnBatch:
    """Every update of the counts of a batch: the records with their key's count up to them. ``before``: the store's
    entries."""
    latest = highest_so_far(found.groups, batch.times)
    counts = [0 if e is None else e[0] for e in before]
    times = np.array([-1 if e is None else e[1] for e in before], np.int64)
    numbers = found.groups.numbers
    keys: list[Any] | Column
    if windowed:
        keys = CodedColumn(numbers.astype(np.int32), out_keys(found.store_keys, found.keys))
    else:
        assert batch.key_column is not None
        keys = batch.key_column
    values = _counts_up_to(counts, numbers, counted_so_far(found.groups))
    return ColumnBatch(keys, values, np.maximum(latest, times[numbers]), batch.orders, batch.headers)


def _counts_up_to(before: list[int], numbers: Ints, so_far: Ints) -> Column:
    """The count of each record's key up to it. If one may overflow int64 they are Python integers, as in rows; the
    sink's serde decides whether it can write them."""
    if max(before, default=0) <= _HIGHEST - len(numbers):
        return NumberColumn(np.array(before, np.int64)[numbers] + so_far)
    return CodedColumn.of([before[n] + more for n, more in zip(numbers.tolist(), so_far.tolist(), strict=True)])
