"""Entries of segmented stores by their store keys."""

from __future__ import annotations

from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedState, ViewEntries
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView

SPEC = StoreSpec("s", "session", BYTES, INT, retention_ms=100)
START = bytes(8)


def test_changes_delete_first_and_then_put() -> None:
    state = KeyValueStoreView(SPEC, MemoryBackend([SPEC]))
    store = SegmentedState(state)
    for key in (b"a", b"b", b"c"):
        store.put(key, 7, START, 1, 3)
    state.pending()
    state.committed()
    a, b, c, d = ((0).to_bytes(8, "big") + key + (7).to_bytes(8, "big") + START for key in (b"a", b"b", b"c", b"d"))
    store.change([a, b], [4, 5], ViewEntries([b, d], [(2, 6), (3, 7)], [6, 7]), ViewEntries([c], [(4, 8)], [8]))
    assert [(e.key, e.value, e.timestamp_ms) for e in store.scan(0, 99)] == [(b"b", 2, 6), (b"c", 4, 8), (b"d", 3, 7)]
    keys, values, times = state.pending()
    assert dict(zip(keys, times, strict=True)) == {a: 4, b: 6, c: 8, d: 7}
    assert values[keys.index(a)] is None
    store.change([b, d], [9, 9], ViewEntries([], [], []), ViewEntries([], [], []))
    assert set(state.pending()[0]) == {a, b, c}
