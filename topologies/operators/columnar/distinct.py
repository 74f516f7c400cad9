"""Distinct values of a batch of columns, added to the bags of their entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.columns import CodedColumn, Codes, Column, Ints, NumberColumn, Places

_FAR = 1 << 62


class _Found(NamedTuple):
    """Distinct values by group, in the order of the groups, and how often each group has them."""

    numbers: Ints
    values: list[bytes]
    counts: list[int]


def added(part: Part, bags: list[Bag], groups: Groups, column: Column) -> list[Bag] | None:
    """The bags with the values of their groups that are not null. ``None``: row by row."""
    assert part.prepare is not None
    nulls = nulls_of(column)
    places = np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)
    try:
        found = _found(part.prepare, groups.numbers[places], column if nulls is None else column.take(places))
    except Exception:  # not swallowed: the rows meet it again
        return None
    after, start = list(bags), 0
    ends: list[int] = np.cumsum(np.bincount(found.numbers, minlength=len(bags))).tolist()
    for number, end in enumerate(ends):
        if end > start:
            after[number] = bags[number].added(found.values[start:end], found.counts[start:end])
        start = end
    return after


def _found(prepare: Callable[[Any], bytes], numbers: Places, column: Column) -> _Found:
    """The values, none of which is null, as a bag keeps them."""
    coded = column if isinstance(column, CodedColumn) else None
    if not len(column):
        return _Found(np.empty(0, np.int64), [], [])
    if coded is None and isinstance(column, NumberColumn) and column.array.dtype == np.int64:
        low, high = int(column.array.min()), int(column.array.max())
        span = high - low + 1
        if span * (int(numbers.max()) + 1) < _FAR:
            of_groups, codes, counts = _counted(numbers, column.array - low, span)
            return _Found(of_groups, list(map(prepare, (codes + low).tolist())), counts)
    if coded is None:
        coded = CodedColumn.of(column.to_list())
    texts = {code: prepare(coded.values[code]) for code in np.unique(coded.codes).tolist()}
    of_groups, codes, counts = _counted(numbers, _one_code(coded.codes, texts), len(coded.values))
    return _Found(of_groups, list(map(texts.__getitem__, codes.tolist())), counts)


def _one_code(codes: Codes, texts: dict[int, bytes]) -> Codes:
    """The codes, with one for each text: values that differ may be kept as the same."""
    firsts: dict[bytes, int] = {}
    for code, text in texts.items():
        firsts.setdefault(text, code)
    if len(firsts) == len(texts):
        return codes
    table = np.zeros(max(texts) + 1, np.int32)
    table[list(texts)] = [firsts[text] for text in texts.values()]
    return table[codes]


def _counted(numbers: Places, codes: Codes | Ints, bound: int) -> tuple[Ints, Ints, list[int]]:
    """The distinct pairs of a number and a code below ``bound``: their numbers, codes and counts."""
    pairs, counts = np.unique(numbers * bound + codes, return_counts=True)
    of_groups, of_values = np.divmod(pairs, bound)
    return of_groups, of_values, counts.tolist()
