"""A store as operators see it: serdes and timestamps above the bytes, uncommitted writes above the backend.

One view per store and task. ``entries`` holds what was read or written lately; ``dirty`` the keys changed since the
last commit. Operators load a batch's distinct keys with one ``load`` (a multi-get for the missing ones), loop over the
dict, and leave their changes in it. The backend and the changelog see the last value per key once per commit.

The cache has two generations. When ``entries``, the young one, has grown to half of the bound, it replaces the old one
and a new one begins; ``load`` brings back what is used again. So entries go that were not used while the last half of
the bound was filled. This costs one more dictionary lookup for keys that are not young, and nothing per entry.

Exactness rests on one rule: a mutable value is kept as bytes and decoded at every read, so that no caller can alter
what another one sees. Only values of an ``immutable`` serde are kept as objects, and only in the form that their bytes
decode to (an int written to a store of floats becomes a float): when bytes are decoded again depends on commits and
restarts, on which no answer may depend.

Entries: ``None`` (absent), ``(value, timestamp_ms)`` for immutable serdes, else the stored bytes (timestamp | value), as
also where the store's spec says so (``as_bytes``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import add, itemgetter
from typing import Any

from sortedcontainers import SortedSet

from penstock.state.errors import IncompatibleError, SerdeError
from penstock.state.stores.entry_sizes import entries_bytes, marks_bytes
from penstock.state.stores.store import PackedBytes, PackedChanges, RangesAtOnce, StateBackend, StoreSpec

_TIMESTAMP = struct.Struct(">q")
_ROOMY_TRIMS = 16
"""How many trims may rely on the last size estimate if it was low. Limited, because values grow even if their number
does not."""
_FEW = 32
_KEPT_BELOW = 8
"""The divisor of this cache's bound if the backend keeps what was read: the backend needs less memory for it, so a
large cache here does not pay."""


class KeyValueStoreView:
    """A timestamped key-value store (kinds ``key_value`` and ``window``) in store keys and decoded values."""

    def __init__(self, spec: StoreSpec, backend: StateBackend) -> None:
        self.spec = spec
        self.immutable = spec.value_serde.immutable and not spec.as_bytes
        """Whether entries are objects."""
        self._rounds = spec.value_serde.immutable and spec.as_bytes
        """Whether values are written as the bytes of what their bytes decode to, as those of entries that are objects."""
        self.exact = spec.value_serde.exact
        """The type whose instances are stored as entries unchanged; others go through ``as_stored``."""
        self.entries: dict[bytes, Any] = {}
        self.dirty: dict[bytes, int] = {}
        self._old: dict[bytes, Any] = {}
        """The old generation. If a key is in both, the young entry counts; dirty entries are always young."""
        self._backend = backend
        self._whole = backend.is_empty(spec.name)
        """Whether the generations hold the whole store: it was empty, and no entry was dropped since. Then no read
        needs the backend."""
        self._encode = spec.value_serde.serialize
        self._encoders = dict.fromkeys(spec.value_serde.writes, spec.value_serde.encoder)
        """Classes whose values need no further check: a lookup here is cheaper than a call in Python."""
        self._decode = spec.value_serde.deserialize
        self._lists = spec.value_serde.lists if self.immutable else None
        self._floor: bytes | None = None
        self._dropped_to: bytes | None = None
        self._fresh: set[bytes] = set()
        """Dirty keys that the backend does not have."""
        self._sorted: SortedSet[bytes] | None = None
        """The first ``_sorted_len`` dirty keys, sorted."""
        self._sorted_len = 0
        self.hits = self.misses = 0
        """How many keys of batches were in memory, and how many were read from the backend."""
        self._deferred: Callable[[], None] | None = None
        """See ``defer``."""
        self._roomy: tuple[int, int] | None = None
        """A limit of which ``trim`` found little used, and how many entries there may be before it must look again."""
        self._roomy_left = 0
        """How many more times ``trim`` may skip the look."""
        self._measured: tuple[int, int, int] | None = None
        """The numbers of young and old entries and the result when ``size_bytes`` last looked while nothing was dirty;
        ``None``: outdated."""

    def keep_bytes(self) -> None:
        """Keep entries as bytes in memory, as where the spec says so (``as_bytes``). For an owner that reads and writes
        bytes, before anything was read."""
        assert not self.entries and not self._old, self.spec.name
        self.immutable, self._lists = False, None
        self._rounds = self.spec.value_serde.immutable

    def defer(self, settle: Callable[[], None] | None) -> None:
        """Have ``settle`` called, once, before anything reads or writes the store, the commit too: it puts what its owner
        has held back. ``None``: nothing is held back any more. ``discard`` discards what is."""
        self._deferred = settle

    def _settle_deferred(self) -> None:
        settle, self._deferred = self._deferred, None
        if settle is not None:
            settle()

    # -- reading -------------------------------------------------------------------------------------------------

    def load(self, keys: Iterable[bytes]) -> None:
        """Load the keys; afterwards every key is in ``entries``."""
        if self._deferred is not None:
            self._settle_deferred()
        wanted = set(keys)
        missing = list(wanted.difference(self.entries))
        if missing and self._old:
            old = self._old
            again = {k: old[k] for k in missing if k in old}
            self.entries.update(again)
            missing = [k for k in missing if k not in again]
        self.hits += len(wanted)
        if missing and self._whole:
            self.entries.update(dict.fromkeys(missing))
        elif missing:
            self.misses += len(missing)
            self.hits -= len(missing)
            found = self._backend.get_many(self.spec.name, missing)
            whole = None if self._lists is None else self._lists.read_entries(found)
            if whole is not None:
                self.entries.update(zip(missing, whole, strict=True))
            elif self.immutable:
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
        """The entry of each key, loaded if missing. Faster than ``load`` if the cache has all of them."""
        if self._deferred is not None:
            self._settle_deferred()
        try:
            found = list(map(self.entries.__getitem__, keys))
            self.hits += len(keys)
            return found
        except KeyError:
            self.load(keys)
            return list(map(self.entries.__getitem__, keys))

    def packed(self, data: Any, ends: Any) -> PackedBytes | None:
        """The committed values of keys, both as ``PackedBytes``; does not see ``dirty`` entries. ``None``: the backend
        does not support it, or entries are about to expire."""
        if self._deferred is not None:
            self._settle_deferred()
        if self._floor is not None:
            return None
        return self._backend.get_packed(self.spec.name, data, ends, _TIMESTAMP.size)

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """Value and timestamp, or ``None``."""
        if self._deferred is not None:
            self._settle_deferred()
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
        """The error for a stored value that the serde cannot read: no policy for records may pass over it."""
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
        """``(key, value, timestamp)`` with ``low <= key < high`` in unsigned byte order. Covers the keys that exist at
        the first step; each is read when it is reached, and skipped if it is gone by then."""
        for key, entry in self.entries_between(low, high, reverse=reverse):
            found = self.unpack(entry, key)
            if found is not None:
                yield key, found[0], found[1]

    def entries_between(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        """``range`` with entries; one that is gone may be ``None``."""
        if self._deferred is not None:
            self._settle_deferred()
        if self._floor is not None and (low is None or low < self._floor):
            low = self._floor
        written = self._written_keys(low, high, reverse) if self.dirty else []
        stored = self._backend.range(self.spec.name, low, high, reverse=reverse)
        absent = {k for k in written if self.entries[k] is None} if written else ()
        last = None
        rows: Iterator[tuple[bytes, bytes | None]] = iter(stored)
        if written:  # merging costs more than reading a few rows
            rows = merge(((k, None) for k in written), stored, key=itemgetter(0), reverse=reverse)
        for key, raw in rows:
            if key == last or key in absent:
                continue
            last = key
            yield key, self.entries[key] if key in self.dirty else (self._thaw(raw, key) if self.immutable else raw)

    def entries_within(self, bounds: Sequence[tuple[bytes, bytes]]) -> list[list[tuple[bytes, Any]]]:
        """``entries_between`` of each of many short ranges."""
        if self._deferred is not None:
            self._settle_deferred()
        if self._floor is not None or self.immutable or not isinstance(self._backend, RangesAtOnce):
            return [list(self.entries_between(low, high)) for low, high in bounds]
        out: list[list[tuple[bytes, Any]]] = [*self._backend.ranges(self.spec.name, bounds)]
        for i, (low, high) in enumerate(bounds if self.dirty else ()):
            written = self._written_keys(low, high, False)
            if written:
                out[i] = sorted({**dict(out[i]), **{key: self.entries[key] for key in written}}.items())
        return out

    def first(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> tuple[bytes, Any, int] | None:
        """The first entry of ``range``, at the cost of a few steps for any length of the range."""
        if self._deferred is not None:
            self._settle_deferred()
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
        """The dirty keys, sorted. Sorts at the first read and keeps the order up to date from then on."""
        if self._sorted is None:
            self._sorted = SortedSet(self.dirty)
        elif self._sorted_len != len(self.dirty):
            # dict keeps insertion order: the keys that are new since the last read are at the end
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
        if self.immutable and value is not None and type(value) is not self.exact:
            held = self.entries.get(key)
            if held is not None and held[0] is value:  # what was stored is in the form to store
                self.put_entry(key, (value, timestamp_ms), timestamp_ms)
                return
        self.put_entry(key, self.entry_of(value, timestamp_ms), timestamp_ms)

    def put_new(self, key: bytes, value: Any, timestamp_ms: int) -> None:
        """``put`` for a key that is known to be absent. If it is deleted again before the commit, the commit writes
        nothing for it, not even a deletion."""
        self.put_entry(key, self.entry_of(value, timestamp_ms), timestamp_ms, new=True)

    def entry_of(self, value: Any, timestamp_ms: int) -> Any:
        """The entry that ``put`` would make. Raises what the serde raises, before anything is written."""
        if value is None:
            return None
        if self.immutable:
            return value if type(value) is self.exact else self.as_stored(value), timestamp_ms
        if self._rounds and type(value) is not self.exact:
            value = self.as_stored(value)
        return _TIMESTAMP.pack(timestamp_ms) + self._encoders.get(type(value), self._encode)(value)

    def put_entry(self, key: bytes, entry: Any, timestamp_ms: int, *, new: bool = False) -> None:
        """``put``, or with ``new`` ``put_new``, of the result of ``entry_of``."""
        if self._deferred is not None:
            self._settle_deferred()
        if entry is None:
            if key in self._fresh:
                self._withdraw(key)
                return
            if new:
                return
        elif new and key not in self.dirty:  # else the backend may hold an entry, which must be deleted
            self._fresh.add(key)
        self.entries[key] = entry
        self.dirty[key] = timestamp_ms

    def put_entries(
        self, keys: Sequence[bytes], entries: Sequence[Any], timestamps: Sequence[int], *, new: bool = False
    ) -> None:
        """``put_entry`` of several entries, none of which deletes and of which no two have one key."""
        if self._deferred is not None:
            self._settle_deferred()
        if new:
            self._fresh.update(set(keys).difference(self.dirty))
        self.entries.update(zip(keys, entries, strict=True))
        self.dirty.update(zip(keys, timestamps, strict=True))

    def _withdraw(self, key: bytes) -> None:
        """Delete an entry that the backend does not have."""
        self._fresh.discard(key)
        self.entries[key] = None
        del self.dirty[key]
        if self._sorted is not None and key in self._sorted:
            self._sorted.discard(key)
            self._sorted_len -= 1

    def as_stored(self, value: Any) -> Any:
        """The value that its bytes decode to."""
        return self._decode(self._encoders.get(type(value), self._encode)(value))

    def put_raw(
        self, keys: list[bytes], raw_values: list[bytes | None], values: list[Any], timestamps: list[int]
    ) -> None:
        """Set many values that are already serialized; ``values`` holds them decoded, and is not used where entries are
        bytes. Later ones win."""
        if self._deferred is not None:
            self._settle_deferred()
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
        """Hide keys below ``floor`` from every reader from now on, and drop them from the backend at the commit."""
        if self._floor is None or floor > self._floor:
            self._floor = floor

    # -- commit --------------------------------------------------------------------------------------------------

    def pending(self) -> tuple[list[bytes], list[bytes | None], list[int]]:
        """The writes of the next commit: keys, stored values (``None`` deletes) and timestamps, in the order of each
        key's first change since the last one. Skips expired keys."""
        if self._deferred is not None:
            self._settle_deferred()
        entries, floor = self.entries, self._floor
        dirty = self.dirty
        keys = list(dirty) if floor is None else [k for k in dirty if k >= floor]
        if self.immutable:
            # objects are kept in the form that their bytes decode to, so they need no further check
            pack, encode = _TIMESTAMP.pack, self.spec.value_serde.encoder
            raw: list[bytes | None] = []
            written = list(map(entries.__getitem__, keys))
            whole = None if self._lists is None else self._lists.write_entries(written)
            try:
                if whole is not None:
                    raw = whole
                elif None in written:
                    raw.extend(None if e is None else pack(e[1]) + encode(e[0]) for e in written)
                else:  # the same in C
                    times, values = map(itemgetter(1), written), map(itemgetter(0), written)
                    raw.extend(map(add, map(pack, times), map(encode, values)))
            except Exception as exc:
                bad = keys[len(raw)]
                raise SerdeError(
                    f"store {self.spec.name}: serde {self.spec.value_serde.name} cannot write {entries[bad][0]!r:.100} "
                    f"under key {bad!r:.100} ({exc}), so nothing is committed; fix the function that made the value, "
                    "or give the store the serde of its type"
                ) from exc
        else:
            raw = list(map(entries.__getitem__, keys))
        return keys, raw, list(map(dirty.__getitem__, keys))

    def packed_changes(self) -> PackedChanges | None:
        """``pending`` as columns; ``None``: it is not kept so, or there is nothing."""
        return None

    @property
    def drop_below(self) -> bytes | None:
        """The floor below which the backend still holds entries to drop."""
        return self._floor if self._floor != self._dropped_to else None

    def committed(self) -> None:
        """Mark the pending writes as stored in the backend."""
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
        """Discard everything uncommitted; reads go to the backend again."""
        self._deferred = None
        self._measured = None
        self._whole = False
        self.entries.clear()
        self._old.clear()
        self.dirty.clear()
        self._fresh.clear()
        self._sorted, self._sorted_len = None, 0
        self._floor = self._dropped_to

    def trim(self, max_bytes: int, *, remeasure: bool = False) -> None:
        """Drop clean entries that were not used lately until the estimate is below ``max_bytes``, or a part of it if
        the backend keeps what was read. Dirty ones stay. ``remeasure``: ignore earlier estimates."""
        if not remeasure and self._fits(max_bytes):
            return
        self._measured = None
        if self._backend.keeps_reads:
            max_bytes //= _KEPT_BELOW
        if 2 * entries_bytes(self.entries) > max_bytes and 2 * len(self.dirty) <= len(self.entries):
            self._whole = self._whole and not self._old
            self._old = self.entries
            self.entries = {k: self._old[k] for k in self.dirty}
        size = self._trimmed_bytes()
        if size > max_bytes:
            self._whole = self._whole and not self._old
            self._old = {}
        self._roomy = None if 4 * size > max_bytes else (max_bytes, 2 * (len(self.entries) + len(self._old)) + _FEW)
        self._roomy_left = _ROOMY_TRIMS

    def _fits(self, max_bytes: int) -> bool:
        """Whether a recent look found at most a quarter of the limit used, and the entries have not doubled since:
        looking at sizes takes as long as changing a hundred entries."""
        if self._backend.keeps_reads:
            max_bytes //= _KEPT_BELOW
        if self._roomy is None or self._roomy_left == 0:
            return False
        self._roomy_left -= 1
        return max_bytes >= self._roomy[0] and len(self.entries) + len(self._old) <= self._roomy[1]

    def _trimmed_bytes(self) -> int:
        """The memory that ``trim`` keeps within its bound."""
        return self.size_bytes()

    def uncommitted_bytes(self) -> int:
        """Estimated memory of the next commit's writes."""
        if self._deferred is not None:
            self._settle_deferred()
        dirty = len(self.dirty)
        return marks_bytes(dirty) + (entries_bytes(self.entries) * dirty // len(self.entries) if dirty else 0)

    def size_bytes(self) -> int:
        """Estimated memory of cached and uncommitted entries."""
        young, old = len(self.entries), len(self._old)
        if self.dirty:
            return entries_bytes(self.entries) + entries_bytes(self._old) + marks_bytes(len(self.dirty))
        if self._measured is None or self._measured[:2] != (young, old):
            # Looking at sizes takes as long as joining hundreds of records, which may not have touched any entry.
            self._measured = young, old, entries_bytes(self.entries) + entries_bytes(self._old)
        return self._measured[2]


def window_key(start_ms: int, key: bytes) -> bytes:
    """The store key of a window store: start (8, big-endian) | key."""
    return _TIMESTAMP.pack(start_ms) + key


def window_floor(start_ms: int) -> bytes:
    """The smallest store key of windows that start at ``start_ms`` or later."""
    return _TIMESTAMP.pack(max(start_ms, 0))
