"""A store as operators see it: serdes and timestamps above the bytes, uncommitted writes above the backend.

One view per store and task. ``entries`` holds what was read or written lately; ``dirty`` the keys changed since the last
commit. Operators load a batch's distinct keys by one ``load`` (a multi-get for the rest), loop over the dict, and leave
their changes in it; the backend and the changelog see the last value per key once per commit.

The cache has two generations. When ``entries``, the young one, has grown to half of the bound, it becomes the old one,
whose place it takes, and a new one is begun, to which ``load`` brings back what is asked for again. So what was not asked
for during the last half of the bound is what goes, at the cost of one more look into a dictionary for keys that are not
young, and of nothing per entry.

Exactness rests on one rule: a value that can be changed in place is kept as bytes and decoded at every read, so that no
caller can alter what another one sees. Only values of an ``immutable`` serde are kept as objects, and only as a reader
of their bytes would get them (an int written to a store of floats is a float from then on): when the bytes are read
again depends on commits and restarts, which no answer may depend on.

Entries: ``None`` (absent), ``(value, timestamp_ms)`` for immutable serdes, else the stored bytes (timestamp | value).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import add, itemgetter
from typing import Any

from sortedcontainers import SortedSet

from penstock.state.errors import IncompatibleError, SerdeError
from penstock.state.stores.entry_sizes import entries_bytes, marks_bytes
from penstock.state.stores.store import PackedBytes, StateBackend, StoreSpec

_TIMESTAMP = struct.Struct(">q")
_ROOMY_TRIMS = 16
"""So many trims may go by the last look at the sizes, where that found little: values grow without their number."""
_FEW = 32
_KEPT_BELOW = 8
"""How much less is cached here where the backend keeps what was read in less memory: with 8 MB instead of 64 above a map of
128 MB, a million keys were counted in the same time, and rows of a table of a million found in 0.85 of it."""


class KeyValueStoreView:
    """A timestamped key-value store (kinds ``key_value`` and ``window``) in store keys and decoded values."""

    def __init__(self, spec: StoreSpec, backend: StateBackend) -> None:
        self.spec = spec
        self.immutable = spec.value_serde.immutable
        self.exact = spec.value_serde.exact
        """The type whose instances may be entries as they are; others go through ``as_stored``."""
        self.entries: dict[bytes, Any] = {}
        self.dirty: dict[bytes, int] = {}
        self._old: dict[bytes, Any] = {}
        """The old generation. An entry that is young too counts as it is there; what is dirty is young."""
        self._backend = backend
        self._whole = backend.is_empty(spec.name)
        """Whether all that the store holds is in one of the generations: it was empty, and no entry was dropped since. Then
        nobody needs to ask the backend for a key."""
        self._encode = spec.value_serde.serialize
        self._encoders = dict.fromkeys(spec.value_serde.writes, spec.value_serde.encoder)
        """By class, of values that need no further look: a look-up here costs less than a function in Python."""
        self._decode = spec.value_serde.deserialize
        self._floor: bytes | None = None
        self._dropped_to: bytes | None = None
        self._fresh: set[bytes] = set()
        """Dirty keys that the backend does not have."""
        self._sorted: SortedSet[bytes] | None = None
        """The first ``_sorted_len`` dirty keys."""
        self._sorted_len = 0
        self._roomy: tuple[int, int] | None = None
        """A limit of which ``trim`` found little taken, and how many entries may be there without another look."""
        self._roomy_left = 0
        """How often at most."""
        self._measured: tuple[int, int, int] | None = None
        """How many entries were young and old when ``size_bytes`` last looked and nothing was dirty, and what it said;
        ``None``: they may be others now."""

    # -- reading -------------------------------------------------------------------------------------------------

    def load(self, keys: Iterable[bytes]) -> None:
        """Afterwards every key is in ``entries``."""
        missing = list(set(keys).difference(self.entries))
        if missing and self._old:
            old = self._old
            again = {k: old[k] for k in missing if k in old}
            self.entries.update(again)
            missing = [k for k in missing if k not in again]
        if missing and self._whole:
            self.entries.update(dict.fromkeys(missing))
        elif missing:
            found = self._backend.get_many(self.spec.name, missing)
            if self.immutable:
                decode, unpack = self._decode, _TIMESTAMP.unpack_from
                thawed: list[tuple[Any, int] | None] = []
                try:
                    thawed.extend(None if raw is None else (decode(raw[8:]), unpack(raw)[0]) for raw in found)
                except Exception as exc:
                    place = len(thawed)
                    raise self._unreadable(missing[place], found[place], exc) from exc
                self.entries.update(zip(missing, thawed, strict=True))
            else:
                self.entries.update(zip(missing, found, strict=True))

    def entries_of(self, keys: list[bytes]) -> list[Any]:
        """The entry of each key, loaded where it was not there: of a cache that has all of them at half the cost of looking
        for what is missing."""
        try:
            return list(map(self.entries.__getitem__, keys))
        except KeyError:
            self.load(keys)
            return list(map(self.entries.__getitem__, keys))

    def packed(self, data: Any, ends: Any) -> PackedBytes | None:
        """The bytes of the committed values of keys, given and given back as ``PackedBytes``: what is ``dirty`` is not seen.
        ``None``: there is no such form, or entries are about to expire."""
        if self._floor is not None:
            return None
        return self._backend.get_packed(self.spec.name, data, ends, _TIMESTAMP.size)

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """Value and timestamp, or ``None``."""
        if self._floor is not None and key < self._floor:
            return None
        entries = self.entries
        if key not in entries:
            self.load((key,))
        return self.unpack(entries[key], key)

    def changed(self, key: bytes) -> bool:
        """Whether the key was written since the last commit."""
        self.load((key,))
        return key in self.dirty

    def unpack(self, entry: Any, key: bytes) -> tuple[Any, int] | None:
        """The value and timestamp of the entry of ``key``. Raises ``IncompatibleError`` for one that cannot be read."""
        if entry is None or self.immutable:
            return entry  # type: ignore[no-any-return]  # the tuple of an immutable serde
        try:
            return self._decode(entry[8:]), _TIMESTAMP.unpack_from(entry)[0]
        except Exception as exc:
            raise self._unreadable(key, entry, exc) from exc

    def _unreadable(self, key: bytes, raw: bytes | None, exc: Exception) -> IncompatibleError:
        """What to raise of a stored value that the serde cannot read: no policy for records may pass over it."""
        value = b"" if raw is None else raw[8:]
        return IncompatibleError(
            f"store {self.spec.name} holds under key {key!r:.100} the value {value!r:.200}, which serde "
            f"{self.spec.value_serde.name} cannot read ({type(exc).__name__}: {exc}). The fault is the store's, not the "
            "record's: its values were written by another serde or an earlier form of the type. Give new fields a default, "
            "or go back to the type they were written with, or give the store another name, under which it begins empty"
        )

    def range(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        """``(key, value, timestamp)`` with ``low <= key < high`` in unsigned byte order: of the keys that are there when
        the first one is asked for, those that are there when they are reached, as they stand then."""
        if self._floor is not None and (low is None or low < self._floor):
            low = self._floor
        written = self._written_keys(low, high, reverse)
        stored = self._backend.range(self.spec.name, low, high, reverse=reverse)
        absent = {k for k in written if self.entries[k] is None}
        last = None
        rows: Iterator[tuple[bytes, bytes | None]] = iter(stored)
        if written:  # merging costs more than reading a few rows does
            rows = merge(((k, None) for k in written), stored, key=itemgetter(0), reverse=reverse)
        for key, raw in rows:
            if key == last or key in absent:
                continue
            last = key
            entry = self.entries[key] if key in self.dirty else (self._thaw(raw, key) if self.immutable else raw)
            found = self.unpack(entry, key)
            if found is not None:
                yield key, found[0], found[1]

    def first(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> tuple[bytes, Any, int] | None:
        """The first entry that ``range`` gives, at the cost of a few steps however long the range is."""
        if self._floor is not None and (low is None or low < self._floor):
            low = self._floor
        written = self._sorted_keys().irange(low, high, inclusive=(True, False), reverse=reverse)
        ours = next((k for k in written if self.entries[k] is not None), None)
        if ours is not None:
            low, high = (ours, high) if reverse else (low, ours)
        for key, raw in self._backend.range(self.spec.name, low, high, reverse=reverse):
            if key not in self.dirty:
                found = self.unpack(self._thaw(raw, key) if self.immutable else raw, key)
                return None if found is None else (key, *found)
        found = None if ours is None else self.unpack(self.entries[ours], ours)
        return None if ours is None or found is None else (ours, *found)

    def _written_keys(self, low: bytes | None, high: bytes | None, reverse: bool) -> list[bytes]:
        """The dirty keys of a range, sorted."""
        return list(self._sorted_keys().irange(low, high, inclusive=(True, False), reverse=reverse))

    def _sorted_keys(self) -> SortedSet[bytes]:
        """The dirty keys, sorted. The sorted form is made at the first read and kept up from then."""
        if self._sorted is None:
            self._sorted = SortedSet(self.dirty)
        elif self._sorted_len != len(self.dirty):
            # dict keeps insertion order: only the keys since the last read are new, and they stand at the end
            self._sorted.update(islice(reversed(self.dirty), len(self.dirty) - self._sorted_len))
        self._sorted_len = len(self.dirty)
        return self._sorted

    def _thaw(self, raw: bytes | None, key: bytes) -> Any:
        """Stored bytes as the entry of an immutable serde."""
        try:
            return None if raw is None else (self._decode(raw[8:]), _TIMESTAMP.unpack_from(raw)[0])
        except Exception as exc:
            raise self._unreadable(key, raw, exc) from exc

    # -- writing -------------------------------------------------------------------------------------------------

    def put(self, key: bytes, value: Any, timestamp_ms: int) -> None:
        """Set the value; ``None`` deletes."""
        self.put_entry(key, self.entry_of(value, timestamp_ms), timestamp_ms)

    def put_new(self, key: bytes, value: Any, timestamp_ms: int) -> None:
        """``put`` by a caller who knows that there is no such entry. If it is deleted again before the commit, the commit
        writes nothing of it, not even a deletion."""
        self.put_entry(key, self.entry_of(value, timestamp_ms), timestamp_ms, new=True)

    def entry_of(self, value: Any, timestamp_ms: int) -> Any:
        """The entry that ``put`` would make. What the serde raises is raised here, before anything is written."""
        if value is None:
            return None
        if self.immutable:
            return value if type(value) is self.exact else self.as_stored(value), timestamp_ms
        return _TIMESTAMP.pack(timestamp_ms) + self._encoders.get(type(value), self._encode)(value)

    def put_entry(self, key: bytes, entry: Any, timestamp_ms: int, *, new: bool = False) -> None:
        """``put``, or with ``new`` ``put_new``, of what ``entry_of`` made."""
        if entry is None:
            if key in self._fresh:
                self._withdraw(key)
                return
            if new:
                return
        elif new and key not in self.dirty:  # else the backend may hold one that is to be deleted
            self._fresh.add(key)
        self.entries[key] = entry
        self.dirty[key] = timestamp_ms

    def _withdraw(self, key: bytes) -> None:
        """Delete an entry that the backend does not have."""
        self._fresh.discard(key)
        self.entries[key] = None
        del self.dirty[key]
        if self._sorted is not None and key in self._sorted:
            self._sorted.discard(key)
            self._sorted_len -= 1

    def as_stored(self, value: Any) -> Any:
        """The value as a reader of its bytes gets it."""
        return self._decode(self._encoders.get(type(value), self._encode)(value))

    def put_raw(
        self, keys: list[bytes], raw_values: list[bytes | None], values: list[Any], timestamps: list[int]
    ) -> None:
        """Set many values that are already serialized (a table's topic); ``values`` are the same, decoded. Later ones
        win."""
        pack = _TIMESTAMP.pack
        if self.immutable:
            self.entries.update(
                (k, None if v is None else (v, t)) for k, v, t in zip(keys, values, timestamps, strict=True)
            )
        else:
            self.entries.update(
                (k, None if v is None else pack(t) + v) for k, v, t in zip(keys, raw_values, timestamps, strict=True)
            )
        self.dirty.update(zip(keys, timestamps, strict=True))

    def expire_below(self, floor: bytes) -> None:
        """Keys below ``floor`` are gone for every reader from now on, and dropped from the backend at the commit."""
        if self._floor is None or floor > self._floor:
            self._floor = floor

    # -- commit --------------------------------------------------------------------------------------------------

    def pending(self) -> tuple[list[bytes], list[bytes | None], list[int]]:
        """What the next commit writes: keys, stored values (``None`` deletes) and timestamps, in the order in which
        the keys were first changed since the last one. Expired keys are left out."""
        entries, floor = self.entries, self._floor
        dirty = self.dirty
        keys = list(dirty) if floor is None else [k for k in dirty if k >= floor]
        if self.immutable:
            # what is kept as objects is what a reader of its bytes gets, so it need not be looked at again
            pack, encode = _TIMESTAMP.pack, self.spec.value_serde.encoder
            raw: list[bytes | None] = []
            written = list(map(entries.__getitem__, keys))
            try:
                if None in written:
                    raw.extend(None if e is None else pack(e[1]) + encode(e[0]) for e in written)
                else:  # the same in C
                    times, values = map(itemgetter(1), written), map(itemgetter(0), written)
                    raw.extend(map(add, map(pack, times), map(encode, values)))
            except Exception as exc:
                bad = keys[len(raw)]
                raise SerdeError(
                    f"store {self.spec.name}: serde {self.spec.value_serde.name} cannot write {entries[bad][0]!r:.100} "
                    f"under key {bad!r:.100} ({exc}), so nothing is committed; mend the function that made the value, "
                    "or give the store the serde of its type"
                ) from exc
        else:
            raw = list(map(entries.__getitem__, keys))
        return keys, raw, list(map(dirty.__getitem__, keys))

    @property
    def drop_below(self) -> bytes | None:
        """The floor under which the backend still holds entries that are to be dropped."""
        return self._floor if self._floor != self._dropped_to else None

    def committed(self) -> None:
        """The pending writes are in the backend."""
        self._measured = None
        self.dirty.clear()
        self._fresh.clear()
        self._sorted, self._sorted_len = None, 0
        if self._floor != self._dropped_to:
            floor = self._floor
            assert floor is not None
            self.entries = {k: e for k, e in self.entries.items() if k >= floor}
            self._old = {k: e for k, e in self._old.items() if k >= floor}
            self._dropped_to = floor

    def discard(self) -> None:
        """Forget everything that is not committed; reads go to the backend again."""
        self._measured = None
        self._whole = False
        self.entries.clear()
        self._old.clear()
        self.dirty.clear()
        self._fresh.clear()
        self._sorted, self._sorted_len = None, 0
        self._floor = self._dropped_to

    def trim(self, max_bytes: int, *, anew: bool = False) -> None:
        """Drop clean entries that were not asked for lately until the estimate is below ``max_bytes``, or a part of it
        where the backend keeps what was read. Dirty ones stay. ``anew``: whatever was estimated before."""
        if not anew and self._fits(max_bytes):
            return
        self._measured = None
        if self._backend.keeps_reads:
            max_bytes //= _KEPT_BELOW
        if 2 * entries_bytes(self.entries) > max_bytes and 2 * len(self.dirty) <= len(self.entries):
            self._whole = self._whole and not self._old
            self._old = self.entries
            self.entries = {k: self._old[k] for k in self.dirty}
        size = self.size_bytes()
        if size > max_bytes:
            self._whole = self._whole and not self._old
            self._old = {}
        self._roomy = None if 4 * size > max_bytes else (max_bytes, 2 * (len(self.entries) + len(self._old)) + _FEW)
        self._roomy_left = _ROOMY_TRIMS

    def _fits(self, max_bytes: int) -> bool:
        """Whether a look not long ago found a quarter of that at most taken, and since then the entries have not doubled:
        looking at their sizes takes as long as changing a hundred of them."""
        if self._backend.keeps_reads:
            max_bytes //= _KEPT_BELOW
        if self._roomy is None or self._roomy_left == 0:
            return False
        self._roomy_left -= 1
        return max_bytes >= self._roomy[0] and len(self.entries) + len(self._old) <= self._roomy[1]

    def uncommitted_bytes(self) -> int:
        """Estimated memory of what the next commit writes."""
        dirty = len(self.dirty)
        return marks_bytes(dirty) + (entries_bytes(self.entries) * dirty // len(self.entries) if dirty else 0)

    def size_bytes(self) -> int:
        """Estimated memory of what is cached and of what is not committed."""
        young, old = len(self.entries), len(self._old)
        if self.dirty:
            return entries_bytes(self.entries) + entries_bytes(self._old) + marks_bytes(len(self.dirty))
        if self._measured is None or self._measured[:2] != (young, old):
            # A look at the sizes takes as long as joining hundreds of records, which need not have touched them.
            self._measured = young, old, entries_bytes(self.entries) + entries_bytes(self._old)
        return self._measured[2]


def window_key(start_ms: int, key: bytes) -> bytes:
    """The store key of a window store: start (8, big-endian) | key."""
    return _TIMESTAMP.pack(start_ms) + key


def window_floor(start_ms: int) -> bytes:
    """The smallest store key of windows that start at ``start_ms`` or later."""
    return _TIMESTAMP.pack(max(start_ms, 0))
