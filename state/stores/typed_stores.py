"""Stores as processors and queries use them: in user keys and values, without bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic

from penstock.state.log import Windowed
from penstock.state.serdes.serde import SerdeLike, serde_of
from penstock.state.stores.segmented_store import SegmentedEntry, SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView, window_floor, window_key
from penstock.state.type_parameters import K, V


class KeyValueStore(Generic[K, V]):
    """A key-value store in user keys and values. ``range`` and ``all`` iterate in the order of the keys' bytes. Writes
    made meanwhile show only for keys not reached yet."""

    def __init__(self, state: KeyValueStoreView, timestamp_ms: int = 0) -> None:
        self._state = state
        self._keys = state.spec.key_serde
        self.timestamp_ms = timestamp_ms
        """The timestamp of the next writes: the time of the record that is being processed."""

    def get(self, key: K) -> V | None:
        """The value, or ``None``."""
        found = self._state.get(self._keys.serialize(key))
        return None if found is None else found[0]

    def get_with_timestamp(self, key: K) -> tuple[V, int] | None:
        """The value and the timestamp it was written with, or ``None``."""
        return self._state.get(self._keys.serialize(key))

    def put(self, key: K, value: V | None) -> None:
        """Set the value; ``None`` deletes."""
        self._state.put(self._keys.serialize(key), value, self.timestamp_ms)

    def delete(self, key: K) -> V | None:
        """Delete; returns the former value."""
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, low: K | None = None, high: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Entries with ``low <= key <= high`` (both ends included, as in Kafka Streams)."""
        write, read = self._keys.serialize, self._keys.deserialize
        first = None if low is None else write(low)
        last = None if high is None else write(high) + b"\x00"
        for key, value, _ in self._state.range(first, last, reverse=reverse):
            yield read(key), value

    def all(self, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Every entry."""
        return self.range(reverse=reverse)

    def prefix(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """Entries whose key bytes start with ``prefix``."""
        for key, value, _ in self._state.range(prefix, after_prefix(prefix)):
            yield self._keys.deserialize(key), value


class WindowStore(Generic[K, V]):
    """A window store in user keys and values."""

    def __init__(self, state: KeyValueStoreView, timestamp_ms: int = 0) -> None:
        self._state = state
        self._keys = state.spec.key_serde
        self.timestamp_ms = timestamp_ms

    def put(self, key: K, value: V | None, window_start_ms: int) -> None:
        """Set the value of a key in the window that starts then; ``None`` deletes."""
        self._state.put(window_key(window_start_ms, self._keys.serialize(key)), value, self.timestamp_ms)

    def get(self, key: K, window_start_ms: int) -> V | None:
        """The value of a key in one window."""
        found = self._state.get(window_key(window_start_ms, self._keys.serialize(key)))
        return None if found is None else found[0]

    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """``(window start, value)`` of a key for starts with ``from_ms <= start <= to_ms``, ascending."""
        wanted = self._keys.serialize(key)
        if from_ms > _LAST_MS:
            return
        high = None if to_ms >= _LAST_MS else window_floor(to_ms + 1)
        for store_key, value, _ in self._state.range(window_floor(from_ms), high):
            if store_key[8:] == wanted:
                yield int.from_bytes(store_key[:8], "big"), value

    def all(self) -> Iterator[tuple[K, int, V]]:
        """``(key, window start, value)`` of every entry, by start, then key."""
        for store_key, value, _ in self._state.range():
            yield self._keys.deserialize(store_key[8:]), int.from_bytes(store_key[:8], "big"), value

    def expire_before(self, window_start_ms: int) -> None:
        """Hide windows that start earlier from every reader from now on. The operator calls it."""
        self._state.expire_below(window_floor(window_start_ms))


class KeyWindowStore(Generic[K, V]):
    """A window store laid out by key: a key's windows within a time range are a short range of keys (sliding
    windows)."""

    def __init__(self, state: KeyValueStoreView, timestamp_ms: int = 0) -> None:
        self._store = SegmentedState(state)
        self._keys = state.spec.key_serde
        self.timestamp_ms = timestamp_ms

    def put(self, key: K, value: V | None, window_start_ms: int) -> None:
        """Set the value of a key in the window that starts then; ``None`` deletes."""
        self._store.put(self._keys.serialize(key), window_start_ms, b"", value, self.timestamp_ms)

    def get(self, key: K, window_start_ms: int) -> V | None:
        """The value of a key in one window."""
        found = self._store.get(self._keys.serialize(key), window_start_ms)
        return None if found is None else found[0]

    def fetch(self, key: K, from_ms: int, to_ms: int) -> Iterator[tuple[int, V]]:
        """``(window start, value)`` of a key for starts with ``from_ms <= start <= to_ms``, ascending."""
        for entry in self._store.fetch(self._keys.serialize(key), from_ms, to_ms):
            yield entry.time_ms, entry.value

    def all(self) -> Iterator[tuple[K, int, V]]:
        """``(key, window start, value)`` of every entry, by start, then key."""
        for entry in sorted(self._store.scan(0, _FOREVER), key=lambda e: (e.time_ms, e.key)):
            yield self._keys.deserialize(entry.key), entry.time_ms, entry.value

    def expire_before(self, window_start_ms: int) -> None:
        """As ``WindowStore.expire_before``."""
        self._store.expire_before(window_start_ms)


class SessionStore(Generic[K, V]):
    """A session store in user keys and values. A session is a ``Windowed``: key, start and end, both inside."""

    def __init__(self, state: KeyValueStoreView, timestamp_ms: int = 0) -> None:
        self._store = SegmentedState(state)
        self._keys = state.spec.key_serde
        self.timestamp_ms = timestamp_ms
        """The timestamp of the next deletions; a put has the session's end."""

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Set a session's value; ``None`` deletes it."""
        timestamp_ms = self.timestamp_ms if value is None else session.end_ms
        self._store.put(
            self._keys.serialize(session.key), session.end_ms, _start(session.start_ms), value, timestamp_ms
        )

    def get(self, session: Windowed[K]) -> V | None:
        """The value of one session."""
        found = self._store.get(self._keys.serialize(session.key), session.end_ms, _start(session.start_ms))
        return None if found is None else found[0]

    def find(self, key: K, earliest_end_ms: int, latest_start_ms: int) -> Iterator[tuple[Windowed[K], V]]:
        """A key's sessions that end then or later and start then or earlier, by end, then start."""
        for entry in self._store.fetch(self._keys.serialize(key), earliest_end_ms, _FOREVER):
            if int.from_bytes(entry.suffix, "big") <= latest_start_ms:
                yield self._session(entry), entry.value

    def fetch(self, key: K) -> Iterator[tuple[Windowed[K], V]]:
        """A key's sessions, by end, then start."""
        return self.find(key, 0, _FOREVER)

    def all(self) -> Iterator[tuple[Windowed[K], V]]:
        """Every session, by end, then start, then key."""
        for entry in sorted(self._store.scan(0, _FOREVER), key=lambda e: (e.time_ms, e.suffix, e.key)):
            yield self._session(entry), entry.value

    def expire_before(self, end_ms: int) -> None:
        """Hide sessions that end earlier from every reader from now on. The operator calls it."""
        self._store.expire_before(end_ms)

    def _session(self, entry: SegmentedEntry) -> Windowed[K]:
        return Windowed(self._keys.deserialize(entry.key), int.from_bytes(entry.suffix, "big"), entry.time_ms)


