"""Folding partial aggregates whose distinct members go into a store of their own, by columns: the compiled part reads the
members, and no partial becomes a collection of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.native import compiled
from penstock.state.serdes.tuple_lists import BAG, forms_with_bags
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.parts import put_accumulators
from penstock.topologies.operators.aggregates.folds.strategy import Touched
from penstock.topologies.operators.base.member_store import MemberStore


def merges_in_columns(fold: Fold) -> bool:
    """Whether a fold merges partials of aggregate expressions, some of which are distinct counts with their members
    apart."""
    return fold.partials and bool(fold.parts) and fold.distinct is not None


class PartialColumns:
    """Folds of such partials. What merges is asked about whole tuples, with any number in the place of a collection."""

    def __init__(self, state: KeyValueStoreView, fold: Fold, members: MemberStore) -> None:
        assert fold.init is not None and fold.distinct is not None
        self._state = state
        self._init = fold.init
        self._merge = fold.adders[0]
        self._members = members
        self._paths = fold.distinct.paths

    def fold(self, batch: ColumnBatch, touched: Touched) -> bool:
        column, native = batch.value_column, compiled()
        if native is None or not isinstance(column, EncodedColumn):
            return False
        forms = forms_with_bags(column.serde.lists)
        if forms is None or tuple((i,) for i in range(len(forms)) if forms[i : i + 1] == BAG) != self._paths:
            return False
        places, found = touched.records()
        raw = column.raw if places is None else column.raw.take(places)
        partials = raw.raw()[:2]
        fresh = self._members.fresh(partials, forms, found.store_keys, found.groups.numbers)
        tuples = None if fresh is None else native.read_partials(*partials, forms, np.ascontiguousarray(fresh))
        if fresh is None or tuples is None:
            return False
        state, init, merge, store_keys = self._state, self._init, self._merge, found.store_keys
        state.load(store_keys)
        before = list(map(state.entries.__getitem__, store_keys))
        new: list[Any] = [init() if entry is None else entry[0] for entry in before]
        try:
            for entry, partial in zip(found.groups.numbers.tolist(), tuples, strict=True):
                new[entry] = merge(None, partial, new[entry])
        except Exception:  # not swallowed: the rows meet it again
            return False
        sums = np.zeros((len(store_keys), fresh.shape[1]), np.int64)
        np.add.at(sums, found.groups.numbers, fresh)
        for entry, counts in enumerate(sums.tolist()):
            new[entry] = self._with_counts(new[entry], counts)
        self._members.keep()
        put_accumulators(state, store_keys, new, touched.latest(batch.times), before)
        return True

    def _with_counts(self, acc: tuple[Any, ...], counts: list[int]) -> tuple[Any, ...]:
        parts = list(acc)
        for (place,), more in zip(self._paths, counts, strict=True):
            parts[place] += more
        return tuple(parts)
