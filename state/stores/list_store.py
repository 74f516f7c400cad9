"""A store of kind ``list`` as operators see it: a view that knows which entries a key has, without reading ranges.

A *group* is all entries of one key in one segment: their store keys are the group's name (segment | key bytes) and 12 bytes
of time and sequence number. ``group`` gives them from memory; a group that is not there is read from the store by one range.

``known_from_ms`` is a time from which on every entry was appended through this view, and is in a group here or in a *tail*:
the entries from that time on of a group that is not here. So a group of a segment that begins at that time or later, and is
not here, is empty; and the sequence number of what is appended at that time or later needs no read.

Memory is bounded as in any view: groups have two generations, and when an old one goes, ``known_from_ms`` moves behind all
that was appended so far.

All that holds once ``only_appended`` was called: then only ``append`` and ``put_at`` may write the store, and nothing
deletes from it but expiry. Entries are then the stored bytes, so that what is appended is encoded once and decoded only if
it is read. Values of an ``immutable`` serde are kept once they were decoded; others are decoded at every read, as in any
view.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain, repeat
from operator import add
from typing import Any

from penstock.state.stores.entry_sizes import SLOT_BYTES, entries_bytes
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView

_LONG = struct.Struct(">q")
SEQUENCE_BYTES = 4
BEHIND_GROUP = 8 + SEQUENCE_BYTES
TIME_IN = slice(-BEHIND_GROUP, -SEQUENCE_BYTES)
"""Where a store key has the entry's time."""
"""The length of what follows a group's name in a store key: time and sequence number."""
_BEHIND_TIMES = b"\x80"
"""Above the first byte of any time."""
_PLACE_BYTES = 80
"""The store key of an entry that the view may hold no longer, and its place in the group."""
_GROUP_BYTES = SLOT_BYTES + 130
"""A group's name and its list."""
PART = 2
"""The part of a store's memory that groups and decoded values may take."""
_NONE: Sequence[bytes] = ()
_FIRST, _LAST = bytes(SEQUENCE_BYTES), b"\xff" * SEQUENCE_BYTES

ValuesByKey = dict[bytes, list[bytes]]


def group_range(name: bytes) -> tuple[bytes, bytes]:
    """A range of the store that holds a group. Of its keys, those that are ``BEHIND_GROUP`` longer than the name belong to
    it, the others to groups of longer keys."""
    return name, name + _BEHIND_TIMES


