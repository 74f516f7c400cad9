"""A store of the members of distinct counts, of which the compiled part keeps those that are new since the last commit: no
member becomes an object, from the partial aggregates that bring it to the changelog and the database.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.state.serdes.serde import INT, Serde
from penstock.state.stores.held_changes import Held, HoldingStoreView
from penstock.state.stores.packed_lists import Texts
from penstock.state.stores.store import PackedChanges, PackedPuts, StateBackend, StoreSpec, cut

ROWS_OF_MEMBER: Final[Serde[int]] = dataclasses.replace(INT)
"""The serde of the values of members; a store with it has this view."""
STAMP_MS: Final = 1
THERE: Final = (1, STAMP_MS)
"""The entry of a member that was added once, or that is never taken back."""
_VALUE: Final = INT.serialize(1)
_STORED: Final = STAMP_MS.to_bytes(8, "big") + _VALUE


class NewMembers(Held, Protocol):
    """Members since the last commit, in their order. Compiled."""

    def ask(
        self, data: Any, offsets: Any, forms: bytes, heads: Any, head_offsets: Any, entries: Any
    ) -> tuple[bytes, bytes] | None:
        """Ask about the members of partial aggregates. ``heads``: where the keys of each entry's members begin;
        ``entries``: the entry of each partial, int64. Returns the keys that are not among these members, each once, as data
        and int64 offsets. ``None``: Python must read one of the partials, or there are too many."""

    def fresh(self, absent: Any) -> bytes:
        """How many members are new, int64, for each partial and count, of the keys that were asked about last. ``absent``: a
        byte for each key, 1 if the store does not have it. A member counts at the first partial with it."""

    def keep(self) -> None:
        """Keep those that are new."""

    def any_below(self, bound: bytes) -> bool:
        """Whether a key lies below the bound."""

    def keys(self) -> tuple[bytes, bytes]:
        """The keys, as data and int64 offsets."""

    def logged(self) -> tuple[bytes, bytes]:
        """The keys as the changelog of a window store has them."""


class MemberStoreView(HoldingStoreView):
    """A view of members that uses the compiled part."""

    def __init__(self, spec: StoreSpec, backend: StateBackend, members: NewMembers) -> None:
        super().__init__(spec, backend, members)
        self._new = members

    def fresh(
        self, partials: Texts, forms: bytes, heads: Texts, entries: NDArray[np.int64], lowest: bytes
    ) -> NDArray[np.int64] | None:
        """See ``NewMembers.ask`` and ``NewMembers.fresh``; a row for each partial, and a column for each count. ``lowest``:
        the lowest of the heads. Nothing is kept before ``keep``. ``None``: look them up one by one, because some entries are
        uncommitted, or there is a partial that only Python can read, or one whose members have expired."""
        if self.dirty or (self._floor is not None and lowest < self._floor):
            return None
        if not len(self._new):
            self.begin()
        asked = self._new.ask(*partials, forms, *heads, np.ascontiguousarray(entries, np.int64))
        if asked is None:
            return None
        found = np.frombuffer(self._new.fresh(self._absent(*asked)), np.int64)
        return found.reshape(len(entries), -1)

    def _absent(self, data: bytes, offsets: bytes) -> Any:
        """Flags of the keys that the backend does not have."""
        ends = np.frombuffer(offsets, np.int64)
        count = len(ends) - 1
        if not count:
            return b""
        found = self._backend.get_packed(self.spec.name, data, ends, len(_STORED))
        if found is None:
            stored = self._backend.get_many(self.spec.name, cut(data, ends))
            return bytes(value is None for value in stored)
        return bytes(count) if found.absent is None else found.absent

    def keep(self) -> None:
        """Add the members that were new when they were asked about last."""
        self._new.keep()
        if len(self._new):
            self.defer(self._settle)

    def _settle(self) -> None:
        """Move the new members into the entries."""
        data, offsets = self._new.keys()
        keys = cut(data, offsets)
        self._new.clear()
        self.entries.update(dict.fromkeys(keys, THERE))
        self.dirty.update(dict.fromkeys(keys, STAMP_MS))

    # -- commit --------------------------------------------------------------------------------------------------

    def packed_changes(self) -> PackedChanges | None:
        count = len(self._new)
        if not count or (self._floor is not None and self._new.any_below(self._floor)):
            return None
        data, offsets = self._new.keys()
        ends = np.frombuffer(offsets, np.int64)
        keys = data, ends
        if self.spec.kind == "window":
            logged, logged_offsets = self._new.logged()
            keys = logged, np.frombuffer(logged_offsets, np.int64)
        puts = PackedPuts(data, ends, _STORED * count, _steps(count, len(_STORED)))
        values = _VALUE * count, _steps(count, len(_VALUE))
        return PackedChanges(puts, keys, values, np.full(count, STAMP_MS, np.int64))


def _steps(count: int, width: int) -> NDArray[np.int64]:
    """The offsets of values of one width."""
    return np.arange(0, width * count + 1, width, dtype=np.int64)
