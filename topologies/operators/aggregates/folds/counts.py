"""Counting without functions: one step per distinct key, by rows, by columns, or in the store's own tally.

Partial counts are numbers of records. They are added in the same way, with a weight for each record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import CountStoreView
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import key_bytes
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder, Groups, counted_so_far, highest_so_far
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Ints, NumberColumn
from penstock.topologies.operators.aggregates.folds.held import flush_held
from penstock.topologies.operators.aggregates.folds.strategy import Failed, OutKeys, Touched
from penstock.topologies.operators.columnar.grouping import Entries, numbers_of
from penstock.topologies.operators.columnar.hopping import spread_batch

_HIGHEST = (1 << 63) - 1


class CountRows:
    """Counts records if only the last count per key is visible. ``sums``: values are numbers of records."""

    runs_functions = False

    def __init__(self, state: KeyValueStoreView, *, sums: bool) -> None:
        self._state = state
        self._sums = sums

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> None:
        timestamps = batch.timestamps
        if self._sums:
            add_counts(self._state, store_keys, batch.values, timestamps)
            return
        latest = dict(zip(store_keys, timestamps, strict=True))
        if timestamps != sorted(timestamps):
            for key, ts in zip(store_keys, timestamps, strict=True):
                if ts > latest[key]:
                    latest[key] = ts
        add_counts(self._state, latest, Counter(store_keys).values(), latest.values())


class CountColumns:
    """Counts a batch of columns, one step per entry. ``show`` gets every update, with the keys that ``out_keys`` returns
    (``None``: the records' own)."""

    def __init__(
        self, state: KeyValueStoreView, *, sums: bool, show: Callable[[Batch], None] | None, out_keys: OutKeys | None
    ) -> None:
        self._state = state
        self._sums = sums
        self._show = show
        self._out_keys = out_keys

    @property
    def shows(self) -> bool:
        """Whether updates are shown."""
        return self._show is not None

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        counts = touched.sums(batch, of_values=self._sums)
        if counts is None:
            return False
        state, store_keys = self._state, touched.entries.store_keys
        state.load(store_keys)
        if self._show is not None:
            before = list(map(state.entries.__getitem__, store_keys))
            places, entries = touched.records()
            rows = batch if places is None else spread_batch(batch, places)
            self._show(counted_updates(rows, entries, before, self._out_keys))
        add_counts(state, store_keys, counts, touched.latest(batch.times).tolist())
        return True


class TallyColumns:
    """Counts in the tally of the store's view, which tells keys apart by their bytes. Before the commit no entry is loaded,
    and no key becomes an object."""

    def __init__(self, state: CountStoreView, key_serde: Serde[Any], *, sums: bool) -> None:
        self._state = state
        self._key_serde = key_serde
        self._sums = sums

    def fold(self, batch: ColumnBatch) -> bool:
        keys, counts = key_bytes(batch.key_column, self._key_serde), None
        if self._sums and (counts := numbers_of(batch)) is None:
            return False
        return keys is not None and self._state.count(keys.data, keys.offsets, batch.times, counts)

    def flush(self, show: Callable[[Batch], None]) -> dict[bytes, Any]:
        return flush_held(self._state, self._key_serde.deserialize, self._results, show)

    def _results(self) -> ColumnBatch | None:
        found = self._state.tallied()
        if found is None:
            return None
        keys = EncodedColumn(BytesColumn(found.data, found.offsets), self._key_serde, Coder())
        nowhere = np.zeros(len(found.times), np.int64)
        return ColumnBatch(keys, NumberColumn(found.counts), found.times, nowhere)


def add_counts(
    state: KeyValueStoreView, store_keys: Iterable[bytes], counts: Iterable[int], timestamps: Sequence[int] | Any
) -> None:
    """Add numbers of records to loaded entries. A key may occur more than once. ``timestamps``: the highest of the records
    that a number stands for."""
    entries, dirty = state.entries, state.dirty
    for key, records, ts in zip(store_keys, counts, timestamps, strict=True):
        if (found := entries[key]) is not None:
            count, found_ts = found
            records += count
            if found_ts > ts:
                ts = found_ts
        entries[key] = (records, ts)
        dirty[key] = ts


def counted_updates(batch: ColumnBatch, found: Entries, before: list[Any], out_keys: OutKeys | None) -> ColumnBatch:
    """Every update of the counts of a batch: the records with their key's count up to them. ``before``: the store's
    entries. ``out_keys``: ``None`` where the records keep their keys."""
    counts = [0 if e is None else e[0] for e in before]
    numbers = found.groups.numbers
    keys: list[Any] | Column
    if out_keys is not None:
        keys = CodedColumn(numbers.astype(np.int32), out_keys(found.store_keys, found.keys))
    else:
        assert batch.key_column is not None
        keys = batch.key_column
    values = _counts_up_to(counts, numbers, counted_so_far(found.groups))
    return ColumnBatch(keys, values, times_so_far(found.groups, batch.times, before), batch.orders, batch.headers)


def times_so_far(groups: Groups, times: Ints, before: list[Any]) -> Ints:
    """The timestamps of updates: the highest of their entry so far. ``before``: the entries before the batch."""
    of_entries = np.array([-1 if e is None else e[1] for e in before], np.int64)
    return np.maximum(highest_so_far(groups, times), of_entries[groups.numbers])


def _counts_up_to(before: list[int], numbers: Ints, so_far: Ints) -> Column:
    """For each record, the count of its key so far. If one may exceed 64 bits, all are Python ints, as on rows: the sink's
    serde decides whether it can write them."""
    if max(before, default=0) <= _HIGHEST - len(numbers):
        return NumberColumn(np.array(before, np.int64)[numbers] + so_far)
    return CodedColumn.of([before[n] + more for n, more in zip(numbers.tolist(), so_far.tolist(), strict=True)])
