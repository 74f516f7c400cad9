"""Persistent timers over a store: what falls due, in order, without reading the store while nothing does.

A timer is a time and a payload of bytes (key, window, what the operator needs); the same pair set twice is one timer.
The store is an ordinary changelogged one: a timer's key is time (8, big-endian) | payload. Times may be any int from 0
to 2**63 - 1.
"""

from __future__ import annotations

import struct

from penstock.state.serde import BYTES
from penstock.state.store import StoreSpec
from penstock.state.views import KeyValueState

_TIME = struct.Struct(">q")
LAST_MS = (1 << 63) - 1
"""The end of time: the highest watermark."""


def timer_store(name: str) -> StoreSpec:
    """The spec of a store for ``TimerQueue``."""
    return StoreSpec(name, "key_value", BYTES, BYTES)


class TimerQueue:
    """Timers of one operator in one task."""

    def __init__(self, state: KeyValueState) -> None:
        self._state = state
        self._next_ms: int | None = None
        """No timer is due before it; ``None``: unknown, the store is asked."""

    def set(self, time_ms: int, payload: bytes) -> None:
        """Set a timer."""
        time_ms = min(max(time_ms, 0), LAST_MS)
        self._state.put(_TIME.pack(time_ms) + payload, b"\x01", time_ms)
        if self._next_ms is not None and time_ms < self._next_ms:
            self._next_ms = time_ms

    def delete(self, time_ms: int, payload: bytes) -> None:
        """Forget a timer; nothing happens when there is none."""
        time_ms = min(max(time_ms, 0), LAST_MS)
        key = _TIME.pack(time_ms) + payload
        if self._state.get(key) is not None:
            self._state.put(key, None, time_ms)

    @property
    def next_ms(self) -> int | None:
        """The earliest timer; ``None`` without one."""
        for key, _, _ in self._state.range():
            self._next_ms = _TIME.unpack_from(key)[0]
            return self._next_ms
        self._next_ms = LAST_MS + 1
        return None

    def due(self, until_ms: int) -> list[tuple[int, bytes]]:
        """Take the timers up to and including ``until_ms``, by time, then payload. A timer that is set while these are
        handled is found by the next call."""
        if self._next_ms is None:
            self._next_ms = LAST_MS + 1 if self.next_ms is None else self._next_ms
        if self._next_ms is None or until_ms < self._next_ms:
            return []
        high = None if until_ms >= LAST_MS else _TIME.pack(until_ms + 1)
        keys = [key for key, _, _ in self._state.range(None, high)]
        for key in keys:
            self._state.put(key, None, _TIME.unpack_from(key)[0])
        self._next_ms = None
        return [(_TIME.unpack_from(k)[0], k[8:]) for k in keys]
