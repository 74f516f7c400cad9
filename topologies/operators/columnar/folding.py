"""Aggregate expressions on columns: the values of each aggregate as an array, folded into the accumulators of their
entries.

Used only if the result equals that of one record after the other, to the bit: integers far from the bounds of 64
bits, sums of finite floats added in record order to the accumulator, extremes of texts, and of floats without NaN and
zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, Mask, NumberColumn, Places
from penstock.topologies.operators.columnar.distinct import ValueColumns, added
from penstock.topologies.operators.columnar.members import DistinctColumns

DISTINCT = "count_distinct"
_SAFE = float(1 << 62)
Values = tuple[NDArray[Any], Places]
"""The values that are not null, and the group of each."""


class PartColumnsOf:
    """The columns of the aggregates of one operator."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._vectors = [None if p.of is None else Vectors.of(p.of) for p in parts]

    def of(self, batch: Batch, absent: Mask | None = None) -> list[Column | None] | None:
        """The column of each aggregate; ``None`` in it: of the records. Those that are ``absent`` are not evaluated, and
        null. ``None``: row by row."""
        out: list[Column | None] = []
        for vectors in self._vectors:
            column = None if vectors is None else vectors.column(batch, absent)
            if vectors is not None and column is None:
                return None
            out.append(column)
        return out


