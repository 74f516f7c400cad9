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


@pytest.mark.parametrize("keys_max", [1, 3, 8])
def test_keys_go_to_another_cache_and_come_back(keys_max: int) -> None:
    """The other cache holds keys for a while, may put entries itself, and drops all of its keys now and then."""
    rng = random.Random(keys_max)
    index, expected, now = EntryIndex(watched(), keys_max), dict[bytes, list[int]](), 0
    elsewhere: dict[bytes, list[tuple[int, bytes]]] = {}
    index.elsewhere = lambda key: elsewhere.pop(key, None)
    for _ in range(900):
        now += rng.choice((0, 1, 5))
        key, time_ms = b"%d" % rng.randrange(9), now - rng.randrange(20)
        index.expire_before(max(now - 50, 0))
        held = [(t, SUFFIX) for t in expected.get(key, []) if t >= now - 50]
        action = rng.random()
        if action < 0.4:
            assert index.places(key) == held
            assert key not in elsewhere
            if time_ms >= 0 and (time_ms, SUFFIX) not in held:
                put(index, key, time_ms)
                expected[key] = sorted([*expected.get(key, []), time_ms])
        elif action < 0.9 and key not in elsewhere:
            assert index.give_up(key) == held
            later = (now + rng.randrange(5), SUFFIX)
            if later not in held:
                index.store.put(key, *later, 1, now)
                expected[key] = sorted([*expected.get(key, []), later[0]])
                held.append(later)
            elsewhere[key] = sorted(held)
        elif action > 0.95:
            index.nowhere(max((places[-1][0] for places in elsewhere.values() if places), default=-1))
            elsewhere.clear()
        latest = max((times[-1] for key, times in expected.items() if key not in elsewhere), default=-1)
        assert index.latest_ms >= latest


def test_the_latest_entry_of_an_earlier_run_is_known_before_any_key_is_read() -> None:
    store = watched()
    put(EntryIndex(store), b"a", 40)
    index = EntryIndex(store)
    assert 40 <= index.latest_ms < 40 + 2 * SPEC.segment_ms
    index.nowhere(20)
    assert index.latest_ms >= 40
    index.nowhere(4_000)
    assert index.latest_ms == 4_000
