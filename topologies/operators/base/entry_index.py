"""An in-memory index of a segmented store's entries by key, for recent keys, so that a record costs lookups instead of
a range read.

The operator that has the index must be the store's only writer. The index is a cache: it returns what a range read
would, and may be emptied at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from penstock.state.stores.segmented_store import SegmentedState

EntryPlace = tuple[int, bytes]
"""Time and suffix of an entry."""
KEYS_MAX = 1 << 14


class EntryIndex:
    """The store and the index over it. ``keys_max``: how many keys it holds before it starts again empty."""

    def __init__(self, store: SegmentedState, keys_max: int = KEYS_MAX) -> None:
        self.store = store
        self._keys_max = keys_max
        self._places: dict[bytes, list[EntryPlace]] = {}
        self._floor_ms = 0
        self._latest_ms: int | None = None
        """No entry has a later time; ``None``: the store is asked."""

    def places(self, key: bytes) -> list[EntryPlace]:
        """The places of a key's entries, ascending; not to be changed."""
        places = self._places.get(key)
        if places is None:
            if len(self._places) >= self._keys_max:
                self._places.clear()
            if self._latest_ms is None:
                self._latest_ms = self.store.latest_ms()
            found = self.store.fetch(key, 0, self._latest_ms)
            places = self._places[key] = [(e.time_ms, e.suffix) for e in found]
        elif places and places[0][0] < self._floor_ms:
            del places[: bisect_left(places, (self._floor_ms, b""))]
        return places

    def put(self, key: bytes, place: EntryPlace, entry: Any, timestamp_ms: int) -> None:
        """Set the result of ``store.entry_of``; ``None`` deletes. ``places(key)`` must have been called for this
        record."""
        places = self._places[key]
        at = bisect_left(places, place)
        known = at < len(places) and places[at] == place
        if entry is None and known:
            del places[at]
        elif entry is not None and not known:
            places.insert(at, place)
            if self._latest_ms is not None and place[0] > self._latest_ms:
                self._latest_ms = place[0]
        self.store.put_entry(key, place[0], place[1], entry, timestamp_ms, new=not known)

    def get(self, key: bytes, place: EntryPlace) -> tuple[Any, int]:
        """Value and timestamp of an existing entry."""
        found = self.store.get(key, place[0], place[1])
        assert found is not None, place
        return found

    def expire_before(self, time_ms: int) -> None:
        """Drop entries with a lower time."""
        if time_ms > self._floor_ms:
            self._floor_ms = time_ms
            self.store.expire_before(time_ms)