class PartFolds:
    """The aggregates of one operator; the accumulator is the tuple of theirs."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        self._columns = PartColumnsOf(parts)

    @classmethod
    def of(cls, parts: Sequence[Part] | None) -> PartFolds | None:
        """``None`` where one of the aggregates cannot be folded so."""
        if not parts or any(why_not(p) is not None for p in parts):
            return None
        return cls(parts)

    def columns(self, batch: ColumnBatch) -> list[Column | None] | None:
        """See ``PartColumnsOf``."""
        return self._columns.of(batch)

    def folded(
        self,
        before: list[tuple[Any, ...]],
        groups: Groups,
        columns: list[Column | None],
        distinct: DistinctColumns | ValueColumns | None,
    ) -> list[tuple[Any, ...]] | None:
        """The accumulators of each group after a batch. ``distinct``: where the values of distinct counts go; ``None``: into
        the accumulators. ``None``: row by row."""
        made: list[list[Any]] = []
        for i, (part, column) in enumerate(zip(self._parts, columns, strict=True)):
            accs = [acc[i] for acc in before]
            new: list[Any] | None
            if column is None:
                new = _counted(accs, groups.numbers)
            elif part.function == DISTINCT and isinstance(distinct, ValueColumns):
                new = accs if distinct.take(i, part, groups, column) else None
            elif part.function == DISTINCT and isinstance(distinct, DistinctColumns):
                fresh = distinct.fresh(i, part, column)
                new = None if fresh is None else _counted(accs, groups.numbers[fresh == 1])
            elif part.function == DISTINCT:
                new = added(part, accs, groups, column)
            elif part.function in _OF_TEXTS and isinstance(column, CodedColumn) and _are_texts(column):
                new = _text_extreme(accs, groups, column, part)
            else:
                values = _present(column, groups) if part.function == "count" else _values(column, groups)
                new = None if values is None else _FOLDS[part.function](accs, *values, part)
            if new is None:
                return None
            made.append(new)
        return list(zip(*made, strict=True))


def why_not(part: Part) -> str | None:
    """Why an aggregate is folded row by row."""
    if part.function not in _FOLDS and part.function != DISTINCT:
        return f"{part.function}() takes its records one by one"
    return None if part.of is None or isinstance(part.of, ExpressionFunction) else "it is computed by a function"


def whole_numbers(column: Column) -> tuple[NDArray[np.int64], Mask | None] | None:
    """Whole numbers of 64 bits, and where they are null. ``None``: there are other values."""
    if isinstance(column, NumberColumn):
        return (column.array, column.nulls) if column.array.dtype == np.int64 else None
    if not isinstance(column, CodedColumn):
        return None
    kinds = set(map(type, column.values)) - {type(None)}
    if kinds and kinds != {int}:
        return None
    absent = np.array([v is None for v in column.values], np.bool_)[column.codes]
    try:
        array = np.array([v or 0 for v in column.values], np.int64)[column.codes]
    except OverflowError:
        return None
    return array, absent if absent.any() else None


def _present(column: Column, groups: Groups) -> Values:
    nulls = nulls_of(column)
    numbers = groups.numbers if nulls is None else groups.numbers[~nulls]
    return numbers, numbers


def _values(column: Column, groups: Groups) -> Values | None:
    if isinstance(column, CodedColumn):
        found = whole_numbers(column)
        if found is None:
            return None
        array, absent = found
        return (array, groups.numbers) if absent is None else (array[~absent], groups.numbers[~absent])
    if not isinstance(column, NumberColumn):
        return None
    if column.nulls is None:
        return column.array, groups.numbers
    return column.array[~column.nulls], groups.numbers[~column.nulls]


def _counted(accs: list[Any], numbers: Places) -> list[Any]:
    return [a + n for a, n in zip(accs, np.bincount(numbers, minlength=len(accs)).tolist(), strict=True)]


def _count(accs: list[Any], array: NDArray[Any], numbers: Places, part: Part) -> list[Any]:
    return _counted(accs, numbers)


def _total(accs: list[Any], array: NDArray[Any], numbers: Places, part: Part) -> list[Any] | None:
    """Folds ``(count, sum)``, of finite numbers alone."""
    if any(len(acc) != 2 for acc in accs):
        return None
    totals = [total for _, total in accs]
    if part.kind == "int64" and array.dtype == np.int64:
        if not far_from_bounds(totals, array):
            return None
        sums = np.array(totals, np.int64)
    elif part.kind == "float64" and array.dtype == np.float64 and all(type(t) is float for t in totals):
        if not np.isfinite(array).all():
            return None
        sums = np.array(totals, np.float64)
    else:
        return None
    with np.errstate(all="ignore"):  # an infinite sum is what the rows have too, and they say nothing of it
        np.add.at(sums, numbers, array)  # one after the other
    counts = np.bincount(numbers, minlength=len(accs)).tolist()
    return [(acc[0] + n, s) if n else acc for acc, n, s in zip(accs, counts, sums.tolist(), strict=True)]


def far_from_bounds(totals: list[int], array: NDArray[Any]) -> bool:
    """Whether no sum on the way can leave the bounds of 64 bits."""
    most = 0.0 if not len(array) else max(abs(float(array.max())), abs(float(array.min()))) * len(array)
    return most < _SAFE and all(type(t) is int and abs(t) < _SAFE for t in totals)


def _extreme(best_at: Callable[..., None]) -> Callable[..., list[Any] | None]:
    def fold(accs: list[Any], array: NDArray[Any], numbers: Places, part: Part) -> list[Any] | None:
        """Folds ``()`` or ``(value,)``."""
        if array.dtype == np.float64:
            if bool((np.isnan(array) | (array == 0)).any()):
                return None
        elif array.dtype != np.int64:
            return None
        if part.kind not in ("int64", "float64"):
            return None
        best = np.zeros(len(accs), array.dtype)
        seen: Mask = np.zeros(len(accs), np.bool_)
        best[numbers[::-1]] = array[::-1]  # any of each group's, to begin with
        seen[numbers] = True
        best_at(best, numbers, array)
        assert part.merge is not None
        merge, found = part.merge, zip(accs, seen.tolist(), best.tolist(), strict=True)
        return [merge(acc, (x,)) if there else acc for acc, there, x in found]

    return fold


def _are_texts(column: CodedColumn) -> bool:
    kinds = set(map(type, column.values))
    return str in kinds and kinds <= {str, type(None)}


def _text_extreme(accs: list[Any], groups: Groups, column: CodedColumn, part: Part) -> list[Any] | None:
    """Folds ``()`` or ``(text,)``, by the places of the batch's texts in their order."""
    if any(acc and type(acc[0]) is not str for acc in accs):
        return None
    used: list[int] = np.unique(column.codes).tolist()
    texts = sorted({text for code in used if (text := column.values[code]) is not None})
    places = {text: place for place, text in enumerate(texts)}
    of_codes = np.full(len(column.values), -1, np.intp)
    of_codes[used] = [places.get(column.values[code], -1) for code in used]
    of_rows = of_codes[column.codes]
    present = of_rows >= 0
    start, best_at = _OF_TEXTS[part.function]
    best = np.full(len(accs), start, np.intp)
    best_at(best, groups.numbers[present], of_rows[present])
    assert part.merge is not None
    merge, found = part.merge, zip(accs, best.tolist(), strict=True)
    return [acc if place == start else merge(acc, (texts[place],)) for acc, place in found]


_OF_TEXTS: dict[str, tuple[int, Callable[..., None]]] = {
    "min": (np.iinfo(np.intp).max, np.minimum.at),
    "max": (-1, np.maximum.at),
}
"""A place that no text has and that every text is better than, and what puts the better place of each group."""
_FOLDS: dict[str, Callable[..., list[Any] | None]] = {
    "count": _count,
    "sum": _total,
    "mean": _total,
    "min": _extreme(np.minimum.at),
    "max": _extreme(np.maximum.at),
}
