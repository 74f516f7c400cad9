"""Folding one record after the other where distinct members are in a store of their own: the reference for columns."""

from __future__ import annotations

from typing import Any

from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.members_apart import with_count
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.aggregates.folds.rows import values_of, without
from penstock.topologies.operators.aggregates.folds.strategy import Changes, Failed
from penstock.topologies.operators.base.member_store import MemberStore, numbered

_Found = list[tuple[int, bytes]]
"""The members that a record adds: numbers of counts, and store keys."""


class MemberRows:
    """A record is folded after its members were looked up, and they are put when all is done: what raises on the way has
    changed no member."""

    runs_functions = True

    def __init__(self, state: KeyValueStoreView, fold: Fold, members: MemberStore, *, olds: bool) -> None:
        assert fold.distinct is not None and fold.init is not None
        self._state = state
        self._fold = fold
        self._init = fold.init
        self._distinct = fold.distinct
        self._members = members
        self._olds = olds

    def fold(self, port: int, batch: Batch, store_keys: list[bytes], failed: Failed) -> Changes:
        state, init, adder, paths = self._state, self._init, self._fold.adders[port], self._distinct.paths
        entries, unpack, entry_of = state.entries, state.unpack, state.entry_of
        adds = self._added_by(batch, store_keys)
        new_members = self._absent(adds)
        taken: dict[bytes, None] = {}
        news: list[Any] = []
        times: list[int] = []
        olds: list[Any] = []
        skipped: list[int] = []
        rows = zip(batch.keys, store_keys, values_of(self._fold, batch), batch.timestamps, adds, strict=True)
        for i, (key, store_key, value, ts, added) in enumerate(rows):
            entry = entries[store_key]
            found = unpack(entry, store_key)
            try:
                if isinstance(added, Exception):
                    raise added
                if found is None:
                    new = adder(key, value, init())
                else:
                    new = adder(key, value, found[0])
                    ts = max(ts, found[1])
                first = {m: n for n, m in added if m in new_members and m not in taken}
                for number in first.values():
                    new = with_count(new, paths[number], 1)
                entries[store_key] = entry_of(new, ts)
            except Exception as exc:
                failed(batch, i, exc)
                skipped.append(i)
                continue
            taken.update(dict.fromkeys(first))
            news.append(new)
            times.append(ts)
            if self._olds:
                before = unpack(entry, store_key)  # the adder may have changed the one it was given
                olds.append(None if before is None else before[0])
        self._members.put(taken)
        return Changes(without(skipped, len(batch)), news, times, olds if self._olds else None)

    def _added_by(self, batch: Batch, store_keys: list[bytes]) -> list[_Found | Exception]:
        """The members that each record adds, or the error of one that fails."""
        members, head = self._distinct.members, self._members.head
        numbers = [numbered(number) for number in range(len(self._distinct.paths))]
        out: list[_Found | Exception] = []
        for store_key, value in zip(store_keys, batch.values, strict=True):
            try:
                start = head(store_key)
                out.append([(number, start + numbers[number] + member) for number, member in members(value)])
            except Exception as exc:  # reported at its record
                out.append(exc)
        return out

    def _absent(self, adds: list[_Found | Exception]) -> set[bytes]:
        """Those of the members that are not in the store."""
        wanted = list(dict.fromkeys(m for added in adds if not isinstance(added, Exception) for _, m in added))
        return {m for m, absent in zip(wanted, self._members.absent(wanted), strict=True) if absent}
