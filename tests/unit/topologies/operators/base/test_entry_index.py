"""The index over a segmented store: what it gives, and when it reads."""

from __future__ import annotations

import random

import pytest

from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedEntry, SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operators.base.entry_index import EntryIndex

SPEC = StoreSpec("s", "session", BYTES, INT, retention_ms=100)
SUFFIX = bytes(8)


class Watched(SegmentedState):
    """Counts the reads of ranges."""

    reads = 0

    def fetch(self, key: bytes, from_ms: int, to_ms: int, *, reverse: bool = False) -> list[SegmentedEntry]:
        """As the store."""
        self.reads += 1
        return list(super().fetch(key, from_ms, to_ms, reverse=reverse))


def watched() -> Watched:
    """An empty store."""
    return Watched(KeyValueStoreView(SPEC, MemoryBackend([SPEC])))


def put(index: EntryIndex, key: bytes, time_ms: int) -> None:
    """Put an entry."""
    index.places(key)
    index.put(key, (time_ms, SUFFIX), index.store.entry_of(1, time_ms), time_ms)


def test_new_keys_of_an_empty_store_are_not_read() -> None:
    store = watched()
    index = EntryIndex(store)
    for i in range(50):
        put(index, b"%d" % i, i)
        index.expire_before(i - 20)
    assert store.reads <= 1
    assert index.places(b"49") == [(49, SUFFIX)]


def test_entries_of_an_earlier_run_are_read_until_they_have_expired() -> None:
    store = watched()
    put(EntryIndex(store), b"a", 40)
    index = EntryIndex(store)
    index.expire_before(1)
    assert index.places(b"a") == [(40, SUFFIX)]
    assert index.places(b"b") == []
    reads = store.reads
    index.expire_before(1_000)
    assert index.places(b"c") == index.places(b"a") == []
    assert store.reads == reads


@pytest.mark.parametrize("keys_max", [1, 2, 3, 8])
def test_a_full_index_forgets_nothing_that_is_stored(keys_max: int) -> None:
    rng = random.Random(keys_max)
    index, expected, now = EntryIndex(watched(), keys_max), dict[bytes, list[int]](), 0
    for _ in range(600):
        now += rng.choice((0, 1, 5))
        key, time_ms = b"%d" % rng.randrange(9), max(now - rng.randrange(60), 0)
        floor = max(now - 50, 0)
        index.expire_before(floor)
        held = {t for t in expected.get(key, []) if t >= floor}
        assert index.places(key) == [(t, SUFFIX) for t in sorted(held)]
        if time_ms < floor:
            continue
        if time_ms in held and rng.random() < 0.7:
            index.put(key, (time_ms, SUFFIX), None, now)
            held.remove(time_ms)
        else:
            index.put(key, (time_ms, SUFFIX), index.store.entry_of(1, now), now)
            held.add(time_ms)
        expected[key] = sorted(held)
