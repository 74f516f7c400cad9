"""The best values of many groups at once, by the ranks of their texts: no value is decoded.

The answer is that of ``BestOf.of`` for each group: the highest ranks first, equal ones in the order of their bytes, with
ties all that are as good as the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.kept_records import KeptBest, KeptByRank
from penstock.topologies.columnar.column_parts import FEWEST
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Places, joined
from penstock.topologies.operator_api.operator import NO_TIME
from penstock.topologies.operators.aggregates.folds.strategy import Changes, Failed, RowFold
from penstock.topologies.operators.columnar.ranks import RankColumns, rank_numbers
from penstock.topologies.operators.columnar.row_texts import WrittenTexts, written_texts

Best = tuple[bytes, ...]
"""The accumulator of one group."""


class _Ranked(NamedTuple):
    """Values by group, with the parts of their ranks. ``sure``: each one is sure to have a text."""

    numbers: Places
    parts: list[Column]
    values: Column
    sure: bool


class BestTexts:
    """Merges accumulators of what ``kept`` says, and adds records to them."""

    def __init__(self, kept: KeptBest | KeptByRank, written: WrittenTexts) -> None:
        self._k = kept.best.k if isinstance(kept, KeptBest) else 1
        self._largest = kept.best.largest if isinstance(kept, KeptBest) else kept.largest
        self._ties = isinstance(kept, KeptBest) and kept.best.ties
        self._ranks = RankColumns(kept.serde, kept.by)
        self._written = written

    @classmethod
    def of_fold(cls, kept: Any) -> BestTexts | None:
        """For what a fold keeps; ``None``: it is not kept by rank, or not as bytes."""
        if not isinstance(kept, (KeptBest, KeptByRank)):
            return None
        written = written_texts(kept.serde)
        return None if written is None else cls(kept, written)

    def with_records(self, numbers: Places, batch: ColumnBatch, before: list[Best]) -> list[Best] | None:
        """The best of each group: of what it had before, and of the records with its number. ``None``: row by row."""
        values, parts = batch.value_column, self._ranks.of(batch)
        if values is None or parts is None:
            return None
        sure = self._written.sure(values)
        texts: Column | None = values if sure else self._written.of_column(values)
        if texts is None:
            return None
        return self._best(_Ranked(numbers, parts, texts, sure), np.arange(len(before)), before)

    def merged(self, numbers: Sequence[int], accs: list[Best]) -> list[Best] | None:
        """The best of each group, of accumulators by the group's number. ``None``: one by one."""
        return self._best(None, np.array(numbers, np.intp), accs)

    def _best(self, records: _Ranked | None, of_accs: Places, accs: list[Best]) -> list[Best] | None:
        groups = int(of_accs.max(initial=-1)) + 1
        held = BytesColumn.of([text for acc in accs for text in acc])
        sets = [] if records is None else [records]
        if len(held):
            parts = self._ranks.of_texts(held)
            if parts is None:
                return None
            lengths = np.fromiter(map(len, accs), np.intp, len(accs))
            sets.append(_Ranked(np.repeat(of_accs, lengths), parts, held, False))
        if not sets:
            return [()] * groups
        ranks = rank_numbers([one.parts for one in sets])
        if ranks is None:
            return None
        if self._largest:
            ranks = int(ranks.max()) - ranks
        numbers = np.concatenate([one.numbers for one in sets])
        near = self._near(numbers, ranks, groups)
        texts = self._texts(sets, near)
        if texts is None:
            return None
        return self._cut(numbers[near], ranks[near], texts.to_list(), groups)  # type: ignore[arg-type]  # none is null

    def _near(self, numbers: Places, ranks: Ints, groups: int) -> Places:
        """The values that may be among the best, in ascending order; lower ranks are better. If there are more than ``k``,
        these tie with the last."""
        order = np.lexsort((ranks, numbers))
        sizes = np.bincount(numbers, minlength=groups)
        last = np.cumsum(sizes) - sizes + np.minimum(sizes, self._k) - 1  # of a group without values: not read
        worst = ranks[order[last]]
        return np.flatnonzero(ranks <= worst[numbers])

    def _texts(self, sets: list[_Ranked], places: Places) -> BytesColumn | None:
        """The texts of values by their places in all sets."""
        found: list[BytesColumn] = []
        begin = 0
        for one in sets:
            own = places[(places >= begin) & (places < begin + len(one.numbers))] - begin
            begin += len(one.numbers)
            chosen: Column | None = one.values.take(own)
            if one.sure and len(own):
                chosen = self._written.of_column(chosen)
            if len(own):
                if not isinstance(chosen, BytesColumn):
                    return None
                found.append(chosen)
        whole = joined(found)
        assert isinstance(whole, BytesColumn)
        return whole

    def _cut(self, numbers: Places, ranks: Ints, texts: list[bytes], groups: int) -> list[Best]:
        order = np.lexsort((ranks, numbers))
        placed, following = order[:-1], order[1:]
        same = (numbers[placed] == numbers[following]) & (ranks[placed] == ranks[following])
        if same.any():  # then their bytes decide
            tied = np.union1d(placed[same], following[same])
            by_bytes = {text: n for n, text in enumerate(sorted({texts[i] for i in tied.tolist()}))}
            behind = np.zeros(len(texts), np.int64)
            behind[tied] = [by_bytes[texts[i]] for i in tied.tolist()]
            order = np.lexsort((behind, ranks, numbers))
        ends = np.cumsum(np.bincount(numbers, minlength=groups)).tolist()
        listed, begin = [texts[i] for i in order.tolist()], 0
        out: list[Best] = []
        for end in ends:
            out.append(tuple(listed[begin : end if self._ties else min(end, begin + self._k)]))
            begin = end
        return out


class BestPartialRows:
    """Merges partials, which are accumulators themselves, a batch at once. Smaller batches, and those of which a rank is
    uncertain, are left to ``rows``. With ``olds`` it also returns the aggregates before it."""

    runs_functions = True

    def __init__(self, state: KeyValueStoreView, best: BestTexts, rows: RowFold, *, olds: bool) -> None:
        self._state = state
        self._best = best
        self._rows = rows
        self._olds = olds

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes | None:
        if len(batch) < FEWEST:
            return self._rows.fold(port, batch, store_keys, failed)
        index = {key: number for number, key in enumerate(dict.fromkeys(store_keys))}
        before = list(map(self._state.entries.__getitem__, index))
        numbers = list(map(index.__getitem__, store_keys))
        try:
            accs = [() if entry is None else entry[0] for entry in before]
            new = self._best.merged([*range(len(index)), *numbers], [*accs, *batch.values])
        except Exception:  # raised again at its record
            new = None
        if new is None:
            return self._rows.fold(port, batch, store_keys, failed)
        latest = [NO_TIME if entry is None else entry[1] for entry in before]
        for number, ts in zip(numbers, batch.timestamps, strict=True):
            latest[number] = max(latest[number], ts)
        self._state.entries.update(zip(index, zip(new, latest, strict=True), strict=True))
        olds = [None if before[n] is None else before[n][0] for n in numbers] if self._olds else None
        return Changes(None, [new[n] for n in numbers], [latest[n] for n in numbers], olds)
