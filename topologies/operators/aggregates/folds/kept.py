"""Folding whole values by columns: the latest or earliest of each entry by their times, the best by their ranks.

Values stay the bytes that their serde writes. Those of the latest are passed on as they are; of the best, a value is decoded
once it is among them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.best_of import Kinds, Ranking, comparable, kinds_of
from penstock.topologies.aggregators.kept_records import KeptBest, KeptByRank, KeptByTime, KeptRecords
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.kernels import Coder, highest_so_far
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    Column,
    Ints,
    NumberColumn,
    Places,
    joined,
)
from penstock.topologies.operator_api.required_columns import ALL_AS_ROWS, InputMode, RequiredColumns
from penstock.topologies.operators.aggregates.folds.by_rank import ByRankColumns
from penstock.topologies.operators.aggregates.folds.counts import times_so_far
from penstock.topologies.operators.aggregates.folds.parts import Show, keys_of, put_accumulators
from penstock.topologies.operators.aggregates.folds.strategy import ColumnFold, OutKeys, Touched
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.hopping import spread_batch
from penstock.topologies.operators.columnar.row_texts import WrittenTexts, written_texts
from penstock.topologies.operators.columnar.stateless import reads

_FAR = 1 << 62


def keeping_mode(kept: KeptRecords, late: RequiredColumns | None, *, updates: bool, olds: bool) -> InputMode:
    """The input mode of an aggregation that keeps whole values."""
    why = _why_rows(kept, updates=updates, olds=olds)
    if why is not None:
        return InputMode(ALL_AS_ROWS, why)
    needs = RequiredColumns(key=True, value=True)
    for fn in () if isinstance(kept, KeptByTime) else kept.by:
        read = reads(fn)
        if isinstance(read, str):
            return InputMode(ALL_AS_ROWS, read)
        needs |= read
    return InputMode(needs if late is None else needs | late.later())


def _why_rows(kept: KeptRecords, *, updates: bool, olds: bool) -> str | None:
    if written_texts(kept.serde) is None:
        return (
            f"it keeps values of {kept.serde.name}, which is mutable, or has more than texts, whole numbers and truths"
        )
    if updates and olds and not isinstance(kept, KeptBest):
        return "a later operator needs its old values"
    return None


def keeping_fold(
    state: KeyValueStoreView, kept: KeptRecords, *, show: Show | None, out_keys: OutKeys | None, olds: bool
) -> ColumnFold | None:
    """The fold of columns of an aggregation that keeps whole values; ``None``: it has none. ``show`` gets every update."""
    written = written_texts(kept.serde)
    if written is None or keeping_mode(kept, None, updates=show is not None, olds=olds).rows is not None:
        return None
    if isinstance(kept, KeptByTime):
        return LatestColumns(state, kept, written, show=show, out_keys=out_keys)
    if isinstance(kept, KeptByRank):
        return ByRankColumns(state, kept, written, show=show, out_keys=out_keys)
    return BestColumns(state, kept, written, show=show, out_keys=out_keys, olds=olds)


class KeptResults:
    """The results of aggregates that keep one value each, as the bytes of these."""

    def __init__(self, kept: KeptByTime | KeptByRank, written: WrittenTexts) -> None:
        self._serde = kept.serde
        self._written = written
        self._coder = Coder()

    @classmethod
    def of_fold(cls, kept: KeptRecords | None) -> KeptResults | None:
        """For what a fold keeps; ``None``: it is not one value, or not kept as bytes."""
        written = None if kept is None or isinstance(kept, KeptBest) else written_texts(kept.serde)
        return None if written is None or isinstance(kept, KeptBest | None) else cls(kept, written)

    def of(self, aggregates: list[Any]) -> WrittenColumn | None:
        """The results. ``None``: one is null, or cannot be read."""
        if not all(aggregates):
            return None
        texts = self._written.of(BytesColumn.of([aggregate[-1] for aggregate in aggregates]))
        return None if texts is None else WrittenColumn(texts, self._serde, self._coder)


class LatestColumns:
    """Keeps the value with the latest, or earliest, time."""

    def __init__(
        self,
        state: KeyValueStoreView,
        kept: KeptByTime,
        written: WrittenTexts,
        *,
        show: Show | None,
        out_keys: OutKeys | None,
    ) -> None:
        self.serde = kept.serde
        self.later = kept.later
        self.written = written
        self._state = state
        self._coder = Coder()
        self._show = show
        self._out_keys = out_keys

    @property
    def shows(self) -> bool:
        """Whether updates are shown."""
        return self._show is not None

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        texts = self.written.of_column(batch.value_column)
        if texts is None:
            return False
        places, found = touched.records()
        rows = batch if places is None else spread_batch(batch, places)
        self._state.load(found.store_keys)
        before = list(map(self._state.entries.__getitem__, found.store_keys))
        accs = [() if e is None else e[0] for e in before]
        winners = self._winners(accs, found, rows.times)
        if winners is None:
            return False
        if self._show is not None:
            values = self._values(texts, accs, found, winners, places)
            if values is None:
                return False
            keys = keys_of(rows, found, self._out_keys)
            times = times_so_far(found.groups, rows.times, before)
            self._show(ColumnBatch(keys, values, times, rows.orders, rows.headers))
        last = np.empty(len(accs), np.int64)
        last[found.groups.numbers] = winners  # each entry's last record
        new = list(accs)
        entries = np.flatnonzero(last >= 0)
        chosen = last[entries]
        data = texts.take(chosen if places is None else places[chosen]).to_list()
        for entry, ts, text in zip(entries.tolist(), rows.times[chosen].tolist(), data, strict=True):
            new[entry] = (ts, text)
        put_accumulators(self._state, found.store_keys, new, touched.latest(batch.times), before)
        return True

    def _winners(self, accs: list[Any], found: Entries, times: Ints) -> Ints | None:
        """For each record, the one whose value is kept after it; -1: the stored one. ``None``: row by row."""
        rows = len(times)
        stored = [acc[0] if acc else None for acc in accs]
        known = [ts for ts in stored if ts is not None]
        size = rows + 2
        bound = _FAR // size
        if max(int(np.abs(times).max()), *map(abs, known), 0) >= bound:
            return None
        # time and number as one: of equal times the later record counts more, or less
        sign, numbers = (1, np.arange(1, rows + 1)) if self.later else (-1, np.arange(rows, 0, -1))
        ranks = sign * times * size + numbers
        own = 0 if self.later else rows + 1
        begun = np.array([-_FAR if ts is None else sign * ts * size + own for ts in stored], np.int64)
        best = np.maximum(highest_so_far(found.groups, ranks), begun[found.groups.numbers]) % size
        return best - 1 if self.later else np.where(best == own, -1, rows - best)

    def _values(
        self, texts: BytesColumn, accs: list[Any], found: Entries, winners: Ints, places: Places | None
    ) -> Column | None:
        """The value that is kept after each record. ``None``: a stored one cannot be read."""
        whole, chosen = texts, winners if places is None else np.where(winners < 0, winners, places[winners])
        old = np.flatnonzero(winners < 0)
        if len(old):
            of_entries, at = np.unique(found.groups.numbers[old], return_inverse=True)
            stored = self.written.of(BytesColumn.of([accs[entry][1] for entry in of_entries.tolist()]))
            both = None if stored is None else joined([texts, stored])
            if not isinstance(both, BytesColumn):
                return None
            whole, chosen = both, chosen.copy()
            chosen[old] = len(texts) + at
        return WrittenColumn(whole.take(chosen.astype(np.intp)), self.serde, self._coder)


class BestColumns:
    """Keeps the values with the highest, or lowest, ranks. ``olds``: ``show`` also gets what was shown before."""

    def __init__(
        self,
        state: KeyValueStoreView,
        kept: KeptBest,
        written: WrittenTexts,
        *,
        show: Show | None,
        out_keys: OutKeys | None,
        olds: bool,
    ) -> None:
        self._state = state
        self._serde = kept.serde
        self._best = kept.best
        self._written = written
        self._vectors = [Vectors.of(fn) for fn in kept.by]
        self._single = kept.single
        self._show = show
        self._out_keys = out_keys
        self._olds = olds

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        ranks = self._ranks(batch)
        texts = None if ranks is None else self._written.of_column(batch.value_column)
        if ranks is None or texts is None:
            return False
        places, found = touched.records()
        self._state.load(found.store_keys)
        before = list(map(self._state.entries.__getitem__, found.store_keys))
        try:
            rankings = self._rankings(before, kinds_of(ranks))
            if rankings is None:
                return False
            shown = self._add(rankings, found, ranks, texts, before, places)
        except Exception:  # raised again at its record
            return False
        if self._show is not None:
            rows = batch if places is None else spread_batch(batch, places)
            keys = keys_of(rows, found, self._out_keys)
            times = times_so_far(found.groups, rows.times, before)
            values, olds = shown
            self._show(ColumnBatch(keys, values, times, rows.orders, rows.headers, olds if self._olds else None))
        new = [self._best.remember(ranking) for ranking in rankings]
        put_accumulators(self._state, found.store_keys, new, touched.latest(batch.times), before)
        return True

    def _ranks(self, batch: ColumnBatch) -> list[Any] | None:
        """The rank of each record, of which all have one order. ``None``: row by row."""
        parts: list[list[Any]] = []
        for vectors in self._vectors:
            column = vectors.column(batch)
            if column is None or nulls_of(column) is not None:
                return None
            if isinstance(column, NumberColumn) and column.array.dtype == np.float64 and np.isnan(column.array).any():
                return None
            parts.append(column.to_list())
        ranks = parts[0] if self._single else list(zip(*parts, strict=True))
        if not comparable(kinds_of(ranks)):
            return None
        return ranks if all(part == part for one in parts for part in one) else None

    def _rankings(self, before: list[Any], kinds: Kinds) -> list[Ranking] | None:
        found: list[Ranking] = []
        for entry in before:
            ranking = self._best.ranking(() if entry is None else entry[0], kinds)
            if ranking is None:
                return None
            found.append(ranking)
        return found

    def _add(
        self,
        rankings: list[Ranking],
        found: Entries,
        ranks: list[Any],
        texts: BytesColumn,
        before: list[Any],
        places: Places | None,
    ) -> tuple[list[Any], list[Any]]:
        """Add the records to the rankings, and return the values after each record, and before it."""
        read, shows, olds = self._serde.deserialize, self._show is not None, self._olds
        data, ends = memoryview(texts.data), texts.offsets.tolist()
        values: list[Any] = []
        former: list[Any] = []
        absent = [entry is None for entry in before]
        of_rows = range(len(ranks)) if places is None else places.tolist()
        for row, number in zip(of_rows, found.groups.numbers.tolist(), strict=True):
            ranking, rank = rankings[number], ranks[row]
            if shows and olds:
                former.append(None if absent[number] else ranking.values[:])
                absent[number] = False
            if ranking.may_enter(rank):
                text = bytes(data[ends[row] : ends[row + 1]])
                at = ranking.place(rank, text)
                if at is not None:
                    ranking.put(at, rank, text, read(text))
            if shows:
                values.append(ranking.values[:])
        return values, former
