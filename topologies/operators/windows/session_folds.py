"""Folding the records of a batch into the sessions that they join: each session of the batch is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.state.stores.store import StoreSpec
from penstock.topologies.columnar.kernels import grouped
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import Ints, Places
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.columnar.folding import PartFolds
from penstock.topologies.operators.columnar.grouping import numbers_of
from penstock.topologies.operators.columnar.session_joining import NOWHERE, OpenSession, SessionJoining

_LARGE = 1 << 40
"""The bound below which the numbers of a batch have a sum of 64 bits, with what was counted before."""


class SessionFold(Protocol):
    """Computes the aggregates of the sessions that a batch makes."""

    def fold(self, batch: ColumnBatch, rows: Places, joining: SessionJoining) -> bool:
        """Set the aggregates of ``joining.made``. ``rows``: the records in the order of the pieces. ``False``: there is a
        value that only rows know."""


def session_fold(store: StoreSpec, fold: Fold) -> SessionFold | None:
    """How the records of batches are folded; ``None``: record by record only."""
    if not store.value_serde.immutable or len(fold.adders) != 1:
        return None
    if (fold.counts or fold.sums) and fold.result is None and store.value_serde.exact is int:
        return CountSessions(sums=fold.sums)
    parts = None if fold.partials else PartFolds.of(fold.parts)
    if parts is None or fold.init is None or fold.merger is None:
        return None
    return PartSessions(parts, fold.init, fold.merger)


class CountSessions:
    """Counts records. ``sums``: adds up numbers of records."""

    def __init__(self, *, sums: bool) -> None:
        self._sums = sums

    def numbers(self, batch: ColumnBatch) -> tuple[bool, Ints | None]:
        """The number that each record counts, ``None`` for 1 each. ``False``: there is a value that only rows know."""
        found = numbers_of(batch) if self._sums else None
        return not self._sums or (found is not None and bool(((found > -_LARGE) & (found < _LARGE)).all())), found

    def fold(self, batch: ColumnBatch, rows: Places, joining: SessionJoining) -> bool:
        known, numbers = self.numbers(batch)
        if known:
            joining.count_records(None if numbers is None else numbers[rows].tolist())
        return known


class PartSessions:
    """Folds aggregates that are tuples of their expressions' accumulators. Sessions that others of the batch grow into come
    before these, so that sums of floats are added in the order of the records."""

    def __init__(self, parts: PartFolds, init: Callable[[], Any], merger: Callable[[Any, Any, Any], Any]) -> None:
        self._parts = parts
        self._init = init
        self._merger = merger

    def fold(self, batch: ColumnBatch, rows: Places, joining: SessionJoining) -> bool:
        columns = self._parts.columns(batch)
        if columns is None:
            return False
        made = joining.made
        numbers = np.empty(len(rows), np.intp)
        numbers[rows] = np.repeat(np.array(joining.joined, np.intp), joining.counts)
        levels = np.array([s.level for s in made] + [NOWHERE], np.intp)[numbers]  # late records have the last one's
        for level in range(max(s.level for s in made) + 1 if made else 0):
            places = np.flatnonzero(levels == level)
            groups = grouped(numbers[places], len(made))
            sessions = [made[n] for n in groups.codes.tolist()]
            some = [None if column is None else column.take(places) for column in columns]
            new = self._parts.folded(list(map(self._before, sessions)), groups, some, None)
            if new is None:
                return False
            for session, aggregate in zip(sessions, new, strict=True):
                session.aggregate = aggregate
        return True

    def _before(self, session: OpenSession) -> Any:
        """The aggregate that the session's records are added to."""
        if len(session.members) == 1:
            return session.members[0].aggregate  # merged with an empty one, each of these aggregates stays what it is
        merged = self._init()
        for member in session.members:
            merged = self._merger(None, merged, member.aggregate)  # that of expressions reads no key
        return merged
