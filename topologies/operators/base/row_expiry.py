"""Expiry of rows: a row that was not updated for ``ttl`` of its operator's stream time is deleted.

A row's deadline is its timestamp plus the ttl. Before each record, the rows whose deadline that record's time has
reached are deleted from the store, and so from its changelog, and the deletions are emitted with the deadline as
timestamp, in order of deadlines. So the state is the same for any batches, and after a restart.

Due rows are found through timers: each row has one at its deadline or earlier. A timer that fires too early is set
again, so that an update of a row costs no timer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base.store_timers import TimerQueue, timer_store
from penstock.topologies.windows import Duration, duration_ms


def checked_ttl(ttl: Duration, name: str) -> int:
    """The ttl of operator ``name`` in milliseconds. Raises ``TopologyError``."""
    ttl_ms = duration_ms(ttl)
    if ttl_ms < 1:
        raise TopologyError(f"operator {name!r}: ttl={ttl!r} is too short; give 1 ms or more, or leave it out")
    return ttl_ms


def expiry_store(name: str) -> StoreSpec:
    """The timers of the rows in the store ``name``."""
    return timer_store(f"{name}-ttl")


class Gone(NamedTuple):
    """A row that was deleted. ``value``: its last value."""

    store_key: bytes
    value: Any
    deadline_ms: int


class RowExpiry:
    """The deadlines of one store's rows in one task."""

    def __init__(self, rows: KeyValueStoreView, timers: KeyValueStoreView, ttl_ms: int) -> None:
        self._rows = rows
        self._timers = TimerQueue(timers)
        self._ttl_ms = ttl_ms

    def late(self, ts: int, now_ms: int) -> bool:
        """Whether a row of this time would already be expired."""
        return ts + self._ttl_ms <= now_ms

    def written(self, store_key: bytes, before_ms: int | None, ts: int) -> None:
        """Note that a row was written; ``before_ms``: its former time, ``None``: it is new."""
        if before_ms is None or ts < before_ms:
            self._timers.set(ts + self._ttl_ms, store_key)

    def gone(self, now_ms: int) -> list[Gone]:
        """Delete the rows whose deadline has come."""
        due = self._timers.due(now_ms)
        if not due:
            return []
        self._rows.load(store_key for _, store_key in due)
        gone: list[Gone] = []
        for _, store_key in due:
            found = self._rows.get(store_key)
            if found is None:
                continue
            deadline_ms = found[1] + self._ttl_ms
            if deadline_ms > now_ms:
                self._timers.set(deadline_ms, store_key)
            else:
                self._rows.put(store_key, None, deadline_ms)
                gone.append(Gone(store_key, found[0], deadline_ms))
        return sorted(gone, key=lambda g: (g.deadline_ms, g.store_key))
