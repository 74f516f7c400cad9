"""A list store that the compiled part keeps: columns of entries go in, and come out at the commit, without a dictionary
lookup or a Python object per entry.

Either the compiled entries know which entries the keys have, and hold all that is uncommitted (the view is *packed*), or
the view's own groups and entries do, as in ``ListStoreView``. A view becomes packed when columns come and nothing is
uncommitted. Any other way to read or write the store moves what is uncommitted into the view's own entries. What is known
of the keys is lost then, and must be read again, so the view is not packed again for some commits: for more of them, the
more often that happens.

Values of committed entries are not held here: the backend keeps what was written lately.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.state.native import compiled
from penstock.state.stores.list_store import BEHIND_GROUP, PART, SEQUENCE_BYTES, ListStoreView, group_range
from penstock.state.stores.store import PackedChanges, RangesAtOnce, StampedPuts, StateBackend, StoreSpec

if TYPE_CHECKING:
    from penstock_native import ListEntries

_LONG = struct.Struct(">q")
_FIRST_NUMBER = bytes(SEQUENCE_BYTES)
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_STAMP_BYTES = 8
_AT_ONCE = 4_096
"""How many groups are read at once."""
COMMITS_IN_ROWS_MAX = 64
"""How many commits at most a view that was used by rows stays so: at first one, then twice as many each time, until it was
packed for that many."""

Int64s = NDArray[np.int64]
Texts = tuple[Any, Any]
"""A column of byte strings without nulls: data and int64 offsets."""


class PackedListView(ListStoreView):
    """See the module."""

    def __init__(self, spec: StoreSpec, backend: StateBackend, entries: ListEntries) -> None:
        super().__init__(spec, backend)
        self._packed = entries
        self._is_packed = False
        self._rows_left = 0
        """For how many more commits the view stays one of rows."""
        self._rows_next = 1
        """For how many it will when it is used by rows again."""
        self._packed_commits = 0
        """How many commits it has been packed for."""
        self._trim_bytes: int | None = None
        """To how much memory the next commit trims."""

    # -- columns -------------------------------------------------------------------------------------------------

    def takes_columns(self) -> bool:
        """Make the view packed if possible. Returns whether it is, so that ``within`` and ``append_texts`` may be used."""
        if not self._is_packed and not self.dirty and not self._rows_left:
            self._begin()
        return self._is_packed

    def _begin(self) -> None:
        first, last = super().first(), super().first(reverse=True)
        self.forget()
        if first is None or last is None:
            self._packed.begin(_HIGHEST, -1)
        else:
            last_segment = _LONG.unpack_from(last[0])[0]
            self._packed.begin(_LONG.unpack_from(first[0])[0], (last_segment + 1) * self.spec.segment_ms - 1)
        self._is_packed, self._packed_commits = True, 0

    def within(self, keys: Texts, from_ms: int, to_ms: int) -> tuple[Int64s, Int64s]:
        """Find the entries of each key, all distinct, with ``from_ms <= time <= to_ms``. Returns how many each key has, and
        their times by key, time, number. None of these times may have expired."""
        to_ms = min(to_ms, _HIGHEST)
        counts, times, unknown = self._packed.within(*keys, from_ms, to_ms)
        if unknown:
            self._load(unknown)
            counts, times, unknown = self._packed.within(*keys, from_ms, to_ms)
            assert not unknown
        return np.frombuffer(counts, np.int64), np.frombuffer(times, np.int64)

    def values_at(self, places: Int64s) -> Texts:
        """The stored values, without timestamps, of entries that ``within`` found last, by their places in its answer."""
        texts, absent = self._texts_of(self._packed.values(np.ascontiguousarray(places, np.int64)))
        assert absent is None, "an entry of a group is gone"
        return texts

    def names_at(self, places: Int64s) -> list[bytes]:
        """The names, key, time and number, of entries that ``within`` found last."""
        native = compiled()
        assert native is not None
        data, ends = self._packed.names(np.ascontiguousarray(places, np.int64))
        named: list[bytes] = native.list_rows(data, np.frombuffer(ends, np.int64), None)
        return named

    def values_named(self, names: list[bytes]) -> tuple[Texts, NDArray[np.bool_] | None]:
        """The stored values of entries by their names, and which of these the store does not have; ``None``: it has all."""
        native = compiled()
        assert native is not None
        data, ends, _ = native.pack_rows(names)
        return self._texts_of(self._packed.named(data, np.frombuffer(ends, np.int64)))

    def _texts_of(self, known: tuple[bytes, bytes, bytes, bytes, bytes]) -> tuple[Texts, NDArray[np.bool_] | None]:
        data, ends, missing, *keys = known
        gone = np.frombuffer(missing, np.int64)
        offsets = np.frombuffer(ends, np.int64)
        if not len(gone):
            return (data, offsets), None
        stored_data, stored_offsets, absent = self._stored((keys[0], np.frombuffer(keys[1], np.int64)))
        count = len(offsets) - 1
        if len(gone) == count:
            return (stored_data, stored_offsets), absent
        native = compiled()
        assert native is not None
        order = np.arange(count, dtype=np.int64)
        order[gone] = count + np.arange(len(gone))
        both = np.concatenate([offsets, stored_offsets[1:] + len(data)])
        taken, taken_ends, _ = native.take_rows(data + stored_data, both, None, order)
        if absent is not None:
            of_all = np.zeros(count, np.bool_)
            of_all[gone] = absent
            absent = of_all
        return (taken, np.frombuffer(taken_ends, np.int64)), absent

    def _stored(self, keys: Texts) -> tuple[bytes, Int64s, NDArray[np.bool_] | None]:
        """The values that the backend holds under these store keys, as data, offsets and which of them are absent."""
        native = compiled()
        assert native is not None
        found = self._backend.get_packed(self.spec.name, *keys, _STAMP_BYTES)
        if found is not None:
            data, ends, nulls = found
        else:
            entries = self._backend.get_many(self.spec.name, native.list_rows(*keys, None))
            data, ends, nulls = native.pack_rows([None if entry is None else entry[_STAMP_BYTES:] for entry in entries])
        return data, np.frombuffer(ends, np.int64), None if nulls is None else np.frombuffer(nulls, np.bool_)

    def append_texts(
        self, keys: Texts, numbers: Int64s, times_ms: Int64s, values: Texts, expired: NDArray[np.bool_] | None
    ) -> NDArray[np.uint32]:
        """Append values, which are given as the value serde writes them, each to the key of its number. ``expired``: whose
        time is over; they are written for no reader. Returns the sequence numbers."""
        numbers, times_ms = np.ascontiguousarray(numbers, np.int64), np.ascontiguousarray(times_ms, np.int64)
        flags = None if expired is None else expired.astype(np.uint8)
        found = self._packed.append(*keys, numbers, times_ms, *values, flags, False)
        if found:
            self._load_taken(keys, [(int(numbers[row]), int(times_ms[row])) for row in np.frombuffer(found, np.int64)])
            self._packed.append(*keys, numbers, times_ms, *values, flags, True)
        return np.frombuffer(self._packed.numbers(), np.uint32)

    def _load_taken(self, keys: Texts, entries: list[tuple[int, int]]) -> None:
        """Load the groups of the keys and times for which the backend has an entry."""
        native, segment_ms = compiled(), self.spec.segment_ms
        assert native is not None
        listed = native.list_rows(*keys, None)
        groups = [(time_ms // segment_ms, listed[number]) for number, time_ms in entries]
        firsts = [
            b"".join((_LONG.pack(segment), key, _LONG.pack(time_ms), _FIRST_NUMBER))
            for (segment, key), (_, time_ms) in zip(groups, entries, strict=True)
        ]
        stored = self._backend.get_many(self.spec.name, firsts)
        self._load(dict.fromkeys(group for group, entry in zip(groups, stored, strict=True) if entry is not None))

    def _load(self, groups: Iterable[tuple[int, bytes]]) -> None:
        floor, load, empty = self._floor, self._packed.load, list[bytes]()
        asked: list[tuple[bytes, int, bytes]] = []
        for segment, key in groups:
            low = _LONG.pack(segment) + key
            if floor is not None and low < floor:
                load(segment, key, empty)
            else:
                asked.append((low, segment, key))
        asked.sort()  # neighbours are in one block
        for start in range(0, len(asked), _AT_ONCE):
            some = asked[start : start + _AT_ONCE]
            for (low, segment, key), stored in zip(
                some, self._ranges([group_range(low) for low, *_ in some]), strict=True
            ):
                behind, length = len(low), len(low) + BEHIND_GROUP
                load(segment, key, [name[behind:] for name, _ in stored if len(name) == length])

    def _ranges(self, bounds: list[tuple[bytes, bytes]]) -> Iterable[Iterable[tuple[bytes, bytes]]]:
        backend, name = self._backend, self.spec.name
        if isinstance(backend, RangesAtOnce):
            return backend.ranges(name, bounds)
        return (backend.range(name, low, high) for low, high in bounds)

    def packed_changes(self) -> PackedChanges | None:
        if not self._is_packed or not len(self._packed):
            return None
        segments, keys, key_ends, values, value_ends, times = self._packed.appends(self._written_from_ms())
        named = keys, np.frombuffer(key_ends, np.int64)
        texts = values, np.frombuffer(value_ends, np.int64)
        times_ms = np.frombuffer(times, np.int64)
        puts = StampedPuts(np.frombuffer(segments, np.int64), *named, times_ms, *texts)
        return PackedChanges(puts, named, texts, times_ms)

    # -- rows ----------------------------------------------------------------------------------------------------

    def _unpack(self) -> None:
        """Go on as a view of rows."""
        if not self._is_packed:
            return
        found = self.packed_changes()
        latest_ms = self._packed.latest_ms
        self._packed.begin(_HIGHEST, -1)
        self._is_packed, self._rows_left, self._trim_bytes = False, self._rows_next, None
        self._rows_next = min(2 * self._rows_next, COMMITS_IN_ROWS_MAX)
        self._known_from_ms, self._latest_ms = latest_ms + 1, latest_ms
        if found is not None:
            keys, values = found.puts.listed()
            self.entries.update(zip(keys, values, strict=True))
            self.dirty.update(zip(keys, found.times.tolist(), strict=True))

    def load(self, keys: Iterable[bytes]) -> None:
        self._unpack()
        super().load(keys)

    def entries_of(self, keys: list[bytes]) -> list[Any]:
        self._unpack()
        return super().entries_of(keys)

    def get(self, key: bytes) -> tuple[Any, int] | None:
        self._unpack()
        return super().get(key)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, Any, int]]:
        self._unpack()
        yield from super().range(low, high, reverse=reverse)

    def first(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> tuple[bytes, Any, int] | None:
        self._unpack()
        return super().first(low, high, reverse=reverse)

    def group(self, name: bytes) -> Sequence[bytes]:
        self._unpack()
        return super().group(name)

    def values_of(self, keys: Sequence[bytes]) -> list[tuple[Any, int]]:
        self._unpack()
        return super().values_of(keys)

    def append(self, name: bytes, time_ms: int, value: Any, timestamp_ms: int) -> bytes | None:
        self._unpack()
        return super().append(name, time_ms, value, timestamp_ms)

    def unknown(self, names: list[bytes], times_ms: list[int]) -> list[int]:
        self._unpack()
        return super().unknown(names, times_ms)

    def append_all(
        self, names: list[bytes], times: list[bytes], times_ms: list[int], values: list[bytes]
    ) -> list[bytes]:
        self._unpack()
        return super().append_all(names, times, times_ms, values)

    def put_entry(self, key: bytes, entry: Any, timestamp_ms: int, *, new: bool = False) -> None:
        self._unpack()
        super().put_entry(key, entry, timestamp_ms, new=new)

    def put_entries(
        self, keys: Sequence[bytes], entries: Sequence[Any], timestamps: Sequence[int], *, new: bool = False
    ) -> None:
        self._unpack()
        super().put_entries(keys, entries, timestamps, new=new)

    def put_raw(
        self, keys: list[bytes], raw_values: list[bytes | None], values: list[Any], timestamps: list[int]
    ) -> None:
        self._unpack()
        super().put_raw(keys, raw_values, values, timestamps)

    # -- commit --------------------------------------------------------------------------------------------------

    def pending(self) -> tuple[list[bytes], list[bytes | None], list[int]]:
        if not self._is_packed:
            return super().pending()
        if (found := self.packed_changes()) is None:
            return [], [], []
        keys, values = found.puts.listed()
        return list(keys), list(values), found.times.tolist()

    def committed(self) -> None:
        if not self._is_packed:
            self._rows_left = max(self._rows_left - 1, 0)
            super().committed()
            return
        self._packed_commits += 1
        if self._packed_commits == COMMITS_IN_ROWS_MAX:
            self._rows_next = 1
        self._packed.committed(_LOWEST if self._floor is None else _LONG.unpack(self._floor)[0])
        super().committed()
        if self._trim_bytes is not None:
            self.trim(self._trim_bytes)

    def discard(self) -> None:
        self._packed.begin(_HIGHEST, -1)
        self._is_packed, self._trim_bytes = False, None
        super().discard()

    def trim(self, max_bytes: int, *, remeasure: bool = False) -> None:
        if not self._is_packed:
            super().trim(max_bytes, remeasure=remeasure)
            return
        trimmed = self._packed.trim(max_bytes // PART)
        self._trim_bytes = None if trimmed else max_bytes

    def uncommitted_bytes(self) -> int:
        return self._packed.uncommitted_bytes + super().uncommitted_bytes()

    def size_bytes(self) -> int:
        return self._packed.used_bytes + super().size_bytes()
