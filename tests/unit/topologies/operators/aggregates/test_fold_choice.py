"""Which strategies an aggregation folds by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.state.serdes.serde import BYTES, INT, Serde, serde_of
from penstock.state.stores.count_store import CountStoreView, state_of
from penstock.state.stores.latest_view import LatestStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators import last
from penstock.topologies.operators.aggregates.fold import COUNTING, Fold
from penstock.topologies.operators.aggregates.folds.choice import column_fold, held_fold, row_fold


class Point(msgspec.Struct, frozen=True):
    """A value."""

    x: int


SUMS = Fold(adders=(lambda key, value, acc: acc + value,), sums=True, partials=True)
REDUCE = Fold(adders=(lambda key, value, acc: acc + value,))
LATEST = last(value=Point)
LATEST_FOLD = Fold(adders=(lambda key, value, acc: acc,), kept=LATEST.kept)
SHOWN = Fold(adders=COUNTING.adders, init=int, counts=True, result=str)


def state(value: Serde[Any]) -> KeyValueStoreView:
    spec = StoreSpec("s", "key_value", BYTES, value)
    return state_of(spec, MemoryBackend([spec]))


@pytest.mark.parametrize(
    ("fold", "value", "updates", "olds", "rows", "columns"),
    [
        (COUNTING, INT, False, False, "CountRows", "CountColumns"),
        (COUNTING, INT, True, False, "ImmutableRows", "CountColumns"),
        (COUNTING, INT, False, True, "ImmutableRows", None),
        (SUMS, INT, False, False, "CountRows", "CountColumns"),
        (SUMS, INT, True, False, "ImmutableRows", None),
        (SHOWN, INT, False, False, "CountRows", None),
        (REDUCE, INT, False, False, "ImmutableRows", None),
        (REDUCE, serde_of(list), False, False, "DecodingRows", None),
        (REDUCE, serde_of(list), False, True, "DecodingRows", None),
    ],
)
def test_choice(fold: Fold, value: Serde[Any], updates: bool, olds: bool, rows: str, columns: str | None) -> None:
    view = state(value)
    assert type(row_fold(view, fold, updates=updates, olds=olds)).__name__ == rows
    found = column_fold(view, fold, updates=updates, olds=olds, show=None, out_keys=None)
    assert (None if found is None else type(found).__name__) == columns


def test_the_store_counts_where_no_update_is_shown() -> None:
    view = state(INT)
    hidden = column_fold(view, COUNTING, updates=False, olds=False, show=None, out_keys=None)
    shown = column_fold(view, COUNTING, updates=True, olds=False, show=print, out_keys=None)
    assert (held_fold(hidden, view, BYTES, COUNTING) is not None) == isinstance(view, CountStoreView)
    assert held_fold(shown, view, BYTES, COUNTING) is None
    assert held_fold(None, view, BYTES, COUNTING) is None


def test_the_store_keeps_latest_values_where_no_update_is_shown() -> None:
    view = state(LATEST.serde)
    for show in (None, print):
        updates = show is not None
        found = column_fold(view, LATEST_FOLD, updates=updates, olds=False, show=show, out_keys=None)
        held = held_fold(found, view, BYTES, LATEST_FOLD)
        assert (held is not None) == (isinstance(view, LatestStoreView) and not updates)
