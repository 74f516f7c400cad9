"""Segmented stores as operators use them: read one key's entries in a time range, and expire by ranges.

Kinds ``key_window``, ``session`` and ``list`` (``penstock.state.stores.store``). The time is the window's start, the
session's end or the record's timestamp; the suffix is empty, the session's start or a sequence number. Entries before
the floor that ``expire_before`` set are invisible to every reader, even if their bytes still exist.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.state.stores.list_store import SEQUENCE_BYTES, TIME_IN, ListStoreView
from penstock.state.stores.packed_lists import Int64s, PackedListView, Texts
from penstock.state.stores.store import SEGMENTED, cut
from penstock.state.stores.store_view import KeyValueStoreView

_LONG = struct.Struct(">q")
_SUFFIX_BYTES = {"key_window": 0, "session": 8, "list": SEQUENCE_BYTES}


class SegmentedEntry(NamedTuple):
    """One entry. ``key``: key bytes; ``time_ms`` and ``suffix`` depend on the kind."""

    key: bytes
    time_ms: int
    suffix: bytes
    value: Any
    timestamp_ms: int


class ViewEntries(NamedTuple):
    """Entries by store keys, as a view holds them, with their timestamps."""

    keys: list[bytes]
    entries: list[Any]
    timestamps: list[int]


class DistinctKeys(NamedTuple):
    """Keys, all distinct, as a list, and as data and int64 offsets."""

    listed: Sequence[bytes]
    texts: Texts


class FoundEntries(Protocol):
    """Entries that ``SegmentedState.within`` found, until it is asked again or something is appended."""

    @property
    def counts(self) -> Int64s:
        """How many entries each key has."""

    @property
    def times(self) -> Int64s:
        """The entries' times, by key, time, number."""

    def values_at(self, places: Int64s) -> Texts | list[bytes]:
        """The values of those at these places, as they are stored."""

    def names_at(self, places: Int64s) -> list[bytes]:
        """The names of those at these places: key, time (8 bytes, big-endian) and sequence number."""


class _PackedEntries(NamedTuple):
    of: PackedListView
    counts: Int64s
    times: Int64s

    def values_at(self, places: Int64s) -> Texts:
        return self.of.values_at(places)

    def names_at(self, places: Int64s) -> list[bytes]:
        return self.of.names_at(places)


class _ListedEntries(NamedTuple):
    of: KeyValueStoreView
    counts: Int64s
    times: Int64s
    store_keys: list[bytes]

    def values_at(self, places: Int64s) -> list[bytes]:
        found = self.of.entries_of([self.store_keys[place] for place in places.tolist()])
        assert None not in found, "an entry of a group is gone"
        return [entry[8:] for entry in found]

    def names_at(self, places: Int64s) -> list[bytes]:
        return [self.store_keys[place][8:] for place in places.tolist()]


