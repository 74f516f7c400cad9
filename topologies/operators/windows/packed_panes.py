"""Counts per pane that the compiled part keeps: records are counted and windows added up there, without a Python object per
entry of the store. What has changed is put into the store at the commit, or before anything else reads it.

All panes of the store are here or none. With more entries than ``ENTRIES_MAX``, or counts of more than 64 bits, none are
from then on: the operator works with the store's own entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.state.native import compiled
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.columns import BytesColumn, Ints

if TYPE_CHECKING:
    from penstock_native import PaneCounts

ENTRIES_MAX = 1 << 18
"""About 35 MB if each is of another key, 10 MB if each key is in several panes."""
_PENDING_MAX = 1 << 16
"""With more changes than this the store gets them at once, and sees that they need a commit."""


class WindowCounts(NamedTuple):
    """The counts of one window and the highest timestamp of each, by key."""

    keys: BytesColumn
    counts: Ints
    times: Ints


class PackedPanes:
    """See the module. It is the only one who writes the store while it is in use."""

    def __init__(self, counts: PaneCounts, store: KeyValueStoreView) -> None:
        """``counts``: empty."""
        self._counts: PaneCounts | None = counts
        """``None``: it is not in use any more."""
        self._store = store
        self._loaded = False

    @classmethod
    def of(cls, store: KeyValueStoreView) -> PackedPanes | None:
        """For a store of counts; ``None`` without the compiled part."""
        native = compiled()
        return None if native is None or store.exact is not int else cls(native.PaneCounts(), store)

    def in_use(self) -> bool:
        """Whether the counts are here; reads the store if nobody has asked yet."""
        if self._loaded or self._counts is None:
            return self._counts is not None
        self._loaded = True
        keys: list[bytes] = []
        rows: list[tuple[int, int]] = []
        for key, count, ts in self._store.range():
            keys.append(key)
            rows.append((count, ts))
            if len(keys) > ENTRIES_MAX:
                self._give_up()
                return False
        counts, times = np.array(rows, np.int64).reshape(-1, 2).T.copy()
        if not self._counts.add(keys, counts, times, True):
            self._give_up()
        return self._counts is not None

    def add(self, store_keys: list[bytes], counts: Any, times: Any) -> bool:
        """Add numbers of records to these entries, each with the highest timestamp of its records. ``False``: nothing was
        done, and the counts are not here any more."""
        if not self.in_use():
            return False
        assert self._counts is not None
        try:
            columns = np.asarray(counts, np.int64), np.asarray(times, np.int64)
        except OverflowError:
            self._give_up()
            return False
        room = len(self._counts) + len(store_keys) <= ENTRIES_MAX
        if not room or not self._counts.add(store_keys, *columns, False):
            self._give_up()
            return False
        if self._counts.pending > _PENDING_MAX:
            self.settle()
        else:
            self._store.defer(self.settle)
        return True

    def window(self, low: int, high: int) -> WindowCounts:
        """The counts of the panes that start in a range, added up."""
        assert self._counts is not None
        keys, ends, counts, times = self._counts.window(low, high)
        offsets, counted, latest = (np.frombuffer(part, np.int64) for part in (ends, counts, times))
        return WindowCounts(BytesColumn(keys, offsets), counted, latest)

    def first(self, start: int) -> int | None:
        """The start of the first pane that begins at ``start`` or later."""
        assert self._counts is not None
        return self._counts.first(start)

    def drop_below(self, start: int) -> None:
        """Forget the panes that begin before ``start``, as the store does."""
        if self._counts is not None:
            self._counts.drop_below(start)

    def settle(self) -> None:
        """Put into the store what has changed."""
        self._store.defer(None)
        if self._counts is not None and self._counts.pending:
            keys, entries = self._counts.changes()
            self._store.put_entries(keys, entries, [ts for _, ts in entries])

    def _give_up(self) -> None:
        self.settle()
        self._counts = None
