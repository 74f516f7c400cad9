"""Events that wait for the watermark, in a store sorted by time.

Store key: timestamp (8, big-endian, biased so that negative ones sort first) | key bytes | arrival number (8). The
next number is stored under the empty key, so that numbers continue after a restart.
"""

from __future__ import annotations

import struct

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView

_NUMBER = struct.Struct(">Q")
_BIAS = 1 << 63
_LAST_MS = _BIAS - 1
_COUNTER = b""
_FIRST = b"\x00"
"""Below every event's key, above the counter's."""

DueEvents = dict[tuple[int, bytes], list[bytes]]
"""Events by timestamp and key, in order of arrival."""


def buffer_store(name: str) -> StoreSpec:
    """The spec of a store for ``EventBuffer``."""
    return StoreSpec(name, "key_value", BYTES, BYTES)


class EventBuffer:
    """The waiting events of one operator in one task."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._next_ms: int | None = None
        """No event is earlier; ``None``: unknown, the store is asked."""
        self._low = _FIRST
        """No event is below it: taken ones need not be skipped again."""

    def add(self, ts: int, key: bytes, event: bytes) -> None:
        """Keep an event."""
        found = self._state.get(_COUNTER)
        number = 0 if found is None else _NUMBER.unpack(found[0])[0]
        stamp = max(ts, 0)
        self._state.put(_COUNTER, _NUMBER.pack(number + 1), stamp)
        raw = _NUMBER.pack(ts + _BIAS) + key + _NUMBER.pack(number)
        self._state.put_new(raw, event, stamp)
        self._low = min(self._low, raw)
        if self._next_ms is not None and ts < self._next_ms:
            self._next_ms = ts

    def all(self) -> tuple[list[tuple[int, bytes, int, bytes]], int]:
        """All events, as time, key, number and event, and the number of the next one."""
        found = self._state.get(_COUNTER)
        events = [
            (_NUMBER.unpack_from(raw)[0] - _BIAS, raw[8:-8], _NUMBER.unpack_from(raw, len(raw) - 8)[0], event)
            for raw, event, _ in self._state.range(_FIRST)
        ]
        return events, 0 if found is None else _NUMBER.unpack(found[0])[0]

    def change(
        self,
        gone: list[tuple[bytes, int]],
        keys: list[bytes],
        events: list[bytes],
        times: list[int],
        number: tuple[int, int] | None,
    ) -> None:
        """Remove events, by their store keys and times, then put new ones. ``number``: of the next event, and the time of
        the last one, if it is another. ``look_again`` must follow before ``due``."""
        for raw, ts in gone:
            self._state.put(raw, None, max(ts, 0))
        entries = [self._state.entry_of(event, ts) for event, ts in zip(events, times, strict=True)]
        self._state.put_entries(keys, entries, times, new=True)
        if number is not None:
            self._state.put(_COUNTER, _NUMBER.pack(number[0]), max(number[1], 0))

    def look_again(self) -> None:
        """Read the store to find the next event."""
        self._next_ms, self._low = None, _FIRST

    def due(self, until_ms: int) -> DueEvents:
        """Take the events up to and including ``until_ms``."""
        if self._next_ms is not None and until_ms < self._next_ms:
            return {}
        found: DueEvents = {}
        taken: list[tuple[bytes, int]] = []
        high = None if until_ms >= _LAST_MS else _NUMBER.pack(until_ms + 1 + _BIAS)
        for raw, event, stamp in self._state.range(self._low, high):
            ts = _NUMBER.unpack_from(raw)[0] - _BIAS
            found.setdefault((ts, raw[8:-8]), []).append(event)
            taken.append((raw, stamp))
        for raw, stamp in taken:
            self._state.put(raw, None, stamp)
        first = None if high is None else self._state.first(high)
        self._next_ms = _LAST_MS if first is None else _NUMBER.unpack_from(first[0])[0] - _BIAS
        self._low = high or self._low
        return found
