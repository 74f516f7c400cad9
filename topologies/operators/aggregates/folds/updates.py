"""Folding aggregate expressions by columns where every update is shown: the results of all records are columns, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.counts import times_so_far
from penstock.topologies.operators.aggregates.folds.parts import OpenDistinct, put_accumulators
from penstock.topologies.operators.aggregates.folds.strategy import OutKeys, Touched
from penstock.topologies.operators.columnar.folding import DISTINCT, PartColumnsOf
from penstock.topologies.operators.columnar.hopping import spread_batch, spread_columns
from penstock.topologies.operators.columnar.members import DistinctColumns
from penstock.topologies.operators.columnar.part_results import ShownParts
from penstock.topologies.operators.columnar.running import Running, running, running_distinct, why_not_running
from penstock.topologies.operators.columnar.stateless import values_of


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
        self._shown = ShownParts(fold.parts, fold.result_of_parts)
        self._show = show
        self._out_keys = out_keys
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
        results: list[Column] = []
        new: list[list[Any]] = []
        distinct = None if self._distinct is None else self._distinct(found.store_keys, found.groups)
        for i, (part, column) in enumerate(zip(self._parts, columns, strict=True)):
            made = self._running(i, part, [acc[i] for acc in accs], found.groups, column, distinct)
            if made is None:
                return False
            results.append(made.results)
            new.append(made.accumulators)
        olds: Column | None = None
        if self._olds:
            both = self._shown.with_olds(results, found.groups, [None if e is None else e[0] for e in before])
            shown, olds = (None, None) if both is None else both
        else:
            shown = self._shown.of(results)
        if shown is None:
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
