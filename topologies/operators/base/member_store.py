"""The members of distinct counts, one entry each, next to the store of the aggregates that count them.

The key of an entry: that of the aggregate's entry, with the length of the record's key before it, then the number of the
count and the member. So members of a window begin with its start, and expire when it takes no more records.

    [window start (8)] | length of key (4) | key | number of the count (2) | member

The value is 1, or, of a table, the number of rows with the member, which may be taken back. The timestamp is always the
same: the store does not show which of the records of a member came first.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.member_view import ROWS_OF_MEMBER, STAMP_MS, THERE, MemberStoreView
from penstock.state.stores.packed_lists import Texts
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView, window_floor
from penstock.topologies.columnar.kernels import packed
from penstock.topologies.operator_api.columns import Ints

_LENGTH: Final = struct.Struct(">i")
_NUMBER: Final = struct.Struct(">H")
_START_BYTES: Final = 8


def members_of(store: StoreSpec, kept_ms: int | None) -> StoreSpec:
    """The store of members next to one of aggregates. ``kept_ms``: the time for which windows take records; ``None``:
    there are no windows."""
    name = f"{store.name}-members"
    return StoreSpec(name, store.kind, BYTES, ROWS_OF_MEMBER, window_size_ms=store.window_size_ms, retention_ms=kept_ms)


def numbered(number: int) -> bytes:
    """The number of a count in the keys of its members."""
    return _NUMBER.pack(number)


class MemberStore:
    """The members of one task."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._before = _START_BYTES if state.spec.kind == "window" else 0

    def head(self, store_key: bytes) -> bytes:
        """The begin of the keys of all members of the aggregate under this key. The count's number follows, then the
        member."""
        at = self._before
        return store_key[:at] + _LENGTH.pack(len(store_key) - at) + store_key[at:]

    def absent(self, keys: list[bytes]) -> list[bool]:
        """Whether each of the members is new."""
        return [entry is None for entry in self._state.entries_of(keys)]

    def fresh(self, partials: Texts, forms: bytes, store_keys: list[bytes], entries: Ints) -> Ints | None:
        """How many members of partial aggregates are new, for each partial and count. ``store_keys``: of the entries;
        ``entries``: the one of each partial. A member counts at the first partial of the entry with it; nothing is added
        before ``keep``. ``None``: partial by partial."""
        if not isinstance(self._state, MemberStoreView):
            return None
        heads = list(map(self.head, store_keys))
        column = packed(heads)
        return self._state.fresh(partials, forms, (column.data, column.offsets), entries, min(heads))

    def keep(self) -> None:
        """Add what ``fresh`` found last."""
        assert isinstance(self._state, MemberStoreView)
        self._state.keep()

    def load(self, keys: Iterable[bytes]) -> None:
        """Fetch what ``move`` of these members will need, at once."""
        self._state.load(keys)

    def move(self, key: bytes, by: int) -> int:
        """Add a row with a member (``by`` 1) or remove one (-1). Returns by how much the number of members changes. Raises
        ``ValueError`` if there is no such row."""
        found = self._state.get(key)
        before = 0 if found is None else found[0]
        after = before + by
        if after < 0:
            raise ValueError(f"{key!r:.60} cannot be removed: no row has this member")
        self._state.put(key, after or None, STAMP_MS)
        return (after > 0) - (before > 0)

    def put(self, keys: Iterable[bytes]) -> None:
        """Add members that were looked up."""
        new = list(keys)
        self._state.entries.update(dict.fromkeys(new, THERE))
        self._state.dirty.update(dict.fromkeys(new, STAMP_MS))

    def expire(self, time_ms: int) -> None:
        """Drop the members of windows that take no more records at a time."""
        assert self._state.spec.retention_ms is not None
        floor_ms = time_ms - self._state.spec.retention_ms + 1
        if floor_ms > 0:
            self._state.expire_below(window_floor(floor_ms))
