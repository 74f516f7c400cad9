"""The cache of a store's view: bounded in bytes, keeps what is asked for, and never shows in an answer."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Sequence

import pytest

from penstock.state.serdes.serde import BYTES, INT, JSON, Serde
from penstock.state.stores.entry_sizes import entries_bytes
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView

BOUND = 100_000


class Counting(MemoryBackend):
    """Remembers how many keys were read."""

    reads = 0

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += len(keys)
        return super().get_many(store, keys)


def commit(state: KeyValueStoreView, backend: MemoryBackend) -> None:
    keys, values, _ = state.pending()
    backend.commit([StoreWrites("s", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
    state.committed()


def key(number: int) -> bytes:
    return b"%08d" % number


def test_what_is_asked_for_again_and_again_stays_while_others_pass_through() -> None:
    spec = StoreSpec("s", "key_value", BYTES, INT)
    backend = Counting([spec])
    backend.commit([StoreWrites("s", [(key(0), b"\x00" * 16)], b"at")])
    state = KeyValueStoreView(spec, backend)
    hot = [key(n) for n in range(50)]
    for k in hot:
        state.put(k, 1, 1)
    commit(state, backend)
    for batch in range(200):
        state.load(hot + [key(1_000 + batch * 20 + n) for n in range(20)])
        state.trim(BOUND)
        assert state.size_bytes() <= BOUND
    assert backend.reads == 200 * 20
    assert len(state.entries) < 1_000


def test_a_store_that_began_empty_is_not_asked_until_something_was_dropped() -> None:
    spec = StoreSpec("s", "key_value", BYTES, INT)
    backend = Counting([spec])
    state = KeyValueStoreView(spec, backend)
    for number in range(300):
        state.load([key(number)])
        state.put(key(number), number, 1)
        commit(state, backend)
        state.trim(BOUND)
    assert backend.reads == 0
    for number in range(300, 3_000):
        state.put(key(number), number, 1)
        commit(state, backend)
        state.trim(BOUND)
    assert state.get(key(5)) == (5, 1) and backend.reads == 1, "it was dropped"
    fresh = KeyValueStoreView(spec, backend)
    backend.reads = 0
    assert fresh.get(key(1)) == (1, 1) and backend.reads == 1, "it did not begin empty"
    state.discard()
    assert state.get(key(2)) == (2, 1) and backend.reads == 2, "it is all in the backend"


@pytest.mark.parametrize("serde", [INT, JSON], ids=["kept as objects", "kept as bytes"])
def test_trimming_never_shows(serde: Serde[object]) -> None:
    rng = random.Random(11)
    spec = StoreSpec("s", "key_value", BYTES, serde)
    for _ in range(30):
        backend = MemoryBackend([spec])
        state = KeyValueStoreView(spec, backend)
        model: dict[bytes, int] = {}
        committed: dict[bytes, int] = {}
        floor = 0
        for step in range(200):
            some = [key(rng.randrange(floor, 30)) for _ in range(3)]
            action = rng.random()
            if action < 0.5:
                state.load(some)
                assert [state.get(k) for k in some] == [(model[k], 5) if k in model else None for k in some]
            elif action < 0.75:
                state.put(some[0], None if step % 4 == 0 else step, 5)
                model.pop(some[0], None)
                if step % 4:
                    model[some[0]] = step
            elif action < 0.8:
                state.discard()
                model = dict(committed)
            elif action < 0.85:
                floor = min(floor + 1, 20)
                state.expire_below(key(floor))
                model = {k: v for k, v in model.items() if k >= key(floor)}
                commit(state, backend)
                committed = dict(model)
            elif action < 0.9:
                commit(state, backend)
                committed = dict(model)
            else:
                state.trim(rng.choice([0, 1_000, 3_000]))
        assert {k: v for k, v, _ in state.range()} == model


@pytest.mark.parametrize("length", [8, 200])
def test_the_estimate_is_what_the_entries_take(length: int) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        entries = {key(n): (10_000 + n, 1_000_000_000_000 + n) for n in range(50_000)}
        taken = tracemalloc.get_traced_memory()[0] - before
        assert taken * 0.8 <= entries_bytes(entries) <= taken * 1.3
        before = tracemalloc.get_traced_memory()[0]
        stored = {key(n): bytes(length) + key(n) for n in range(50_000)}
        taken = tracemalloc.get_traced_memory()[0] - before
        assert taken * 0.8 <= entries_bytes(stored) <= taken * 1.3
    finally:
        tracemalloc.stop()
    assert entries_bytes({}) == 0
    assert entries_bytes({b"k": None}) < sys.getsizeof(b"k") + 200


def test_less_is_kept_where_the_backend_keeps_it_too() -> None:
    class Keeping(Counting):
        keeps_reads = True

    spec = StoreSpec("s", "key_value", BYTES, INT)
    state = KeyValueStoreView(spec, Keeping([spec]))
    for batch in range(100):
        state.load([key(batch * 20 + n) for n in range(20)])
        state.trim(BOUND)
        assert state.size_bytes() <= BOUND // 8
    state.put(key(0), 1, 1)
    state.trim(0)
    assert state.get(key(0)) == (1, 1), "what is not committed stays"


def test_values_that_grow_are_noticed_though_their_number_stays() -> None:
    spec = StoreSpec("s", "key_value", BYTES, BYTES)
    backend = MemoryBackend([spec])
    state = KeyValueStoreView(spec, backend)
    for size in [1, *[BOUND] * 40]:
        for number in range(4):
            state.put(key(number), b"v" * size, 1)
        commit(state, backend)
        state.trim(BOUND)
    assert state.size_bytes() <= BOUND
    state.put(key(0), b"v", 1)
    commit(state, backend)
    state.trim(10 * BOUND, remeasure=True)
    state.load([key(1)])
    state.trim(BOUND, remeasure=True)
    assert state.size_bytes() <= BOUND
