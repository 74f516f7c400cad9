"""Results of aggregate expressions as columns: of accumulators, and what was shown before each update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import with_nulls
from penstock.topologies.columnar.json_writing import DictOf
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import (
    CodedColumn,
    Column,
    Mask,
    NumberColumn,
    StructColumn,
    joined,
)
from penstock.topologies.operators.columnar.folding import DISTINCT
from penstock.topologies.operators.columnar.stateless import ColumnarStep, values_of

EXACT_FLOAT = 1 << 53
"""Integers up to it are floats, too."""


class ShownParts:
    """Computes what is shown of aggregates of these parts. ``result``: it, as an expression over the results of the parts;
    ``None``: the result of the only part."""

    def __init__(self, parts: Sequence[Part], result: ExpressionFunction | None) -> None:
        self._parts = tuple(parts)
        self._names = DictOf(f"part{i}" for i in range(1, len(self._parts) + 1))
        self._step: ColumnarStep | None = None if result is None else values_of(result)
        self._plain = result is None

    @classmethod
    def why_not(cls, result: ExpressionFunction | None) -> str | None:
        """Why what is shown is computed row by row."""
        return "a function computes what it emits" if result is None or values_of(result) is None else None

    def of(self, results: Sequence[Column]) -> Column | None:
        """The values that are shown, of the results of the parts. ``None``: row by row, also where one raises."""
        if self._plain:
            (only,) = results
            return only
        if self._step is None:
            return None
        nowhere = np.zeros(len(results[0]), np.int64)
        struct = StructColumn(dict(zip(self._names.names, results, strict=True)), self._names)
        made: Column | None = self._step.make(ColumnBatch(NumberColumn(nowhere), struct, nowhere, nowhere))
        return made

    def of_accumulators(self, accumulators: Sequence[tuple[Any, ...] | None]) -> Column | None:
        """The values that are shown of these; null where there is none. ``None``: row by row."""
        there = [acc for acc in accumulators if acc is not None]
        if len(there) == len(accumulators):
            return self._of_all(there)
        absent = np.fromiter((acc is None for acc in accumulators), np.bool_, len(accumulators))
        if not there:
            return CodedColumn(np.zeros(len(absent), np.int32), [None])
        made = self._of_all(there)
        return None if made is None else with_nulls(made.take(np.maximum(np.cumsum(~absent) - 1, 0)), absent)

    def _of_all(self, accumulators: list[tuple[Any, ...]]) -> Column | None:
        results = results_of(self._parts, accumulators)
        return None if results is None else self.of(results)

    def with_olds(
        self, results: Sequence[Column], groups: Groups, before: Sequence[tuple[Any, ...] | None]
    ) -> tuple[Column, Column] | None:
        """The value that is shown after each record of these results, and the one before it: after the record of its group
        before it, or of the group's accumulator ``before`` the first, null where there was none. ``None``: row by row."""
        rows = len(groups.numbers)
        there = [acc for acc in before if acc is not None]
        former = results_of(self._parts, there) if there else None
        if former is not None:
            both = [joined([one, other]) for one, other in zip(results, former, strict=True)]
            results = [column for column in both if column is not None]
        if (former is None and there) or len(results) < len(self._parts):
            return None
        shown = self.of(results)
        if shown is None:
            return None
        absent = np.fromiter((acc is None for acc in before), np.bool_, len(before))
        at, nulls = former_rows(groups), np.zeros(rows, np.bool_)
        at[groups.firsts] = np.where(absent, 0, rows + np.cumsum(~absent) - 1)
        nulls[groups.firsts] = absent
        olds = with_nulls(shown.take(at), nulls)
        return None if olds is None else (shown.slice(0, rows), olds)


def former_rows(groups: Groups) -> Any:
    """For each row, the one of its group before it; 0 for the first of a group."""
    by_group = np.argsort(groups.numbers, kind="stable")
    same = np.flatnonzero(np.diff(groups.numbers[by_group]) == 0)
    out = np.zeros(len(groups.numbers), np.intp)
    out[by_group[same + 1]] = by_group[same]
    return out


def results_of(parts: Sequence[Part], accumulators: Sequence[tuple[Any, ...]]) -> list[Column] | None:
    """The result of each part of accumulators. ``None``: row by row."""
    out: list[Column] = []
    for part, accs in zip(parts, zip(*accumulators, strict=True), strict=True):
        try:
            made = _RESULTS[part.function](part, accs) if part.function in _RESULTS else None
        except OverflowError:
            return None
        if made is None:
            return None
        out.append(made)
    return out


def totals_shown(part: Part, counts: Any, totals: Any) -> Column | None:
    """The sums, or means, of numbers with these counts and totals; null where there are none. ``None``: row by row."""
    nulls: Mask = counts == 0
    absent = nulls if nulls.any() else None
    if part.function == "sum":
        return NumberColumn(totals, absent)
    if totals.dtype == np.int64 and len(totals) and int(np.abs(totals).max()) >= EXACT_FLOAT:
        return None
    return NumberColumn(totals / np.where(nulls, 1, counts), absent)


def _count(part: Part, accs: Sequence[Any]) -> Column | None:
    return NumberColumn(np.array(accs, np.int64)) if set(map(type, accs)) == {int} else None


def _total(part: Part, accs: Sequence[Any]) -> Column | None:
    if set(map(len, accs)) != {2}:
        return None
    counts, totals = zip(*accs, strict=True)
    kinds = set(map(type, totals))
    if kinds not in ({int}, {float}):
        return None
    return totals_shown(part, np.array(counts, np.int64), np.array(totals, np.int64 if kinds == {int} else np.float64))


def _extreme(part: Part, accs: Sequence[Any]) -> Column | None:
    values = [acc[0] for acc in accs if acc]
    kinds = set(map(type, values))
    if kinds == {str} or (not kinds and part.kind == "string"):
        return CodedColumn.of([acc[0] if acc else None for acc in accs])
    if kinds not in ({int}, {float}, set()) or any(len(acc) > 1 for acc in accs):
        return None
    nulls = np.fromiter((not acc for acc in accs), np.bool_, len(accs))
    array = np.array([acc[0] if acc else 0 for acc in accs], np.float64 if kinds == {float} else np.int64)
    return NumberColumn(array, nulls if nulls.any() else None)


_RESULTS = {"count": _count, DISTINCT: _count, "sum": _total, "mean": _total, "min": _extreme, "max": _extreme}
