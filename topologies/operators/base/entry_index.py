"""An in-memory index of a segmented store's entries by key, for recent keys, so that a record costs lookups instead of
a range read.

The operator that has the index must be the store's only writer. The index is a cache: it returns what a range read
would, and may be emptied at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from penstock.state.stores.segmented_store import SegmentedState

EntryPlace = tuple[int, bytes]
"""Time and suffix of an entry."""
KEYS_MAX = 1 << 16
"""A key with one entry takes some 370 bytes. A key that is not held costs a range read of the store for each batch."""


class EntryIndex:
    """The store and the index over it. ``keys_max``: how many keys it holds; then it drops those without entries, and if
    more than half remain, the older half.

    Another cache of the operator's may hold keys instead of the index: it takes them with ``give_up``, and the index
    takes them back with ``elsewhere``, which gives the places of a key's entries, or ``None``. No key is in both."""

    def __init__(self, store: SegmentedState, keys_max: int = KEYS_MAX) -> None:
        self.store = store
        self.keys_max = keys_max
        self.elsewhere: Callable[[bytes], list[EntryPlace] | None] | None = None
        self._places: dict[bytes, list[EntryPlace]] = {}
        self._floor_ms = 0
        self._unseen_ms: int | None = None
        """No entry of a key that is held nowhere has a later time; ``None``: the store is asked."""
        self._latest_ms = -1
        """No entry of a key that was never elsewhere has a later time."""

    def places(self, key: bytes) -> list[EntryPlace]:
        """The places of a key's entries, ascending; not to be changed."""
        places = self._places.get(key)
        if places is None:
            if len(self._places) >= self.keys_max:
                self._shrink()
            found = None if self.elsewhere is None else self.elsewhere(key)
            if found:
                self._latest_ms = max(self._latest_ms, found[-1][0])
            places = self._places[key] = self._read(key) if found is None else found
        if places and places[0][0] < self._floor_ms:
            del places[: bisect_left(places, (self._floor_ms, b""))]
        return places

    def _read(self, key: bytes) -> list[EntryPlace]:
        unseen_ms = self._unseen()
        found = self.store.fetch(key, 0, unseen_ms) if unseen_ms >= self._floor_ms else ()
        return [(e.time_ms, e.suffix) for e in found]

    def _unseen(self) -> int:
        if self._unseen_ms is None:
            self._unseen_ms = self._latest_ms = self.store.latest_ms()
        return self._unseen_ms

    @property
    def latest_ms(self) -> int:
        """No entry of a key that is not elsewhere has a later time."""
        self._unseen()
        return self._latest_ms

    @property
    def floor_ms(self) -> int:
        """Entries with a lower time are dropped."""
        return self._floor_ms

    def give_up(self, key: bytes) -> list[EntryPlace]:
        """``places`` of a key that is elsewhere from now on."""
        places = self._places.pop(key, None)
        if places is None:
            places = self._read(key)
        return places[bisect_left(places, (self._floor_ms, b"")) :]

    def take_back(self, key: bytes, places: list[EntryPlace]) -> None:
        """Undo ``give_up``, which returned these places."""
        self._places[key] = places

    def nowhere(self, latest_ms: int) -> None:
        """Some keys that were elsewhere are held nowhere. None of their entries has a later time."""
        self._unseen_ms = max(self._unseen(), latest_ms)
        self._latest_ms = max(self._latest_ms, latest_ms)

    def _shrink(self) -> None:
        """Make room: drop the keys that have no entries any more, and all but the newest half of ``keys_max``. Not all:
        the keys of one batch come again in the next."""
        floor_ms = self._floor_ms
        held = {key: places for key, places in self._places.items() if places and places[-1][0] >= floor_ms}
        if (more := len(held) - self.keys_max // 2) > 0:
            held = dict(islice(held.items(), more, None))
            self._unseen_ms = self._latest_ms
        self._places = held

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
            self._latest_ms = max(self._latest_ms, place[0])
        self.store.put_entry(key, place[0], place[1], entry, timestamp_ms, new=not known)

    def load(self, places: Iterable[tuple[bytes, EntryPlace]]) -> None:
        """Read existing entries, given by key and place, at once, so that ``get`` finds them in memory."""
        self.store.load((key, *place) for key, place in places)

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
