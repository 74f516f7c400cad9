"""Folding one record after the other: the reference for every other strategy."""

from __future__ import annotations

from typing import Any

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.strategy import Changes, Failed


class ImmutableRows:
    """For aggregates that cannot be changed in place: entries hold them as they are. With ``olds`` it also returns the
    aggregates before it."""

    runs_functions = True

    def __init__(self, state: KeyValueStoreView, fold: Fold, *, olds: bool) -> None:
        self._state = state
        self._fold = fold
        self._olds = olds

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes:
        state, init, adder = self._state, self._fold.init, self._fold.adders[port]
        entries, exact = state.entries, state.exact
        news: list[Any] = []
        times: list[int] = []
        olds: list[Any] = []
        skipped: list[int] = []
        rows = zip(batch.keys, store_keys, values_of(self._fold, batch), batch.timestamps, strict=True)
        for i, (key, store_key, value, ts) in enumerate(rows):
            found = entries[store_key]
            try:
                if found is None:
                    old, new = None, value if init is None else adder(key, value, init())
                else:
                    old, old_ts = found
                    new = adder(key, value, old)
                    if old_ts > ts:
                        ts = old_ts
                if type(new) is exact or (new is old and new is not None):  # what was stored is in the form to store
                    entries[store_key] = (new, ts)
                else:
                    entries[store_key] = None if new is None else (state.as_stored(new), ts)
            except Exception as exc:
                failed(batch, i, exc)
                skipped.append(i)
                continue
            news.append(new)
            times.append(ts)
            if self._olds:
                olds.append(old)
        return Changes(without(skipped, len(batch)), news, times, olds if self._olds else None)


class DecodingRows:
    """For any aggregates: each record decodes its own copy. Also returns the aggregates before it, if they are
    wanted."""

    runs_functions = True

    def __init__(self, state: KeyValueStoreView, fold: Fold, *, olds: bool) -> None:
        self._state = state
        self._fold = fold
        self._olds = olds

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes:
        state, init, adder = self._state, self._fold.init, self._fold.adders[port]
        entries, unpack, entry_of = state.entries, state.unpack, state.entry_of
        news: list[Any] = []
        times: list[int] = []
        olds: list[Any] = []
        skipped: list[int] = []
        rows = zip(batch.keys, store_keys, values_of(self._fold, batch), batch.timestamps, strict=True)
        for i, (key, store_key, value, ts) in enumerate(rows):
            entry = entries[store_key]
            found = unpack(entry, store_key)
            try:
                if found is None:
                    new = value if init is None else adder(key, value, init())
                else:
                    new = adder(key, value, found[0])
                    ts = max(ts, found[1])
                entries[store_key] = entry_of(new, ts)
            except Exception as exc:
                failed(batch, i, exc)
                skipped.append(i)
                continue
            news.append(new)
            times.append(ts)
            if self._olds:
                before = unpack(entry, store_key)  # the adder may have changed the one it was given
                olds.append(None if before is None else before[0])
        return Changes(without(skipped, len(batch)), news, times, olds if self._olds else None)


def values_of(fold: Fold, batch: Batch) -> list[Any]:
    """The adders' arguments for the records."""
    return list(zip(batch.values, batch.timestamps, strict=True)) if fold.timed else batch.values


def without(skipped: list[int], count: int) -> list[int] | None:
    """All places but the skipped ones; ``None`` for all."""
    if not skipped:
        return None
    gone = set(skipped)
    return [i for i in range(count) if i not in gone]
