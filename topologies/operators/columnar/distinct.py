"""Distinct values of a batch of columns, added to the bags of their entries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints, NumberColumn


class Added(NamedTuple):
    """The bags after the batch, and 1 for each row whose value its bag did not have before, else 0."""

    bags: list[Bag]
    fresh: Ints


def added(part: Part, bags: list[Bag], groups: Groups, column: Column) -> Added | None:
    """Add the values that are not null to the bags of their groups. ``None``: row by row."""
    data = _prepared(part, column)
    if data is None:
        return None
    rows = np.array([i for i, value in enumerate(data) if value is not None], np.intp)
    numbers = groups.numbers[rows]
    rows = rows[np.argsort(numbers, kind="stable")]
    ends: list[int] = np.cumsum(np.bincount(numbers, minlength=len(bags))).tolist()
    values: list[Any] = list(map(data.__getitem__, rows.tolist()))
    after, fresh, start = list(bags), np.zeros(len(data), np.int64), 0
    for number, end in enumerate(ends):
        if end > start:
            after[number], firsts = bags[number].added(values[start:end])
            fresh[rows[start:end]] = firsts
        start = end
    return Added(after, fresh)


def _prepared(part: Part, column: Column) -> list[bytes | None] | None:
    """The values as a bag keeps them."""
    prepare = part.prepare
    assert prepare is not None
    try:
        if isinstance(column, CodedColumn):
            once = [None if v is None else prepare(v) for v in column.values]
            return list(map(once.__getitem__, column.codes.tolist()))
        values = column.to_list()
        if isinstance(column, NumberColumn) and column.array.dtype == np.int64:
            known = {v: None if v is None else prepare(v) for v in set(values)}
            return list(map(known.__getitem__, values))
        return [None if v is None else prepare(v) for v in values]
    except Exception:  # not swallowed: the rows meet it again
        return None