class ListStoreView(KeyValueStoreView):
    """See the module."""

    def __init__(self, spec: StoreSpec, backend: StateBackend) -> None:
        super().__init__(spec, backend)
        self._pack = _LONG.pack
        self._keeps = self.immutable
        self._segment_ms = spec.segment_ms
        self._groups: ValuesByKey = {}
        self._old_groups: ValuesByKey = {}
        self._tails: ValuesByKey = {}
        self._places = self._old_places = 0
        """How many keys the young groups and the tails hold, and the old groups."""
        self._values: dict[bytes, tuple[Any, int]] = {}
        """Decoded values with their timestamps, by store key."""
        self._known_from_ms: int | None = None
        """See the module; ``None``: not looked up."""
        self._latest_ms = -1
        """No entry has a later time, if ``_known_from_ms`` was looked up."""
        self._expired_ms = 0

    def only_appended(self) -> None:
        """From now on entries are bytes, and ``group``, ``values_of``, ``append`` and ``put_at`` may be used. Call it before
        anything else."""
        self.immutable = False

    # -- reading -------------------------------------------------------------------------------------------------

    def group(self, name: bytes) -> Sequence[bytes]:
        """The store keys of a group, ascending; not to be changed."""
        known = self._groups.get(name)
        return self._fetched(name) if known is None else known

    def _fetched(self, name: bytes) -> Sequence[bytes]:
        """A group that is not among the young ones."""
        if (known := self._old_groups.pop(name, None)) is not None:
            self._old_places -= len(known)
        elif self._segment_is_known(name):
            return _NONE
        else:
            known = self._read(name)
            self._places -= len(self._tails.pop(name, _NONE))
        self._groups[name] = known
        self._places += len(known)
        return known

    def _segment_is_known(self, name: bytes) -> bool:
        """Whether the segment's groups that are not here are empty."""
        return bool(_LONG.unpack_from(name)[0] * self._segment_ms >= self._known_from())

    def _known_from(self) -> int:
        if self._known_from_ms is None:
            last = self.first(reverse=True)
            if last is not None:
                self._latest_ms = (int(_LONG.unpack_from(last[0])[0]) + 1) * self._segment_ms - 1
            self._known_from_ms = self._latest_ms + 1
        return self._known_from_ms

    def values_of(self, keys: Sequence[bytes]) -> list[tuple[Any, int]]:
        """Value and timestamp of existing entries."""
        if not self._keeps:
            return self._decoded(keys)
        known = self._values
        try:
            return [known[key] for key in keys]
        except KeyError:
            missing = [key for key in keys if key not in known]
            known.update(zip(missing, self._decoded(missing), strict=True))
            return [known[key] for key in keys]

    def _decoded(self, keys: Sequence[bytes]) -> list[tuple[Any, int]]:
        found = [self.unpack(entry, key) for key, entry in zip(keys, self.entries_of(list(keys)), strict=True)]
        assert None not in found, "an entry of a group is gone"
        return found  # type: ignore[return-value]  # none is None

    def _read(self, name: bytes) -> list[bytes]:
        """The store keys of a group as the store has them; keeps the entries."""
        if self._floor is not None and name < self._floor:
            return []
        (low, high), length = group_range(name), len(name) + BEHIND_GROUP
        stored = self._backend.range(self.spec.name, low, high)
        read = {key: raw for key, raw in stored if len(key) == length}
        for key, raw in read.items():
            if key not in self.entries and key not in self._old:
                self.entries[key] = raw
        if not self.dirty:
            return list(read)
        written = [k for k in self._written_keys(low, high, False) if len(k) == length]
        return sorted(read.keys() | set(written)) if written else list(read)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, name: bytes, time_ms: int, value: Any, timestamp_ms: int) -> bytes | None:
        """Put an entry behind those of its group at the same time, and return its sequence number. ``None``: that number
        is unknown without a read, and nothing was done; use ``put_at``."""
        group = self._groups.get(name)
        if group is None and (group := self._appendable(name, time_ms)) is None:
            return None
        place = name + self._pack(time_ms)
        at, sequence = len(group), _FIRST
        if group and group[-1] > place:
            at = bisect_left(group, place + _LAST)
            if at and group[at - 1].startswith(place):
                sequence = (int.from_bytes(group[at - 1][-SEQUENCE_BYTES:], "big") + 1).to_bytes(SEQUENCE_BYTES, "big")
        key = place + sequence
        entry = self._pack(timestamp_ms) + self._encoders.get(type(value), self._encode)(value)
        if key not in self.dirty:
            self._fresh.add(key)
        self.entries[key] = entry
        self.dirty[key] = timestamp_ms
        group.insert(at, key)
        self._places += 1
        if time_ms > self._latest_ms:
            self._latest_ms = time_ms
        return sequence

    def unknown(self, names: list[bytes], times_ms: list[int]) -> list[int]:
        """The indices of groups and times for which a sequence number is unknown without a read."""
        groups = list(map(self._groups.get, names))
        if None not in groups:
            return []
        missing = [i for i, group in enumerate(groups) if group is None]
        return [i for i in missing if self._group_for(names[i], times_ms[i]) is None]

    def append_all(
        self, names: list[bytes], times: list[bytes], times_ms: list[int], values: list[bytes]
    ) -> list[bytes]:
        """``append`` for each of several values, which are given as the value serde writes them and whose sequence numbers
        are known without a read; ``times`` are their times in the form of store keys. Returns their store keys."""
        if not names:
            return []
        groups = list(map(self._groups.get, names))
        if None in groups:
            groups = list(map(self._group_for, names, times_ms))
        places = list(map(add, names, times))
        keys = list(map(add, places, repeat(_FIRST)))
        for i, (group, place) in enumerate(zip(groups, places, strict=True)):
            assert group is not None
            if not group or group[-1] < place:
                group.append(keys[i])
                continue
            at = bisect_left(group, place + _LAST)
            if at and group[at - 1].startswith(place):
                sequence = int.from_bytes(group[at - 1][-SEQUENCE_BYTES:], "big") + 1
                keys[i] = place + sequence.to_bytes(SEQUENCE_BYTES, "big")
            group.insert(at, keys[i])
        known = self.dirty.keys()
        self._fresh.update(keys if known.isdisjoint(keys) else [key for key in keys if key not in known])
        self.entries.update(zip(keys, map(add, times, values), strict=True))
        self.dirty.update(zip(keys, times_ms, strict=True))
        self._places += len(keys)
        self._latest_ms = max(self._latest_ms, max(times_ms))
        return keys

    def _group_for(self, name: bytes, time_ms: int) -> list[bytes] | None:
        group = self._groups.get(name)
        return self._appendable(name, time_ms) if group is None else group

    def _appendable(self, name: bytes, time_ms: int) -> list[bytes] | None:
        """A group that is not among the young ones, or its tail."""
        if name in self._old_groups:
            self._fetched(name)
            return self._groups[name]
        if self._segment_is_known(name):
            return self._groups.setdefault(name, [])
        return self._tails.setdefault(name, []) if time_ms >= self._known_from() else None

    def put_at(self, name: bytes, time_ms: int, key: bytes, value: Any, timestamp_ms: int, *, new: bool) -> None:
        """Put an entry under its store key. ``new``: there is none under it."""
        self.put_entry_at(name, time_ms, key, self.entry_of(value, timestamp_ms), timestamp_ms, new=new)

    def put_entry_at(
        self, name: bytes, time_ms: int, key: bytes, entry: bytes, timestamp_ms: int, *, new: bool
    ) -> None:
        """``put_at`` of an entry as it is stored."""
        self.put_entry(key, entry, timestamp_ms, new=new)
        self._values.pop(key, None)
        group = self._groups.get(name)
        if group is None and (group := self._appendable(name, time_ms)) is None:
            return
        at = bisect_left(group, key)
        if at == len(group) or group[at] != key:
            group.insert(at, key)
            self._places += 1
        self._latest_ms = max(self._latest_ms, time_ms)

    # -- commit --------------------------------------------------------------------------------------------------

    def expire_before(self, time_ms: int) -> None:
        """Leave entries with a lower time, which nobody reads any more, out of what commits write. What was written goes
        with its segment (``expire_below``)."""
        self._expired_ms = max(self._expired_ms, time_ms)

    @property
    def drop_before_ms(self) -> int:
        """The time before which entries have expired: the backend holds some of them, or none."""
        return self._expired_ms

    def _written_from_ms(self) -> int:
        """The lowest time that a commit writes."""
        floor_ms = 0 if self._floor is None else _LONG.unpack(self._floor)[0] * self._segment_ms
        return max(floor_ms, self._expired_ms)

    def pending(self) -> tuple[list[bytes], list[bytes | None], list[int]]:
        if self._expired_ms:
            first = self._pack(self._expired_ms)
            for key in [key for key in self.dirty if key[TIME_IN] < first]:
                del self.dirty[key]
        return super().pending()

    def committed(self) -> None:
        floor = self.drop_below
        super().committed()
        if floor is not None:
            self._groups, self._old_groups, self._tails = (
                {name: keys for name, keys in some.items() if name >= floor}
                for some in (self._groups, self._old_groups, self._tails)
            )
            self._places = sum(map(len, chain(self._groups.values(), self._tails.values())))
            self._old_places = sum(map(len, self._old_groups.values()))
            self._values = {key: value for key, value in self._values.items() if key >= floor}

    def discard(self) -> None:
        self._forget_groups()
        self._expired_ms = 0
        super().discard()

    def forget(self) -> None:
        """Forget all that was read. For a view without uncommitted entries."""
        self._forget_groups()
        self._whole = False
        self.entries.clear()
        self._old.clear()
        self._measured = None

    def _forget_groups(self) -> None:
        self._groups, self._old_groups, self._tails, self._values = {}, {}, {}, {}
        self._places = self._old_places = 0
        self._known_from_ms, self._latest_ms = None, -1

    def trim(self, max_bytes: int, *, remeasure: bool = False) -> None:
        part = max_bytes // PART
        if 2 * entries_bytes(self._values) > part:
            self._values = {}
        if 4 * self._young_bytes() > part:
            self._forget_old()
            self._old_groups, self._groups = self._groups, {}
            self._old_places, self._places = self._places, 0
        if 2 * self._groups_bytes() > part:
            self._forget_old()
        super().trim(max_bytes, remeasure=remeasure)

    def _forget_old(self) -> None:
        """Drop the old generation, and the tails."""
        if self._old_groups or self._tails:
            self._places -= sum(map(len, self._tails.values()))
            self._old_groups, self._tails, self._old_places = {}, {}, 0
            self._known_from_ms = max(self._known_from(), self._latest_ms + 1)

    def _young_bytes(self) -> int:
        return (len(self._groups) + len(self._tails)) * _GROUP_BYTES + self._places * _PLACE_BYTES

    def _groups_bytes(self) -> int:
        return self._young_bytes() + len(self._old_groups) * _GROUP_BYTES + self._old_places * _PLACE_BYTES

    def _trimmed_bytes(self) -> int:
        return super().size_bytes()

    def size_bytes(self) -> int:
        return super().size_bytes() + self._groups_bytes() + entries_bytes(self._values)


def expired_before_ms(state: KeyValueStoreView) -> int:
    """The time before which entries of a list store have expired; 0 for other stores."""
    return state.drop_before_ms if isinstance(state, ListStoreView) else 0
