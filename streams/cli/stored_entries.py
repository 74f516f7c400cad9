"""The entries of a store as JSON, decoded by the topology's serdes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from penstock.state.stores.store import StoreSpec
from penstock.state.stores.typed_stores import after_prefix
from penstock.streams.cli.topic_types import window
from penstock.streams.cli.typed_bytes import Codec, codec_of, shown_or_marked

_TIME_BYTES = 8
_SEQUENCE_BYTES = 4


class StoredEntries(Protocol):
    """Where entries of one store partition are read from."""

    def range(self, store: str, low: bytes | None = None, high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """StoredEntries with ``low <= key < high``, ascending."""


class StoreReader:
    """Reads a store's entries as what commands print."""

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self.keys: Codec = codec_of(spec.key_serde)
        self._values = codec_of(spec.value_serde)

    def shown(self, store_key: bytes, stored: bytes) -> dict[str, Any]:
        """One entry: key, what else the store's kind has in its keys, value and timestamp."""
        key, more = self._parts(store_key)
        timestamp_ms, data = int.from_bytes(stored[:_TIME_BYTES], "big", signed=True), stored[_TIME_BYTES:]
        if self.spec.kind == "versioned":
            value = shown_or_marked(self._values, data[1:] if data[:1] == b"\x01" else None)
        else:
            value = shown_or_marked(self._values, data)
        return {"key": shown_or_marked(self.keys, key), **more, "value": value, "timestamp": timestamp_ms}

    def key_bytes(self, store_key: bytes) -> bytes:
        """The key's own bytes in a store key."""
        return self._parts(store_key)[0]

    def of_key(self, entries: StoredEntries, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries of a key: one, or one for each window, session, version or place of a list. A store of windows that
        is laid out by time is read as a whole."""
        name = self.spec.name
        if self.spec.kind == "key_value":
            yield from entries.range(name, key, key + b"\x00")
            return
        bounds = (key, after_prefix(key)) if self.spec.kind == "versioned" else (None, None)
        for store_key, stored in entries.range(name, *bounds):
            if self.key_bytes(store_key) == key:
                yield store_key, stored

    def between(self, entries: StoredEntries, low: bytes | None, high: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """StoredEntries whose keys' bytes are from ``low`` to ``high``, both included, in the store's order."""
        first, last = None, None
        if self.spec.kind == "key_value":
            first, last = low, None if high is None else high + b"\x00"
        for store_key, stored in entries.range(self.spec.name, first, last):
            key = self.key_bytes(store_key)
            if (low is None or key >= low) and (high is None or key <= high):
                yield store_key, stored

    def _parts(self, store_key: bytes) -> tuple[bytes, dict[str, Any]]:
        kind = self.spec.kind
        if kind == "key_value":
            return store_key, {}
        if kind == "window":
            return store_key[_TIME_BYTES:], dict(window(_time(store_key[:_TIME_BYTES]), self.spec))
        if kind == "versioned":
            return store_key[:-_TIME_BYTES], {"valid_from": _time(store_key[-_TIME_BYTES:])}
        inner = store_key[_TIME_BYTES:]
        if kind == "key_window":
            return inner[:-_TIME_BYTES], dict(window(_time(inner[-_TIME_BYTES:]), self.spec))
        if kind == "session":
            both = inner[-2 * _TIME_BYTES :]
            return inner[: -2 * _TIME_BYTES], {"start": _time(both[_TIME_BYTES:]), "end": _time(both[:_TIME_BYTES])}
        behind = _TIME_BYTES + _SEQUENCE_BYTES
        sequence = int.from_bytes(inner[-_SEQUENCE_BYTES:], "big")
        return inner[:-behind], {"at": _time(inner[-behind:-_SEQUENCE_BYTES]), "sequence": sequence}


def _time(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