class SegmentedState:
    """One segmented store of one task. ``only_appends``: of kind ``list``, and nothing but this object's ``append`` writes
    it, so that it knows which segments may hold entries, and reads the entries of a key from memory (``ListStoreView``).
    Sequence numbers then begin at 0. (Where a changelog has dropped the first of several by age, its number may be given
    again.)"""

    def __init__(self, state: KeyValueStoreView, *, only_appends: bool = False) -> None:
        assert state.spec.kind in SEGMENTED, state.spec.kind
        self._state = state
        self._segment_ms = state.spec.segment_ms
        self._behind = 8 + _SUFFIX_BYTES[state.spec.kind]
        self._floor_ms = 0
        self._appended: dict[bytes, int] = {}
        """The last sequence numbers that ``append`` gave, by the store key without it; empty if something else was written
        since."""
        self._list: ListStoreView | None = None
        if only_appends:
            assert isinstance(state, ListStoreView), state.spec.name
            state.only_appended()
            self._list = state
        self._held: range | None = None
        """With ``only_appends`` the segments that may hold entries; ``None``: not looked at yet."""

    def fetch(self, key: bytes, from_ms: int, to_ms: int, *, reverse: bool = False) -> Iterator[SegmentedEntry]:
        """The entries of a key with ``from_ms <= time <= to_ms``, by time, then suffix. All are read before the first
        is returned, so the store may be written meanwhile."""
        from_ms = max(from_ms, self._floor_ms)
        if from_ms > to_ms:
            return iter(())
        segments = range(from_ms // self._segment_ms, to_ms // self._segment_ms + 1)
        if self._list is not None:
            return iter(self._fetch_list(self._list, key, segments, from_ms, to_ms, reverse))
        return self._fetch_ranges(key, segments, from_ms, to_ms, reverse)

    def _fetch_ranges(
        self, key: bytes, segments: range, from_ms: int, to_ms: int, reverse: bool
    ) -> Iterator[SegmentedEntry]:
        after = _LONG.pack(to_ms + 1) if to_ms < _LAST else _AFTER_TIMES
        length = 8 + len(key) + self._behind
        for segment in self._live(segments, reverse):
            prefix = _LONG.pack(segment) + key
            low, high = prefix + _LONG.pack(from_ms), prefix + after
            rows = [r for r in self._state.range(low, high, reverse=reverse) if len(r[0]) == length]
            for store_key, value, ts in rows:
                yield self._entry(store_key, value, ts)

    def _fetch_list(
        self, of: ListStoreView, key: bytes, segments: range, from_ms: int, to_ms: int, reverse: bool
    ) -> list[SegmentedEntry]:
        pack, unpack, at = _LONG.pack, _LONG.unpack_from, 8 + len(key)
        found: list[SegmentedEntry] = []
        for segment in self._live(segments, reverse):
            name = pack(segment) + key
            keys = of.group(name)
            if not keys:
                continue
            low, high = name + pack(from_ms), name + (pack(to_ms + 1) if to_ms < _LAST else _AFTER_TIMES)
            if keys[0] < low or keys[-1] >= high:
                start = bisect_left(keys, low)
                keys = keys[start : bisect_left(keys, high, start)]
            some = [
                SegmentedEntry(key, unpack(k, at)[0], k[at + 8 :], value, ts)
                for k, (value, ts) in zip(keys, of.values_of(keys), strict=True)
            ]
            found += reversed(some) if reverse else some
        return found

    def within(self, keys: DistinctKeys, from_ms: int, to_ms: int) -> FoundEntries:
        """With ``only_appends``: the entries of several keys with ``from_ms <= time <= to_ms``."""
        assert self._list is not None
        from_ms = max(from_ms, self._floor_ms)
        if from_ms > to_ms:
            return _ListedEntries(self._state, np.zeros(len(keys.listed), np.int64), np.empty(0, np.int64), [])
        self._segments_held()
        if isinstance(self._list, PackedListView) and self._list.takes_columns():
            return _PackedEntries(self._list, *self._list.within(keys.texts, from_ms, to_ms))
        counts, store_keys = self._between(self._list, keys.listed, from_ms, to_ms)
        times = np.frombuffer(b"".join([key[TIME_IN] for key in store_keys]), ">i8").astype(np.int64)
        return _ListedEntries(self._state, np.array(counts, np.int64), times, store_keys)

    def values_named(self, names: list[bytes]) -> tuple[Texts | list[bytes], NDArray[np.bool_] | None]:
        """With ``only_appends``: the values of entries by their names, as ``FoundEntries.names_at`` gives them, as they are
        stored, and which of the names have none; ``None``: all have one. No time is below the floor."""
        assert self._list is not None
        self._segments_held()
        if isinstance(self._list, PackedListView) and self._list.takes_columns():
            return self._list.values_named(names)
        at, segment_ms = -8 - SEQUENCE_BYTES, self._segment_ms
        keys = [_LONG.pack(_LONG.unpack_from(name, len(name) + at)[0] // segment_ms) + name for name in names]
        found = self._state.entries_of(keys)
        absent = np.fromiter((entry is None for entry in found), np.bool_, len(found))
        return [b"" if entry is None else entry[8:] for entry in found], absent if absent.any() else None

    def _between(
        self, of: ListStoreView, keys: Sequence[bytes], from_ms: int, to_ms: int
    ) -> tuple[list[int], list[bytes]]:
        """How many entries each key has in a range of time, and the store keys of all of them."""
        group, pack = of.group, _LONG.pack
        segments = range(from_ms // self._segment_ms, to_ms // self._segment_ms + 1)
        prefixes = list(map(pack, self._live(segments, False)))
        first, behind = pack(from_ms), pack(to_ms + 1) if to_ms < _LAST else _AFTER_TIMES
        counts: list[int] = []
        found: list[bytes] = []
        for key in keys:
            before = len(found)
            for prefix in prefixes:
                name = prefix + key
                some = group(name)
                if not some:
                    continue
                low, high = name + first, name + behind
                if some[0] < low or some[-1] >= high:
                    start = bisect_left(some, low)
                    some = some[start : bisect_left(some, high, start)]
                found += some
            counts.append(len(found) - before)
        return counts, found

    def _live(self, segments: range, reverse: bool) -> Iterable[int]:
        """The segments of a range that may hold entries. Narrows a long range to existing segments."""
        if self._list is not None:
            held = self._segments_held()
            segments = range(max(segments.start, held.start), min(segments.stop, held.stop))
        if len(segments) > _FEW:
            segments = self._occupied(segments)
        return reversed(segments) if reverse else segments

    def _occupied(self, segments: range) -> range:
        low, high = _LONG.pack(segments.start), _LONG.pack(segments.stop) if segments.stop < _LAST else None
        first, last = self._state.first(low, high), self._state.first(low, high, reverse=True)
        if first is None or last is None:
            return range(0)
        return range(_LONG.unpack_from(first[0])[0], _LONG.unpack_from(last[0])[0] + 1)

    def _segments_held(self) -> range:
        """No segment outside of it has entries; those within may have none."""
        if self._held is None:
            self._held = self._occupied(range(_LAST))
        return self._held

    def latest_ms(self) -> int:
        """A time after which the store has no entry; -1 if it is empty."""
        last = self._state.first(reverse=True)
        return -1 if last is None else (int(_LONG.unpack_from(last[0])[0]) + 1) * self._segment_ms - 1

    def scan(self, from_ms: int, to_ms: int) -> Iterator[SegmentedEntry]:
        """The entries of all keys with ``from_ms <= time <= to_ms``; by segment, then key, then time."""
        from_ms = max(from_ms, self._floor_ms)
        low = _LONG.pack(from_ms // self._segment_ms)
        high = None if to_ms >= _LAST else _LONG.pack(to_ms // self._segment_ms + 1)
        for store_key, value, ts in self._state.range(low, high):
            entry = self._entry(store_key, value, ts)
            if from_ms <= entry.time_ms <= to_ms:
                yield entry

    def _entry(self, store_key: bytes, value: Any, ts: int) -> SegmentedEntry:
        at = len(store_key) - self._behind
        return SegmentedEntry(store_key[8:at], _LONG.unpack_from(store_key, at)[0], store_key[at + 8 :], value, ts)

    def get(self, key: bytes, time_ms: int, suffix: bytes = b"") -> tuple[Any, int] | None:
        """Value and timestamp of one entry, or ``None``."""
        return None if time_ms < self._floor_ms else self._state.get(self._store_key(key, time_ms, suffix))

    def load(self, entries: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Read entries, given by key, time and suffix, at once, so that ``get`` finds them in memory."""
        self._state.load([self._store_key(*entry) for entry in entries])

    def entries(self, entries: Iterable[tuple[bytes, int, bytes]]) -> list[Any]:
        """Existing entries, given by key, time and suffix, as the view holds them."""
        return self._state.entries_of([self._store_key(*entry) for entry in entries])

    def put(self, key: bytes, time_ms: int, suffix: bytes, value: Any, timestamp_ms: int) -> None:
        """Set an entry; ``None`` deletes."""
        self._appended.clear()
        self._state.put(self._store_key(key, time_ms, suffix), value, timestamp_ms)

    def entry_of(self, value: Any, timestamp_ms: int) -> Any:
        """The entry that ``put`` would make: see ``KeyValueStoreView.entry_of``."""
        return self._state.entry_of(value, timestamp_ms)

    def put_entry(
        self, key: bytes, time_ms: int, suffix: bytes, entry: Any, timestamp_ms: int, *, new: bool = False
    ) -> None:
        """``put`` of the result of ``entry_of``. ``new``: no such entry exists: see ``KeyValueStoreView.put_new``."""
        self._appended.clear()
        self._state.put_entry(self._store_key(key, time_ms, suffix), entry, timestamp_ms, new=new)

    def change(self, gone: list[bytes], gone_times: list[int], new: ViewEntries, known: ViewEntries) -> None:
        """Delete entries, with these timestamps, then put those that do not exist, and others; all by their store keys. Not
        for kind ``list``."""
        for key, timestamp_ms in zip(gone, gone_times, strict=True):
            self._state.put_entry(key, None, timestamp_ms)
        for entries, are_new in ((new, True), (known, False)):
            self._state.put_entries(*entries, new=are_new)

    def defer(self, settle: Callable[[], None] | None) -> None:
        """See ``KeyValueStoreView.defer``."""
        self._state.defer(settle)

    @property
    def segment_ms(self) -> int:
        """The length of a segment."""
        return self._segment_ms

    def delete(self, key: bytes, time_ms: int, suffix: bytes, timestamp_ms: int) -> None:
        """Delete an entry."""
        self._appended.clear()
        self._state.put(self._store_key(key, time_ms, suffix), None, timestamp_ms)

    def append(self, key: bytes, time_ms: int, value: Any) -> bytes:
        """Kind ``list``: append an entry to those of equal key and time; returns its sequence number, the suffix."""
        if self._list is not None:
            return self._append_to_list(self._list, key, time_ms, value)
        place = self._store_key(key, time_ms, b"")
        sequence = self._last_sequence(place, time_ms) + 1
        suffix = sequence.to_bytes(SEQUENCE_BYTES, "big")
        entry = self._state.entry_of(value, time_ms)
        self._state.put_entry(place + suffix, entry, time_ms, new=time_ms >= self._floor_ms)
        self._keep_number(place, sequence)
        return suffix

    def append_all(
        self,
        keys: DistinctKeys,
        numbers: Int64s,
        times_ms: Int64s,
        values: Texts,
        expired: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.uint32]:
        """With ``only_appends``: ``append`` for each of several values, which are given as the value serde writes them. The
        i-th has the key ``numbers[i]``. ``expired``: those whose time is below what the floor would be by then; no other
        time is below the floor. No time is negative. Returns the sequence numbers."""
        if not len(times_ms):
            return np.empty(0, np.uint32)
        assert self._list is not None
        self._segments_held()
        if isinstance(self._list, PackedListView) and self._list.takes_columns():
            given = self._list.append_texts(keys.texts, numbers, times_ms, values, expired)
        else:
            gone = [] if expired is None else np.flatnonzero(expired).tolist()
            listed = keys.listed, numbers.tolist(), times_ms.tolist(), cut(*values), gone
            ends = b"".join([key[-SEQUENCE_BYTES:] for key in self._append_listed(self._list, *listed)])
            given = np.frombuffer(ends, ">u4").astype(np.uint32)
        self._holds(int(times_ms.min()) // self._segment_ms, int(times_ms.max()) // self._segment_ms)
        return given

    def _append_listed(
        self,
        to: ListStoreView,
        keys: Sequence[bytes],
        numbers: list[int],
        times_ms: list[int],
        values: list[bytes],
        expired: list[int],
    ) -> list[bytes]:
        """Returns the store keys."""
        times = list(map(_LONG.pack, times_ms))
        first, last = min(times_ms) // self._segment_ms, max(times_ms) // self._segment_ms
        if first == last:
            prefix = _LONG.pack(first)
            of_keys = [prefix + key for key in keys]
            names = list(map(of_keys.__getitem__, numbers))
        else:
            segment_ms = self._segment_ms
            names = [_LONG.pack(ms // segment_ms) + keys[n] for ms, n in zip(times_ms, numbers, strict=True)]
        unseen = set(expired)
        unknown = [i for i in to.unknown(names, times_ms) if i not in unseen]
        if unknown:  # one read instead of one each
            self._state.load([b"".join((names[i], times[i], _FIRST)) for i in unknown])
        start = 0
        made: list[bytes] = []
        for at in sorted([*expired, *unknown]):
            made += to.append_all(names[start:at], times[start:at], times_ms[start:at], values[start:at])
            made.append(self._append_apart(names[at], times[at], times_ms[at], values[at], expired=at in unseen))
            start = at + 1
        return made + to.append_all(names[start:], times[start:], times_ms[start:], values[start:])

    def _append_apart(self, name: bytes, time: bytes, time_ms: int, value: bytes, *, expired: bool) -> bytes:
        """Append an entry whose group does not tell its number. An expired one is written as the first, for no reader."""
        assert self._list is not None
        place = name + time
        sequence = 0 if expired else self._last_sequence(place, time_ms) + 1
        key = place + sequence.to_bytes(SEQUENCE_BYTES, "big")
        self._list.put_entry_at(name, time_ms, key, time + value, time_ms, new=not expired)
        self._keep_number(place, sequence)
        return key

    def _append_to_list(self, of: ListStoreView, key: bytes, time_ms: int, value: Any) -> bytes:
        at_ms = max(time_ms, 0)
        segment = at_ms // self._segment_ms
        name = _LONG.pack(segment) + key
        new = time_ms >= self._floor_ms
        suffix = of.append(name, at_ms, value, time_ms) if new else None
        if suffix is None:
            place = name + _LONG.pack(at_ms)
            sequence = self._last_sequence(place, time_ms) + 1
            suffix = sequence.to_bytes(SEQUENCE_BYTES, "big")
            of.put_at(name, at_ms, place + suffix, value, time_ms, new=new)
            self._keep_number(place, sequence)
        self._holds(segment, segment)
        return suffix

    def _holds(self, first: int, last: int) -> None:
        """Entries were appended to these segments."""
        held = self._segments_held()
        if first not in held or last not in held:
            known = held or range(first, last + 1)
            self._held = range(min(first, known.start), max(last + 1, known.stop))

    def _keep_number(self, place: bytes, sequence: int) -> None:
        if len(self._appended) >= _NUMBERS_KEPT:
            self._appended.clear()
        self._appended[place] = sequence

    def _last_sequence(self, place: bytes, time_ms: int) -> int:
        """Kind ``list``: the highest sequence number of entries of a key at one time; -1 without any. ``place``: their store
        key without it."""
        if time_ms < self._floor_ms:
            return -1
        sequence = self._appended.get(place)
        if sequence is not None and place + sequence.to_bytes(SEQUENCE_BYTES, "big") in self._state.dirty:
            return sequence  # still valid: neither committed, after which others may expire it, nor removed
        if self._list is not None and self._state.get(place + _FIRST) is None:
            return -1  # one read by key instead of a search
        low, high = place, place + b"\xff" * (SEQUENCE_BYTES + 1)
        while (last := self._state.first(low, high, reverse=True)) is not None:
            if len(last[0]) == len(low) + SEQUENCE_BYTES:
                return int.from_bytes(last[0][-SEQUENCE_BYTES:], "big")
            high = last[0]  # belongs to a longer key with this prefix
        return -1

    def expire_before(self, time_ms: int) -> None:
        """Drop entries with a lower time."""
        if time_ms > self._floor_ms:
            if self._list is not None:
                self._list.expire_before(time_ms)
            if time_ms // self._segment_ms > self._floor_ms // self._segment_ms:
                self._state.expire_below(_LONG.pack(time_ms // self._segment_ms))
            self._floor_ms = time_ms

    @property
    def floor_ms(self) -> int:
        """No entry has a lower time."""
        return self._floor_ms

    def next_expiry_ms(self) -> int:
        """The lowest time from which on ``expire_before`` drops anything more."""
        return (self._floor_ms // self._segment_ms + 1) * self._segment_ms

    def _store_key(self, key: bytes, time_ms: int, suffix: bytes) -> bytes:
        time_ms = max(time_ms, 0)
        return b"".join((_LONG.pack(time_ms // self._segment_ms), key, _LONG.pack(time_ms), suffix))


"""Where the store key of a list's entry has its time, 8 bytes, big-endian."""
_LAST = (1 << 63) - 1
_FEW = 8
_AFTER_TIMES = b"\xff" * 9
_FIRST = bytes(SEQUENCE_BYTES)
_NUMBERS_KEPT = 4_096
