"""The stream–table join on columns: each distinct key is serialized and looked up once.

An inner join drops records without a row first. A joiner that is an expression of the row alone is run
once per distinct key; any other gets the rows of the records that have met one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import keyed, nulls_of
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Input, walk
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, Column, Places

_PLAIN = {str, bytes, int, float, bool, type(None)}
"""Types whose objects many records may share."""
_KEPT_MAX = 20_000
_REPEATED = 4
"""Fewer records per key are not worth keeping what was made for the next batch."""


class Met(NamedTuple):
    """Records that have met rows. ``entries[numbers[i]]`` is the store's entry for the i-th, ``None`` without one, and
    ``store_keys`` has its key."""

    batch: Batch
    numbers: Places
    store_keys: list[bytes]
    entries: list[Any]


def meet(
    batch: ColumnBatch, state: KeyValueStoreView, serde: Serde[Any], *, left: bool, keys: Column | None = None
) -> Met | None:
    """The rows of a batch's records; without ``left`` only records that have one. ``keys``: of the rows, if they are not
    those of the records. ``None``: row by row."""
    column = batch.key_column if keys is None else keys
    if column is None or nulls_of(column) is not None:
        return None
    found = keyed(column, serde)
    if found is None:
        return None
    state.load(found.store_keys)
    entries = list(map(state.entries.__getitem__, found.store_keys))
    numbers = found.groups.numbers
    if left or None not in entries:
        return Met(batch, numbers, found.store_keys, entries)
    places = np.flatnonzero(np.fromiter((e is not None for e in entries), np.bool_, len(entries))[numbers])
    return Met(batch.pick(places), numbers[places], found.store_keys, entries)


def reading_row_alone(joiner: Callable[[Any, Any], Any]) -> ExpressionFunction | None:
    """The joiner, if it is an expression of the table's side only."""
    if not isinstance(joiner, ExpressionFunction):
        return None
    sides = {n.which for n in walk(joiner.expression) if isinstance(n, Input)}
    return joiner if sides <= {"right"} else None


class PerKey:
    """A joiner that reads the table's side alone, run once per distinct key. Where keys come again in a batch, what it has
    made of an entry is kept as long as the store's view has the very same entry. ``shared``: many records may have the same
    object, whatever it is."""

    def __init__(
        self, joiner: ExpressionFunction, rows: Callable[[list[Any]], list[Any]], *, left: bool, shared: bool = False
    ) -> None:
        self._run = joiner.plain
        self._rows = rows
        self._left = left
        self._shared = shared
        is_row = isinstance(joiner.expression, Input) and joiner.scope.right is not None
        self._row_type = joiner.scope.right.python if is_row and joiner.scope.right is not None else None
        """The class whose instances the joiner returns unchanged."""
        self._seen: dict[bytes, Any] = {}
        self._made: dict[bytes, Any] = {}
        """By key, the entry that was seen last and what was made of it; in two dictionaries, so that a batch of known
        entries runs without a loop in Python."""

    def column(self, met: Met) -> CodedColumn | None:
        """The joiner's results for the records' rows. ``None``: row by row, also when it fails for a row."""
        often = len(met.store_keys) * _REPEATED < len(met.batch)
        results = self._kept(met) if often else self._of(met.entries)
        return None if results is None else CodedColumn(met.numbers.astype(np.int32), results)

    def joined(self, met: Met) -> Batch | None:
        """The records with that."""
        column = self.column(met)
        return None if column is None else met.batch.replace(values=column)

    def _of(self, entries: list[Any]) -> list[Any] | None:
        rows = self._rows(entries)
        if self._shared and self._row_type is not None and set(map(type, rows)) <= {self._row_type, type(None)}:
            return rows
        run = self._run
        try:
            results = [None if row is None and not self._left else run(None, row) for row in rows]
        except Exception:  # raised again at its record
            return None
        return results if self._shared or set(map(type, results)) <= _PLAIN else None

    def _kept(self, met: Met) -> list[Any] | None:
        seen, made, keys, entries = self._seen, self._made, met.store_keys, met.entries
        before = map(seen.get, keys, repeat(self))  # nothing else is this object, so an unknown key differs
        if not all(map(is_, before, entries)):
            missing = [i for i, key in enumerate(keys) if seen.get(key, self) is not entries[i]]
            new = self._of([entries[i] for i in missing])
            if new is None:
                return None
            results = list(map(made.get, keys))
            for i, result in zip(missing, new, strict=True):
                results[i] = result
            if len(made) > _KEPT_MAX:
                seen.clear()
                made.clear()
            for i, result in zip(missing, new, strict=True):
                seen[keys[i]], made[keys[i]] = entries[i], result
            return results
        results = list(map(made.__getitem__, keys))
        return results
