"""Folding aggregate expressions by columns where every update is shown: the results of all records are columns, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, NumberColumn, StructColumn
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.counts import times_so_far
from penstock.topologies.operators.aggregates.folds.parts import OpenDistinct, put_accumulators
from penstock.topologies.operators.aggregates.folds.strategy import OutKeys, Touched
from penstock.topologies.operators.columnar.folding import DISTINCT, PartColumnsOf
from penstock.topologies.operators.columnar.hopping import spread_batch, spread_columns
from penstock.topologies.operators.columnar.members import DistinctColumns
from penstock.topologies.operators.columnar.running import Running, running, running_distinct, why_not_running
from penstock.topologies.operators.columnar.stateless import ColumnarStep, values_of


def why_no_updates(fold: Fold) -> str | None:
    """Why the updates of aggregate expressions are shown row by row."""
    shown = fold.result_of_parts
    if shown is None or values_of(shown) is None:
        return "it emits every update, which a function computes"
    return why_not_running(fold.parts)


class PartUpdates:
    """Folds of aggregates that are tuples of their expressions' accumulators. ``show`` gets every update, with the keys that
    ``out_keys`` returns (``None``: the records' own), and with ``olds`` also what was shown before."""

    def __init__(
        self,
        state: KeyValueStoreView,
        fold: Fold,
        distinct: OpenDistinct | None,
        *,
        show: Callable[[Batch], None],
        out_keys: OutKeys | None,
        olds: bool,
    ) -> None:
        assert fold.init is not None and fold.result_of_parts is not None
        self._state = state
        self._parts = fold.parts
        self._distinct = distinct
        self._columns = PartColumnsOf(fold.parts)
        self._init = fold.init
        step = values_of(fold.result_of_parts)
        assert step is not None
        self._results: ColumnarStep = step
        self._names = DictOf(f"part{i}" for i in range(1, len(fold.parts) + 1))
        self._show = show
        self._out_keys = out_keys
        self._result = fold.result
        self._olds = olds

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        columns = self._columns.of(batch)
        if columns is None:
            return False
        places, found = touched.records()
        rows = batch
        if places is not None:
            columns, rows = spread_columns(columns, places), spread_batch(batch, places)
        self._state.load(found.store_keys)
        before = list(map(self._state.entries.__getitem__, found.store_keys))
        accs = [self._init() if e is None else e[0] for e in before]
        results: dict[str, Column] = {}
        new: list[list[Any]] = []
        distinct = None if self._distinct is None else self._distinct(found.store_keys, found.groups)
        for i, (name, part, column) in enumerate(zip(self._names.names, self._parts, columns, strict=True)):
            made = self._running(i, part, [acc[i] for acc in accs], found.groups, column, distinct)
            if made is None:
                return False
            results[name] = made.results
            new.append(made.accumulators)
        nothing = NumberColumn(rows.orders)
        shown = self._results.make(ColumnBatch(nothing, StructColumn(results, self._names), rows.times, rows.orders))
        if shown is None:
            return False
        try:
            olds = self._before(shown, found.groups, before) if self._olds else None
        except Exception:  # raised again at its record
            return False
        numbers = found.groups.numbers
        keys: list[Any] | Column | None = rows.key_column
        if self._out_keys is not None:
            keys = CodedColumn(numbers.astype("int32"), self._out_keys(found.store_keys, found.keys))
        assert keys is not None
        times = times_so_far(found.groups, rows.times, before)
        self._show(ColumnBatch(keys, shown, times, rows.orders, rows.headers, olds))
        put_accumulators(
            self._state, found.store_keys, list(zip(*new, strict=True)), touched.latest(batch.times), before
        )
        if distinct is not None:
            distinct.put()
        return True

    @staticmethod
    def _running(
        place: int,
        part: Part,
        accs: list[Any],
        groups: Groups,
        column: Column | None,
        distinct: DistinctColumns | None,
    ) -> Running | None:
        if distinct is None or column is None or part.function != DISTINCT:
            return running(part, accs, groups, column)
        fresh = distinct.fresh(place, part, column)
        return None if fresh is None else running_distinct(accs, groups, fresh)

    def _before(self, shown: Column, groups: Groups, before: list[Any]) -> list[Any]:
        """The updates that each one replaces: the one before it of the same entry, or what was stored."""
        by_group = np.argsort(groups.numbers, kind="stable")
        same = np.flatnonzero(np.diff(groups.numbers[by_group]) == 0)
        places, former = by_group[same + 1], by_group[same]
        olds: list[Any] = [None] * len(shown)
        for place, old in zip(places.tolist(), shown.take(former).to_list(), strict=True):
            olds[place] = old
        result = self._result
        for place, entry in zip(groups.firsts.tolist(), before, strict=True):
            if entry is not None:
                olds[place] = entry[0] if result is None else result(entry[0])
        return olds
