"""Which strategies an aggregation folds by: chosen once, when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.state.serdes.serde import Serde
from penstock.state.stores.count_store import CountStoreView
from penstock.state.stores.latest_view import LatestStoreView
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.best_texts import BestPartialRows, BestTexts
from penstock.topologies.operators.aggregates.folds.counts import CountColumns, CountRows, TallyColumns
from penstock.topologies.operators.aggregates.folds.kept import LatestColumns, keeping_fold
from penstock.topologies.operators.aggregates.folds.latest import HeldLatest
from penstock.topologies.operators.aggregates.folds.members import MemberRows
from penstock.topologies.operators.aggregates.folds.partials import PartialColumns, merges_in_columns
from penstock.topologies.operators.aggregates.folds.parts import PartColumns
from penstock.topologies.operators.aggregates.folds.rows import DecodingRows, ImmutableRows
from penstock.topologies.operators.aggregates.folds.strategy import ColumnFold, HeldFold, OutKeys, RowFold
from penstock.topologies.operators.aggregates.folds.updates import PartUpdates, why_no_updates
from penstock.topologies.operators.base.member_store import MemberStore
from penstock.topologies.operators.columnar.folding import PartFolds
from penstock.topologies.operators.columnar.members import DistinctColumns


def row_fold(
    state: KeyValueStoreView, fold: Fold, *, members: MemberStore | None = None, updates: bool, olds: bool
) -> RowFold:
    """How records are folded one by one. ``members``: where those of distinct counts are kept apart; ``updates``: each
    new aggregate is wanted; ``olds``: and the one before it."""
    if members is not None:
        return MemberRows(state, fold, members, olds=olds)
    if not state.immutable:
        return DecodingRows(state, fold, olds=olds)
    # then only the last count per key is visible, and no user function is called
    if (fold.counts or fold.sums) and not (updates or olds) and state.exact is int:
        return CountRows(state, sums=fold.sums)
    rows = ImmutableRows(state, fold, olds=olds)
    best = BestTexts.of_fold(fold.kept) if fold.partials and not updates else None
    return rows if best is None else BestPartialRows(state, best, rows, olds=olds)


def column_fold(
    state: KeyValueStoreView,
    fold: Fold,
    *,
    members: MemberStore | None = None,
    updates: bool,
    olds: bool,
    show: Callable[[Batch], None] | None,
    out_keys: OutKeys | None,
) -> ColumnFold | None:
    """How whole columns are folded; ``None``: not at all. ``show``: takes updates, if anyone does."""
    if not state.immutable:
        return None
    if fold.kept is not None and not fold.partials:
        return keeping_fold(state, fold.kept, show=show if updates else None, out_keys=out_keys, olds=olds)
    if fold.init is not None and fold.parts and not fold.partials:
        distinct = None
        if members is not None and fold.distinct is not None:
            distinct = partial(DistinctColumns, members, fold.distinct.paths)
        if updates and show is not None:
            if why_no_updates(fold):
                return None
            return PartUpdates(state, fold, distinct, show=show, out_keys=out_keys, olds=olds)
        parts = PartFolds.of(fold.parts)
        return None if parts is None else PartColumns(state, parts, fold.init, distinct)
    if members is not None and merges_in_columns(fold):
        return None if updates else PartialColumns(state, fold, members)
    if olds:
        return None
    counts = fold.counts or (fold.sums and not updates)
    if not counts or fold.result is not None or state.exact is not int:
        return None
    return CountColumns(state, sums=fold.sums, show=show, out_keys=out_keys)


def held_fold(
    columns: ColumnFold | None, state: KeyValueStoreView, key_serde: Serde[Any], fold: Fold
) -> HeldFold | None:
    """The strategy that folds columns in the store itself, if ``columns`` would fold them and no update is shown."""
    if isinstance(columns, CountColumns) and isinstance(state, CountStoreView) and not columns.shows:
        return TallyColumns(state, key_serde, sums=fold.sums)
    if isinstance(columns, LatestColumns) and isinstance(state, LatestStoreView) and not columns.shows:
        return HeldLatest(state, key_serde, columns)
    return None
