"""Persistent timers over a store: takes due timers in order, and does not read the store while none is due.

A timer is a time and a payload of bytes (key, window, what the operator needs); the same pair set twice is one timer.
The store is an ordinary changelogged one: a timer's key is time (8, big-endian) | payload. Times may be any int from 0
to 2**63 - 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView

_TIME = struct.Struct(">q")
LAST_MS = (1 << 63) - 1
"""The end of time: the highest watermark."""
_STAMP_MS = 1
"""Timestamp of the entries. A timer's due time is in its key, because brokers refuse changelog records with future
timestamps."""


def timer_store(name: str) -> StoreSpec:
    """The spec of a store for ``TimerQueue``."""
    return StoreSpec(name, "key_value", BYTES, BYTES)


class TimerQueue:
    """Timers of one operator in one task. ``state``: it is restored."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._next_ms: int | None = None
        """The earliest timer; after the end of time without one; ``None``: unknown, read the store."""
        self._low_ms = 0
        """A lower bound of all timers: skips those that were taken."""
        last = state.first(reverse=True)
        self.found_until = b"" if last is None else last[0]
        """The last timer, as its key, that the store had at the beginning. Up to it a timer that counts as new may be set:
        that of a lost record, because changelogs of records expire by time, and the next one got the same number."""

    def _is_there(self, key: bytes) -> bool:
        """Whether a timer that counts as new is set."""
        return key <= self.found_until and self._state.get(key) is not None

    def set(self, time_ms: int, payload: bytes, *, new: bool = False) -> None:
        """Set a timer. ``new``: no timer of its record was set, so that nothing is written if it is deleted before the
        commit."""
        time_ms = min(max(time_ms, 0), LAST_MS)
        key = _TIME.pack(time_ms) + payload
        (self._state.put_new if new and not self._is_there(key) else self._state.put)(key, b"\x01", _STAMP_MS)
        self._low_ms = min(self._low_ms, time_ms)
        if self._next_ms is not None and time_ms < self._next_ms:
            self._next_ms = time_ms

    def delete(self, time_ms: int, payload: bytes) -> None:
        """Delete a timer, if it exists."""
        time_ms = min(max(time_ms, 0), LAST_MS)
        key = _TIME.pack(time_ms) + payload
        if self._state.get(key) is not None:
            self._state.put(key, None, _STAMP_MS)
            if time_ms == self._next_ms:
                self._next_ms = None

    @property
    def next_ms(self) -> int | None:
        """The earliest timer; ``None`` without one."""
        if self._next_ms is None:
            first = self._state.first(_TIME.pack(self._low_ms))
            self._next_ms = LAST_MS + 1 if first is None else _TIME.unpack_from(first[0])[0]
            self._low_ms = min(self._next_ms, LAST_MS)
        return self._next_ms if self._next_ms <= LAST_MS else None

    @property
    def last_ms(self) -> int | None:
        """The latest timer, read from the store; ``None`` without one."""
        last = self._state.first(reverse=True)
        return None if last is None else _TIME.unpack_from(last[0])[0]

    def due(self, until_ms: int) -> list[tuple[int, bytes]]:
        """Take the timers up to and including ``until_ms``, by time, then payload. A timer that is set while these are
        handled is found by the next call."""
        timers = self.upcoming(until_ms)
        self.take(timers, until_ms)
        return timers

    def upcoming(self, until_ms: int) -> list[tuple[int, bytes]]:
        """The timers that ``due`` would take."""
        next_ms = self.next_ms
        if next_ms is None or until_ms < next_ms:
            return []
        return self.between(next_ms, until_ms)

    def between(self, from_ms: int, until_ms: int) -> list[tuple[int, bytes]]:
        """The timers from one time to another, included, by time, then payload; read from the store."""
        high = None if until_ms >= LAST_MS else _TIME.pack(until_ms + 1)
        return [(_TIME.unpack_from(key)[0], key[8:]) for key, _, _ in self._state.range(_TIME.pack(from_ms), high)]

    def take(self, timers: list[tuple[int, bytes]], until_ms: int) -> None:
        """Delete the timers that ``upcoming(until_ms)`` has given, if they are still all of them."""
        if not timers:
            return
        for time_ms, payload in timers:
            self._state.put(_TIME.pack(time_ms) + payload, None, _STAMP_MS)
        self._next_ms = None
        self._low_ms = min(until_ms + 1, LAST_MS)

    def delete_all(self, timers: list[tuple[int, bytes]]) -> None:
        """``delete`` for each, with one read."""
        self._state.load([_TIME.pack(min(max(time_ms, 0), LAST_MS)) + payload for time_ms, payload in timers])
        for time_ms, payload in timers:
            self.delete(time_ms, payload)

    def change(self, gone: list[bytes], made: list[bytes]) -> None:
        """Delete timers that exist, then set new ones. Each is its time (8 bytes, big-endian) and its payload."""
        for key in gone:
            self._state.put_entry(key, None, _STAMP_MS)
        entry = self._state.entry_of(b"\x01", _STAMP_MS)
        self._next_ms = None
        if not made:
            return
        there = dict.fromkeys(key for key in made if self._is_there(key))
        new = [key for key in made if key not in there] if there else made
        self._state.put_entries(new, [entry] * len(new), [_STAMP_MS] * len(new), new=True)
        for key in there:
            self._state.put_entry(key, entry, _STAMP_MS)
        self._low_ms = min(self._low_ms, _TIME.unpack_from(min(made))[0])

    def change_in_order(self, changes: dict[bytes, bool]) -> None:
        """Set new timers (true), and delete some that exist, given as for ``change``. ``look_from`` must follow."""
        entry = self._state.entry_of(b"\x01", _STAMP_MS)
        put = self._state.put_entry
        for key, is_set in changes.items():
            put(key, entry if is_set else None, _STAMP_MS, new=is_set and not self._is_there(key))

    @property
    def low_ms(self) -> int:
        """No timer is earlier."""
        return self._low_ms

    def defer(self, settle: Callable[[], None] | None) -> None:
        """See ``KeyValueStoreView.defer``."""
        self._state.defer(settle)

    def look_from(self, from_ms: int) -> None:
        """Read the store to find the next timer. ``from_ms``: no timer is earlier, those that are held back
        included."""
        self._next_ms, self._low_ms = None, from_ms

    def in_turn(self, until_ms: int) -> Iterator[tuple[int, bytes]]:
        """As ``take``, one instant at a time, so that timers set meanwhile for a later instant are included."""
        while (next_ms := self.next_ms) is not None and next_ms <= until_ms:
            yield from self.due(next_ms)
