"""Distinct values of a batch of columns that are members of a store of their own: each is looked up once per batch and
entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from penstock.topologies.aggregators.base import Part
from penstock.topologies.aggregators.members_apart import CountPath
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.columnar.kernels import Groups, grouped
from penstock.topologies.operator_api.columns import CodedColumn, Column, Ints, NumberColumn
from penstock.topologies.operators.base.member_store import MemberStore, numbered

_FAR = 1 << 62


class _Coded(NamedTuple):
    """The values that are not null as numbers from 0 to ``size - 1``, and what gives the members of numbers."""

    codes: Ints
    size: int
    members: Callable[[list[int]], list[bytes]]


class DistinctColumns:
    """The distinct counts of one operator for one batch. Nothing is put before ``put``, so that the batch can still be left
    to the rows. ``paths``: the counts' places among the aggregates, which are parts of one tuple."""

    def __init__(
        self, store: MemberStore, paths: tuple[CountPath, ...], store_keys: list[bytes], groups: Groups
    ) -> None:
        self._store = store
        self._numbers = {path[0]: number for number, path in enumerate(paths)}
        self._heads = list(map(store.head, store_keys))
        self._groups = groups
        self._new: list[tuple[int, int, bytes]] = []
        """Row, number of the count, and key of each new member."""

    def fresh(self, place: int, part: Part, column: Column) -> Ints | None:
        """1 for each row whose value is new in its entry, else 0, for the aggregate at a place. ``None``: row by row."""
        groups, number, nulls = self._groups, self._numbers[place], nulls_of(column)
        rows = np.arange(len(column)) if nulls is None else np.flatnonzero(~nulls)
        fresh = np.zeros(len(column), np.int64)
        if not len(rows):
            return fresh
        try:
            coded = _coded(part, column if nulls is None else column.take(rows), len(groups.codes))
            if coded is None:
                return None
            pairs = grouped(groups.numbers[rows] * coded.size + coded.codes, len(groups.codes) * coded.size)
            of_groups, codes = np.divmod(pairs.codes, coded.size)
            members = coded.members(codes.tolist())
        except Exception:  # not swallowed: the rows meet it again
            return None
        heads, middle = self._heads, numbered(number)
        keys = [heads[group] + middle + member for group, member in zip(of_groups.tolist(), members, strict=True)]
        firsts: dict[bytes, int] = {}
        for key, row in zip(keys, rows[pairs.firsts].tolist(), strict=True):
            firsts.setdefault(key, row)  # several codes may stand for one value
        absent = self._store.absent(list(firsts))
        new = [(row, number, key) for (key, row), is_new in zip(firsts.items(), absent, strict=True) if is_new]
        self._new += new
        fresh[[row for row, _, _ in new]] = 1
        return fresh

    def put(self) -> None:
        """Add what was new, in the order of the records."""
        self._store.put(key for _, _, key in sorted(self._new))


def _coded(part: Part, column: Column, groups: int) -> _Coded | None:
    """The values of a column without nulls. Raises what a value raises that cannot be kept."""
    prepare = part.prepare
    assert prepare is not None
    if isinstance(column, NumberColumn) and column.array.dtype == np.int64:
        low, high = int(column.array.min()), int(column.array.max())
        size = high - low + 1
        if groups * size < _FAR:
            return _Coded(column.array - low, size, lambda codes: [prepare(low + code) for code in codes])
    if isinstance(column, CodedColumn):
        values = column.values
        if groups * len(values) >= _FAR:
            return None
        return _Coded(column.codes.astype(np.int64), len(values), lambda codes: [prepare(values[c]) for c in codes])
    index: dict[bytes, int] = {}
    codes = [index.setdefault(data, len(index)) for data in map(prepare, column.to_list())]
    found = list(index)
    return _Coded(np.array(codes, np.int64), len(found), lambda codes: [found[c] for c in codes])
