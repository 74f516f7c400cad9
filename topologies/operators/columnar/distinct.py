"""Distinct values of a batch of columns, added to the bags of their entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.kernels import Groups
from penstock.topologies.operator_api.columns import CodedColumn, Column, NumberColumn


def added(part: Part, bags: list[Bag], groups: Groups, column: Column) -> list[Bag] | None:
    """The bags with the values of their groups that are not null. ``None``: row by row."""
    data = _prepared(part, column)
    if data is None:
        return None
    rows = np.array([i for i, value in enumerate(data) if value is not None], np.intp)
    numbers = groups.numbers[rows]
    rows = rows[np.argsort(numbers, kind="stable")]
    ends: list[int] = np.cumsum(np.bincount(numbers, minlength=len(bags))).tolist()
    values: list[Any] = list(map(data.__getitem__, rows.tolist()))
    after, start = list(bags), 0
    for number, end in enumerate(ends):
        if end > start:
            after[number] = bags[number].added(values[start:end])
        start = end
    return after


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
