"""Entries of one store held in memory above the database: what was written since the last write-out and, if there is
room, what was read.

``EntryMap`` is the interface. The compiled form (``penstock_native.EntryMap``) keeps both; its ``find_rows`` and
``put_rows``, which the Python form lacks, are ``get_many`` and ``put_many`` for columns in buffers. The Python form is
a dictionary of what was written, and takes more than three times the memory. It does not keep what was merely read: the
views above already do, decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice, repeat
from operator import add
from typing import Protocol

from sortedcontainers import SortedList

from penstock.state.native import compiled
from penstock.state.stores.entry_sizes import SLOT_BYTES

_UNKNOWN = object()
_HEADERS_BYTES = SLOT_BYTES + 2 * 40
"""The memory of an entry in addition to its bytes: a dictionary slot and the headers of two bytes objects, rounded
up."""


class EntryMap(Protocol):
    """Stored values by store key. A value of ``None`` says that the key is not in the store. Not thread-safe."""

    def __len__(self) -> int:
        """The number of entries that are written and not settled."""

    @property
    def used_bytes(self) -> int:
        """Memory taken: an upper bound, without the allocator's overhead."""

    @property
    def written_bytes(self) -> int:
        """The part of it that the written entries take."""

    @property
    def forgot(self) -> bool:
        """Whether an entry that was settled or merely read has been forgotten since the map was empty."""

    def get_many(self, keys: Sequence[bytes]) -> tuple[list[bytes | None], list[int]]:
        """The values of the keys, and the indices of unknown keys (with value ``None``)."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write entries; later ones win."""

    def keep_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Offer entries read from the database. They may be kept, but never replace written ones."""

    def forget_below(self, bound: bytes) -> None:
        """Forget all keys below the bound, written ones included."""

    def sort_written(self) -> int:
        """Sort what is written and not settled by key; returns how many entries that are."""

    def written_part(self, prefix: bytes, start: int, stop: int) -> tuple[list[bytes], list[bytes | None]]:
        """The sorted entries with these numbers, with prefixed keys. Call it only if nothing was put or forgotten since
        sorting."""

    def written_between(
        self, low: bytes, high: bytes | None, most: int, last: bool
    ) -> tuple[list[bytes], list[bytes | None]]:
        """Up to ``most`` entries with ``low <= key < high`` that are written and not settled, by key: the first, or the
        last of them. ``high=None``: to the end."""

    def settle(self) -> None:
        """Mark what was written as stored in the database: it may now be forgotten like what was read."""

    def shrink(self, max_bytes: int) -> None:
        """Forget entries that were read or settled and not used lately, until at most ``max_bytes`` are used or too
        little is left to forget to be worth a scan."""

    def clear(self) -> None:
        """Forget everything."""


class WrittenEntries:
    """The Python form, see the module. ``used_bytes`` counts every write in full, and is corrected when the sum seems
    too high."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes | None] = {}
        self._sorted: list[bytes] = []
        self._ordered: SortedList[bytes] | None = None
        """The keys as of the last search by range."""
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
        """Keeps nothing."""

    def forget_below(self, bound: bytes) -> None:
        entries = self._entries
        for key in [k for k in entries if k < bound]:
            del entries[key]
        self._ordered = None

    def sort_written(self) -> int:
        self._sorted = sorted(self._entries)
        return len(self._sorted)

    def written_part(self, prefix: bytes, start: int, stop: int) -> tuple[list[bytes], list[bytes | None]]:
        keys = self._sorted[start:stop]
        return list(map(add, repeat(prefix), keys)), list(map(self._entries.__getitem__, keys))

    def written_between(
        self, low: bytes, high: bytes | None, most: int, last: bool
    ) -> tuple[list[bytes], list[bytes | None]]:
        entries = self._entries
        if self._ordered is None:
            self._ordered = SortedList(entries)
        elif len(self._ordered) != len(entries):
            # a dict keeps the order of insertion: the keys that are new since the last search are at the end
            self._ordered.update(islice(reversed(entries), len(entries) - len(self._ordered)))
        keys = list(islice(self._ordered.irange(low, high, inclusive=(True, False), reverse=last), most))
        if last:
            keys.reverse()
        return keys, list(map(entries.__getitem__, keys))

    def settle(self) -> None:
        forgot = self.forgot or bool(self._entries)
        self.clear()
        self.forgot = forgot

    def shrink(self, max_bytes: int) -> None:
        """Does nothing: what is written stays."""

    def clear(self) -> None:
        self._entries, self._sorted, self._ordered = {}, [], None
        self._counted_bytes = self._exact_bytes = 0
        self.forgot = False


def _taken_bytes(keys: Collection[bytes], values: Iterable[bytes | None]) -> int:
    return sum(map(len, keys)) + sum(map(len, filter(None, values))) + len(keys) * _HEADERS_BYTES


def new_entries() -> EntryMap:
    """An empty map, compiled if the compiled part is in use."""
    make: Callable[[], EntryMap] = getattr(compiled(), "EntryMap", WrittenEntries)
    return make()
