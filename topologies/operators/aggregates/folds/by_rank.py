"""Folding by columns into the one value with the highest, or the lowest, rank of each entry.

Only values that are the best of their entry when they come are written as bytes; none is decoded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.kept_records import KeptByRank
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.kernels import Coder, highest_so_far
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Mask, Places, joined
from penstock.topologies.operators.aggregates.folds.counts import times_so_far
from penstock.topologies.operators.aggregates.folds.parts import Show, keys_of, put_accumulators
from penstock.topologies.operators.aggregates.folds.strategy import OutKeys, Touched
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.hopping import spread_batch
from penstock.topologies.operators.columnar.ranks import RankColumns, rank_numbers
from penstock.topologies.operators.columnar.row_texts import WrittenTexts

_FAR = 1 << 62


class ByRankColumns:
    """Keeps the value with the highest, or lowest, rank; of equal ranks the one with the smallest bytes."""

    def __init__(
        self,
        state: KeyValueStoreView,
        kept: KeptByRank,
        written: WrittenTexts,
        *,
        show: Show | None,
        out_keys: OutKeys | None,
    ) -> None:
        self._state = state
        self._serde = kept.serde
        self._largest = kept.largest
        self._parts = RankColumns(kept.serde, kept.by)
        self._written = written
        self._coder = Coder()
        self._show = show
        self._out_keys = out_keys

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        column, parts = batch.value_column, self._parts.of(batch)
        if column is None or parts is None:
            return False
        places, found = touched.records()
        self._state.load(found.store_keys)
        before = list(map(self._state.entries.__getitem__, found.store_keys))
        accs: list[tuple[bytes, ...]] = [() if e is None else e[0] for e in before]
        if any(len(acc) > 1 for acc in accs):
            return False
        stored = _Stored(accs)
        ranks = self._ranks(parts, stored)
        if ranks is None:
            return False
        of_rows, of_stored = ranks[: len(batch)], ranks[len(batch) :]
        if places is not None:
            of_rows = of_rows[places]
        leading = _leading(found, of_rows, stored.spread(of_stored))
        bases = _rows_of(np.flatnonzero(leading), places)
        at, texts = self._texts(column, bases)
        if texts is None:
            return False
        winners = _winners(found, leading, of_rows, of_stored, at, texts, stored)
        if winners is None:
            return False
        if self._show is not None:
            old = self._written.of(stored.texts)
            whole = None if old is None else joined([texts, old])
            if not isinstance(whole, BytesColumn):
                return False
            codes = np.where(winners < 0, len(texts) + stored.slots[found.groups.numbers], winners)
            values = WrittenColumn.of_codes(codes.astype(np.int32), whole, self._serde, self._coder)
            rows = batch if places is None else spread_batch(batch, places)
            keys, times = keys_of(rows, found, self._out_keys), times_so_far(found.groups, rows.times, before)
            self._show(ColumnBatch(keys, values, times, rows.orders, rows.headers))
        last = np.empty(len(accs), np.int64)
        last[found.groups.numbers] = winners  # each entry's last record
        entries = np.flatnonzero(last >= 0)
        new: list[Any] = list(accs)
        for entry, text in zip(entries.tolist(), texts.take(last[entries]).to_list(), strict=True):
            new[entry] = (text,)
        put_accumulators(self._state, found.store_keys, new, touched.latest(batch.times), before)
        return True

    def _ranks(self, parts: list[Column], stored: _Stored) -> Ints | None:
        """The ranks of the records, and behind them those of stored values, as numbers."""
        sets = [parts]
        if len(stored.texts):
            of_stored = self._parts.of_texts(stored.texts)
            if of_stored is None:
                return None
            sets.append(of_stored)
        numbers = rank_numbers(sets)
        return numbers if numbers is None or self._largest else int(numbers.max()) - numbers

    def _texts(self, column: Column, rows: Places) -> tuple[Places, BytesColumn | None]:
        """The texts of some records, which may repeat, and where each one's is. ``None``: one of the batch has none."""
        if not len(rows):
            return rows, BytesColumn.of([])
        wanted, at = np.unique(rows, return_inverse=True)
        if self._written.sure(column):
            return at, self._written.of_column(column.take(wanted))
        texts = self._written.of_column(column)
        return at, None if texts is None else texts.take(wanted)


class _Stored:
    """The values that entries hold, for those that hold one. ``slots``: for each entry, which one."""

    def __init__(self, accs: list[tuple[bytes, ...]]) -> None:
        self.texts = BytesColumn.of([acc[0] for acc in accs if acc])
        there = np.fromiter(map(bool, accs), np.bool_, len(accs))
        self._there = np.flatnonzero(there)
        self.slots = np.cumsum(there) - 1

    def spread(self, numbers: Ints) -> Ints:
        """Numbers of the values, for each entry; -1 for one that holds none."""
        found = np.full(len(self.slots), -1, np.int64)
        found[self._there] = numbers
        return found


def _rows_of(places: Places, spread: Places | None) -> Places:
    return places if spread is None else spread[places]


def _leading(found: Entries, ranks: Ints, of_entries: Ints) -> Mask:
    """The records of which no better one is known in their entry when they come."""
    numbers = found.groups.numbers
    leading: Mask = ranks == np.maximum(highest_so_far(found.groups, ranks), of_entries[numbers])
    return leading


def _winners(
    found: Entries, leading: Mask, ranks: Ints, of_stored: Ints, at: Places, texts: BytesColumn, stored: _Stored
) -> Ints | None:
    """For each record, where the text is of the value that is kept after it; -1: the stored one. ``at``: where those of
    leading records are. ``None``: row by row."""
    numbers, places = found.groups.numbers, np.flatnonzero(leading)
    rows, own = len(ranks), ranks[places]
    behind = np.zeros(len(own), np.int64)
    of_old = np.zeros(len(of_stored), np.int64)
    if _tied(numbers[places], own, stored.spread(of_stored)):
        listed, olds = texts.to_list(), stored.texts.to_list()
        by_bytes = {text: n for n, text in enumerate(sorted({*listed, *olds}, reverse=True))}  # type: ignore[type-var]  # none is null
        behind = np.array([by_bytes[t] for t in listed], np.int64)[at]
        of_old = np.array([by_bytes[t] for t in olds], np.int64)
    size, span = rows + 2, int(max(behind.max(initial=0), of_old.max(initial=0))) + 1
    placed = np.unique(np.concatenate([own * span + behind, of_stored * span + of_old]), return_inverse=True)[1]
    if len(placed) * size >= _FAR:
        return None
    values = np.full(rows, -1, np.int64)
    values[places] = placed[: len(own)] * size + (rows - places)  # of equal bytes, whichever
    begun = stored.spread(placed[len(own) :] * size + (rows + 1))
    best = np.maximum(highest_so_far(found.groups, values), begun[numbers]) % size
    of_rows = np.full(rows + 1, -1, np.int64)
    of_rows[places] = at
    return of_rows[np.where(best == rows + 1, rows, rows - best)]


def _tied(numbers: Places, ranks: Ints, of_entries: Ints) -> bool:
    """Whether two of an entry's values have the same rank."""
    if bool((of_entries[numbers] == ranks).any()):
        return True
    pairs = numbers * (int(ranks.max(initial=0)) + 1) + ranks
    return len(np.unique(pairs)) < len(pairs)