_LAST_MS = (1 << 63) - 1
"""The highest time that a key can hold."""
_FOREVER = (1 << 62) - 1
"""A time after all stored entries."""


def _start(start_ms: int) -> bytes:
    return start_ms.to_bytes(8, "big")


Store = KeyValueStore[Any, Any] | WindowStore[Any, Any] | KeyWindowStore[Any, Any] | SessionStore[Any, Any]


def store_facade(state: KeyValueStoreView) -> Store:
    """The facade for the store's kind."""
    made: dict[str, type[Store]] = {"window": WindowStore, "key_window": KeyWindowStore, "session": SessionStore}
    return made.get(state.spec.kind, KeyValueStore)(state)


def key_value_store(
    name: str, *, key: SerdeLike[K], value: SerdeLike[V], changelog: bool = True
) -> StoreSpec[KeyValueStore[K, V]]:
    """The spec of a key-value store for a processor."""
    return StoreSpec(name, "key_value", serde_of(key), serde_of(value), changelog)


def window_store(
    name: str, *, key: SerdeLike[K], value: SerdeLike[V], size_ms: int, retention_ms: int, changelog: bool = True
) -> StoreSpec[WindowStore[K, V]]:
    """The spec of a window store for a processor. Entries whose window started more than ``retention_ms`` before the
    processor's stream time are dropped, in steps of a tenth of the retention, at most an hour."""
    return StoreSpec(
        name, "window", serde_of(key), serde_of(value), changelog, window_size_ms=size_ms, retention_ms=retention_ms
    )


def session_store(
    name: str, *, key: SerdeLike[K], value: SerdeLike[V], retention_ms: int, changelog: bool = True
) -> StoreSpec[SessionStore[K, V]]:
    """The spec of a session store for a processor. Sessions that ended more than ``retention_ms`` before the processor's
    stream time are dropped, in steps as in ``window_store``."""
    return StoreSpec(name, "session", serde_of(key), serde_of(value), changelog, retention_ms=retention_ms)


def key_window_store(
    name: str, *, key: SerdeLike[K], value: SerdeLike[V], size_ms: int, retention_ms: int, changelog: bool = True
) -> StoreSpec[KeyWindowStore[K, V]]:
    """As ``window_store``, laid out by key."""
    return StoreSpec(
        name, "key_window", serde_of(key), serde_of(value), changelog, window_size_ms=size_ms, retention_ms=retention_ms
    )


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key above every key with this prefix; ``None`` when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
