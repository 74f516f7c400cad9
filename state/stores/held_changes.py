"""A store of which something else holds what has changed since the last commit, mostly the compiled part: the base of such
views.

Between two commits what changed is either all there or all in the view's own entries. A subclass sets
``held``, begins to fill it when nothing is uncommitted (``begin``), and moves it into the entries when anything else reads
or writes the store (``defer``).
"""

from __future__ import annotations

from typing import Protocol

from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView


class Held(Protocol):
    """Changes of a store."""

    def __len__(self) -> int:
        """How many keys have changed."""

    @property
    def used_bytes(self) -> int:
        """Memory taken."""

    def clear(self) -> None:
        """Forget everything."""


class HoldingStoreView(KeyValueStoreView):
    """See the module. ``held``: ``None`` before the compiled part is in use."""

    def __init__(self, spec: StoreSpec, backend: StateBackend, held: Held | None) -> None:
        super().__init__(spec, backend)
        self.held = held
        self.settled: list[bytes] = []
        """Keys that were held since the last commit and are now in the entries, in the order of their first record."""
        self.shown = False
        """Whether the changes since the last commit were emitted, as for a commit that then failed. Until a commit
        succeeds, further changes go into entries, where they can be distinguished."""

    def begin(self) -> None:
        """Forget the entries: nothing is uncommitted, so the backend holds it all, and these soon become stale."""
        self._whole = False
        self.entries.clear()
        self._old.clear()

    def committed(self) -> None:
        self._forget()
        super().committed()

    def discard(self) -> None:
        self._forget()
        super().discard()

    def _forget(self) -> None:
        self.defer(None)
        self.settled, self.shown = [], False
        if self.held is not None:
            self.held.clear()

    def uncommitted_bytes(self) -> int:
        return self.held.used_bytes if self.held else super().uncommitted_bytes()

    def size_bytes(self) -> int:
        return (0 if self.held is None else self.held.used_bytes) + super().size_bytes()
