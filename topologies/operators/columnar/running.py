"""Aggregate expressions on columns where every update is shown: for each record, the results of its entry so far.

Used only if results and accumulators equal those of one record after the other, to the bit: integers far from the bounds of
64 bits, texts, and distinct values; sums and extremes of floats are left to the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Groups, counted_so_far, highest_so_far, summed_so_far
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints, Mask, NumberColumn
from penstock.topologies.operators.columnar.folding import DISTINCT, far_from_bounds
from penstock.topologies.operators.columnar.part_results import totals_shown

_LOWEST = -(1 << 63)


class Running(NamedTuple):
    """The results of one aggregate after each record, and the accumulators of the entries after the last."""

    results: Column
    accumulators: list[Any]


def why_not_running(parts: Sequence[Part]) -> str | None:
    """Why the aggregates of an operator are shown row by row."""
    for part in parts:
        if (part.function not in _RUNNING and part.function != DISTINCT) or (
            part.function in ("sum", "mean", "min", "max") and part.kind not in _KINDS
        ):
            return f"it emits every update, and {part.function}() of {part.kind} is computed one by one"
        if part.of is not None and not isinstance(part.of, ExpressionFunction):
            return "it emits every update, which a function computes"
    return None


_KINDS = ("int64", "string")


def running(part: Part, accs: list[Any], groups: Groups, column: Column | None) -> Running | None:
    """One aggregate of a batch. ``accs``: the accumulators before it, by group; ``column``: of its values (``None``: of the
    records). ``None``: row by row."""
    if column is None:
        return _records(accs, groups)
    return _RUNNING[part.function](part, accs, groups, column)


def _records(accs: list[int], groups: Groups) -> Running:
    counts = np.array(accs, np.int64)[groups.numbers] + counted_so_far(groups)
    return Running(NumberColumn(counts), last_of(groups, counts).tolist())


def last_of(groups: Groups, values: Ints) -> Ints:
    """Each group's last value."""
    last = np.empty(len(groups.codes), np.intp)
    last[groups.numbers] = np.arange(len(values))
    return values[last]


def not_null(column: Column) -> Ints:
    """1 for each row that is not null, else 0."""
    nulls = nulls_of(column)
    return np.ones(len(column), np.int64) if nulls is None else (~nulls).astype(np.int64)


def _count(part: Part, accs: list[int], groups: Groups, column: Column) -> Running:
    counts = np.array(accs, np.int64)[groups.numbers] + summed_so_far(groups, not_null(column))
    return Running(NumberColumn(counts), last_of(groups, counts).tolist())


def integers(column: Column) -> tuple[Ints, Mask | None] | None:
    """The values, 0 for nulls, and the nulls."""
    if isinstance(column, CodedColumn):
        if any(type(v) is not int and v is not None for v in column.values):
            return None
        try:
            return np.array([v or 0 for v in column.values], np.int64)[column.codes], nulls_of(column)
        except OverflowError:
            return None
    if not isinstance(column, NumberColumn) or column.array.dtype != np.int64:
        return None
    return (column.array if column.nulls is None else np.where(column.nulls, 0, column.array)), nulls_of(column)


def _total(part: Part, accs: list[tuple[Any, ...]], groups: Groups, column: Column) -> Running | None:
    """Running ``(count, sum)`` of finite numbers."""
    found = integers(column)
    if found is None or any(len(acc) != 2 for acc in accs):
        return None
    before = [total for _, total in accs]
    if part.kind != "int64" or not far_from_bounds(before, found[0]):
        return None
    counts = np.array([n for n, _ in accs], np.int64)[groups.numbers] + summed_so_far(groups, not_null(column))
    totals = np.array(before, np.int64)[groups.numbers] + summed_so_far(groups, found[0])
    results = totals_shown(part, counts, totals)
    if results is None:
        return None
    new = zip(last_of(groups, counts).tolist(), last_of(groups, totals).tolist(), strict=True)
    return Running(results, [acc if n == acc[0] else (n, total) for acc, (n, total) in zip(accs, new, strict=True)])


def _nulls(nulls: Mask) -> Mask | None:
    return nulls if nulls.any() else None


def _extreme(part: Part, accs: list[tuple[Any, ...]], groups: Groups, column: Column) -> Running | None:
    """Running ``()`` or ``(value,)``."""
    sign = 1 if part.function == "max" else -1
    if part.kind == "string":
        return _extreme_text(sign, accs, groups, column)
    found = integers(column)
    before = [acc[0] if acc else 0 for acc in accs]
    if found is None or any(type(v) is not int or not _LOWEST < v < -_LOWEST for v in before):
        return None
    values = found[0]
    if len(values) and int(values.min()) == _LOWEST:
        return None
    best, seen = _best(groups, sign * values, not_null(column), sign * np.array(before, np.int64), accs)
    best = sign * best
    last, there = last_of(groups, best).tolist(), last_of(groups, seen).tolist()
    return Running(NumberColumn(best, _nulls(seen == 0)), _changed(accs, last, there))


def _extreme_text(sign: int, accs: list[tuple[Any, ...]], groups: Groups, column: Column) -> Running | None:
    if isinstance(column, EncodedColumn):
        column = CodedColumn.of(column.to_list())
    if not isinstance(column, CodedColumn):
        return None
    known = {acc[0] for acc in accs if acc} | set(column.values)
    known.discard(None)
    if any(type(text) is not str for text in known):
        return None
    texts = sorted(known)
    ranks = {text: sign * rank for rank, text in enumerate(texts)}
    values = np.array([ranks.get(text, 0) for text in column.values], np.int64)[column.codes]
    before = np.array([ranks[acc[0]] if acc else 0 for acc in accs], np.int64)
    best, seen = _best(groups, values, not_null(column), before, accs)
    best = np.where(seen == 0, len(texts), sign * best)
    last, there = last_of(groups, best).tolist(), last_of(groups, seen).tolist()
    texts_or_null = [*texts, None]
    return Running(
        CodedColumn(best.astype(np.int32), texts_or_null), _changed(accs, [texts_or_null[i] for i in last], there)
    )


def _best(groups: Groups, values: Ints, present: Ints, before: Ints, accs: list[tuple[Any, ...]]) -> tuple[Ints, Ints]:
    """The highest value so far, and how many there were, for each row."""
    seen = np.array([len(acc) for acc in accs], np.int64)[groups.numbers] + summed_so_far(groups, present)
    best = highest_so_far(groups, np.where(present == 0, _LOWEST, values))
    started = np.array([bool(acc) for acc in accs], np.bool_)[groups.numbers]
    return np.where(started, np.maximum(best, before[groups.numbers]), best), seen


def _changed(accs: list[tuple[Any, ...]], values: list[Any], there: list[int]) -> list[tuple[Any, ...]]:
    return [(value,) if n else acc for acc, value, n in zip(accs, values, there, strict=True)]


def running_distinct(accs: list[int], groups: Groups, fresh: Ints) -> Running:
    """Counts of distinct values. ``fresh``: 1 for each row whose value its entry did not have before, else 0."""
    counts = np.array(accs, np.int64)[groups.numbers] + summed_so_far(groups, fresh)
    return Running(NumberColumn(counts), last_of(groups, counts).tolist())


_RUNNING: dict[str, Callable[[Part, list[Any], Groups, Column], Running | None]] = {
    "count": _count,
    "sum": _total,
    "mean": _total,
    "min": _extreme,
    "max": _extreme,
}
