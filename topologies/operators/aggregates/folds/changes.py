"""Folding changes of a table's rows by columns: what a row was is taken back, and what it is now is added.

Aggregates are counts, sums and means of expressions. Used only if results and accumulators equal those of one change after
the other, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.change_columns import NEWS, OLDS, sides_of
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.kernels import Groups, summed_so_far
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Column, Ints, Mask, NumberColumn
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    FieldPath,
    InputMode,
    RequiredColumns,
    path_of,
)
from penstock.topologies.operators.aggregates.folds.counts import times_so_far
from penstock.topologies.operators.aggregates.folds.parts import put_accumulators
from penstock.topologies.operators.columnar.folding import PartColumnsOf, far_from_bounds
from penstock.topologies.operators.columnar.grouping import Entries
from penstock.topologies.operators.columnar.part_results import ShownParts, totals_shown
from penstock.topologies.operators.columnar.running import Running, integers, last_of, not_null
from penstock.topologies.operators.columnar.stateless import reads

ROWS = Part("count", None, "int64", None)
"""The number of rows."""
_TAKEN_BACK = ("count", "sum", "mean")


class ChangeParts(NamedTuple):
    """The aggregates of a regrouped table: ``parts``, and what is shown of them (``ShownParts``). ``single``: the
    accumulator is that of the only part, not a tuple."""

    parts: tuple[Part, ...]
    result: ExpressionFunction | None = None
    single: bool = False

    def input_mode(self) -> InputMode:
        """How changes are taken."""
        if not self.single and (why := ShownParts.why_not(self.result)) is not None:
            return InputMode(ALL_AS_ROWS, why)
        needs = RequiredColumns(key=True, fields=frozenset((NEWS, OLDS)))
        for part in self.parts:
            found = _why_not(part) or (RequiredColumns() if part.of is None else reads(part.of))
            if isinstance(found, str):
                return InputMode(ALL_AS_ROWS, found)
            needs |= RequiredColumns(value=found.value, fields=frozenset(_of_both(found.fields)))
        return InputMode(needs)


def _why_not(part: Part) -> str | None:
    if part.function not in _TAKEN_BACK:
        return f"{part.function}() takes back its values one by one"
    if part.function != "count" and part.kind != "int64":
        return f"{part.function}() of {part.kind} takes back its values one by one"
    return None if part.of is None or isinstance(part.of, ExpressionFunction) else "it is computed by a function"


def _of_both(fields: frozenset[FieldPath]) -> list[FieldPath]:
    """The fields of new rows and of old ones."""
    return [(side, *path_of(field)) for side in (NEWS, OLDS) for field in fields]


class Folded(NamedTuple):
    """Changes that were folded into entries. ``before``: the entries before them. ``shown``: the updates."""

    before: list[Any]
    shown: ColumnBatch


class ChangeFolds:
    """Folds changes into the entries of a store. ``olds``: updates have the results before them."""

    def __init__(self, state: KeyValueStoreView, of: ChangeParts, init: Callable[[], Any], *, olds: bool) -> None:
        self._state = state
        self._parts = of.parts
        self._single = of.single
        self._init = init
        self._olds = olds
        self._columns = PartColumnsOf(of.parts)
        self._shown = ShownParts(of.parts, of.result)

    def accumulators(self, aggregate: Any) -> Any:
        """The accumulators of the parts of an aggregate; ``None``: no aggregate."""
        return (aggregate,) if self._single and aggregate is not None else aggregate

    def fold(self, batch: ColumnBatch, found: Entries) -> Folded | None:
        """Fold changes, and mark what changed. ``None``: nothing was done."""
        sides = sides_of(batch.value_column)
        if sides is None:
            return None
        news, olds = (_Side.of(self._columns, batch, side) for side in sides)
        if news is None or olds is None:
            return None
        state, groups, store_keys = self._state, found.groups, found.store_keys
        state.load(store_keys)
        before = list(map(state.entries.__getitem__, store_keys))
        started = np.fromiter((e is not None for e in before), np.bool_, len(before))
        if (olds.there[groups.firsts] & ~started).any():  # nothing can be taken back of a group that is not there
            return None
        accs = [self.accumulators(self._init() if e is None else e[0]) for e in before]
        made: list[Running] = []
        for i, part in enumerate(self._parts):
            one = _changed(part, [acc[i] for acc in accs], groups, news.of_part(i), olds.of_part(i))
            if one is None:
                return None
            made.append(one)
        # results that nobody sees are computed, too: if one fails, rows fail
        shown = self._updates(batch, found, before, [one.results for one in made])
        if shown is None:
            return None
        new: list[Any] = (
            made[0].accumulators if self._single else list(zip(*(m.accumulators for m in made), strict=True))
        )
        put_accumulators(state, store_keys, new, found.latest(batch.times), before)
        return Folded(before, shown)

    def _updates(
        self, batch: ColumnBatch, found: Entries, before: list[Any], results: list[Column]
    ) -> ColumnBatch | None:
        olds: Column | None = None
        values: Column | None
        if self._olds:
            former = [None if e is None else self.accumulators(e[0]) for e in before]
            both = self._shown.with_olds(results, found.groups, former)
            values, olds = (None, None) if both is None else both
        else:
            values = self._shown.of(results)
        if values is None:
            return None
        times = times_so_far(found.groups, batch.times, before)
        keys = batch.keys if batch.key_column is None else batch.key_column
        return ColumnBatch(keys, values, times, batch.orders, batch.headers, olds)


class _Side(NamedTuple):
    """The new rows of changes, or the old ones: which are there, and the column of each part."""

    there: Mask
    columns: list[Column | None]

    @classmethod
    def of(cls, columns: PartColumnsOf, batch: ColumnBatch, side: Column) -> _Side | None:
        """``None``: row by row."""
        absent = nulls_of(side)
        made = columns.of(batch.replace(values=side), absent)
        here = np.ones(len(batch), np.bool_) if absent is None else ~absent
        return None if made is None else cls(here, made)

    def of_part(self, number: int) -> tuple[Ints, Column | None]:
        """1 for each row of which a part is counted, else 0, and its values."""
        column = self.columns[number]
        return (self.there.astype(np.int64) if column is None else not_null(column)), column


def _changed(
    part: Part,
    accs: list[Any],
    groups: Groups,
    news: tuple[Ints, Column | None],
    olds: tuple[Ints, Column | None],
) -> Running | None:
    """The results of a part after each change, and its accumulators after the last. ``None``: row by row."""
    added, taken = news[0], olds[0]
    if part.function == "count":
        counts = _running(accs, groups, added - taken)
        return Running(NumberColumn(counts), last_of(groups, counts).tolist())
    gained, lost = _numbers(news[1]), _numbers(olds[1])
    if gained is None or lost is None or any(len(acc) != 2 for acc in accs):
        return None
    before: Sequence[int] = [total for _, total in accs]
    if not far_from_bounds(list(before), np.concatenate((gained, lost))):
        return None
    counts = _running([n for n, _ in accs], groups, added - taken)
    totals = _running(before, groups, gained - lost)
    # where the last value is taken back, rows start from zero
    if ((taken == 1) & (counts == added) & (totals != gained)).any():
        return None
    results = totals_shown(part, counts, totals)
    if results is None:
        return None
    return Running(results, list(zip(last_of(groups, counts).tolist(), last_of(groups, totals).tolist(), strict=True)))


def _running(before: Sequence[int], groups: Groups, changes: Ints) -> Ints:
    return np.array(before, np.int64)[groups.numbers] + summed_so_far(groups, changes)


def _numbers(column: Column | None) -> Ints | None:
    found = None if column is None else integers(column)
    return None if found is None else found[0]
