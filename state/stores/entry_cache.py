"""Entries of one store that are held in memory before the database: what was written since the last write-out, and, if
there is room, what was read.

``EntryMap`` is the interface. Its compiled form (``penstock_native.EntryMap``) keeps both, an entry of 9 + 16 bytes in 55,
and finds a key in 0.2 us; its ``find_rows`` and ``put_rows``, which the other has not, are ``get_many`` and ``put_many`` for
columns in buffers.
Its Python form is a dictionary of what was written, such an entry in 190 bytes; it keeps nothing that was merely read,
which the views above do already, decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Protocol

from penstock.state.native import compiled
from penstock.state.stores.entry_sizes import SLOT_BYTES

_UNKNOWN = object()
_HEADERS_BYTES = SLOT_BYTES + 2 * 40
"""What an entry takes beside its bytes: a dictionary's slot and the headers of two bytes objects, rounded up."""


class EntryMap(Protocol):
    """Stored values by store key. A value of ``None`` says that the key is not in the store. Not thread-safe."""

    def __len__(self) -> int:
        """How many entries are written and not settled."""

    @property
    def used_bytes(self) -> int:
        """Memory taken; no less than is really taken, but for the allocator's own."""

    @property
    def written_bytes(self) -> int:
        """What of it the written entries take."""

    @property
    def forgot(self) -> bool:
        """Whether an entry was forgotten, since the map was empty, that was settled or merely read."""

    def get_many(self, keys: Sequence[bytes]) -> tuple[list[bytes | None], list[int]]:
        """The values of the keys, and the places of those of which nothing is known here (their values are
        ``None``)."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Entries are written; later ones win."""

    def keep_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Entries were read from the database. They may be kept, never in place of written ones."""

    def forget_below(self, bound: bytes) -> None:
        """Nothing is known of keys below the bound any more, written ones included."""

    def sort_written(self) -> int:
        """Sort what is written and not settled by key; returns how many entries that are."""

    def written_part(self, prefix: bytes, start: int, stop: int) -> tuple[list[bytes], list[bytes | None]]:
        """Of the sorted entries those with these numbers, their keys with the prefix in front; nothing was put or
        forgotten since they were sorted."""

    def settle(self) -> None:
        """What was written is in the database: it may be forgotten, as what was read."""

    def shrink(self, max_bytes: int) -> None:
        """Forget what was read or settled and not asked for lately, until no more than ``max_bytes`` are used or too little
        is left to forget for a look at all the rest."""

    def clear(self) -> None:
        """Forget everything."""


class WrittenEntries:
    """See the module. ``used_bytes`` counts every write in full, and is put right when that looks too much."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []
        self._counted_bytes = 0
        self._exact_bytes = 0
        self.forgot = False

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def used_bytes(self) -> int:
        if self._counted_bytes > 2 * self._exact_bytes:
            self._counted_bytes = self._exact_bytes = _taken_bytes(self._entries, self._entries.values())
        return self._counted_bytes

    @property
    def written_bytes(self) -> int:
        return self.used_bytes

    def get_many(self, keys: Sequence[bytes]) -> tuple[list[bytes | None], list[int]]:
        if not self._entries:
            return [None] * len(keys), list(range(len(keys)))
        found: list[bytes | None] = list(map(self._entries.get, keys, repeat(_UNKNOWN)))  # type: ignore[arg-type]  # taken out below
        unknown = [i for i, value in enumerate(found) if value is _UNKNOWN]
        for i in unknown:
            found[i] = None
        return found, unknown

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._entries.update(zip(keys, values, strict=True))
        self._counted_bytes += _taken_bytes(keys, values)

    def keep_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Nothing is kept."""

    def forget_below(self, bound: bytes) -> None:
        entries = self._entries
        for key in [k for k in entries if k < bound]:
            del entries[key]

    def sort_written(self) -> int:
        self._sorted = sorted(self._entries)
        return len(self._sorted)

    def written_part(self, prefix: bytes, start: int, stop: int) -> tuple[list[bytes], list[bytes | None]]:
        keys = self._sorted[start:stop]
        return list(map(add, repeat(prefix), keys)), list(map(self._entries.__getitem__, keys))

    def settle(self) -> None:
        forgot = self.forgot or bool(self._entries)
        self.clear()
        self.forgot = forgot

    def shrink(self, max_bytes: int) -> None:
        """What is written stays."""

    def clear(self) -> None:
        self._entries, self._sorted = {}, []
        self._counted_bytes = self._exact_bytes = 0
        self.forgot = False


def _taken_bytes(keys: Collection[bytes], values: Iterable[bytes | None]) -> int:
    return sum(map(len, keys)) + sum(map(len, filter(None, values))) + len(keys) * _HEADERS_BYTES


def new_entries() -> EntryMap:
    """An empty map, compiled where that is there."""
    make: Callable[[], EntryMap] = getattr(compiled(), "EntryMap", WrittenEntries)
    return make()
