"""A list store reads the entries of a key from memory, and what it keeps for that is counted and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.state.serdes.serde import BYTES, JSON, Serde
from penstock.state.stores.count_store import state_of
from penstock.state.stores.list_store import ListStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites


class CountedBackend(MemoryBackend):
    """Counts the ranges that are read."""

    ranges = 0

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self.ranges += 1
        return super().range(store, low, high, reverse=reverse)


def opened(serde: Serde[Any] = BYTES) -> tuple[CountedBackend, ListStoreView, SegmentedState]:
    """An empty store."""
    spec = StoreSpec("s", "list", BYTES, serde, retention_ms=2_000)
    backend = CountedBackend([spec])
    return backend, *view(backend, spec)


def view(backend: MemoryBackend, spec: StoreSpec) -> tuple[ListStoreView, SegmentedState]:
    """A new view of a store."""
    state = state_of(spec, backend)
    assert isinstance(state, ListStoreView)
    return state, SegmentedState(state, only_appends=True)


def commit(state: ListStoreView, backend: MemoryBackend) -> None:
    keys, values, _ = state.pending()
    backend.commit([StoreWrites("s", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
    state.committed()


def found(buffer: SegmentedState, key: bytes) -> list[Any]:
    return [entry.value for entry in buffer.fetch(key, 0, 10_000)]


def test_keys_that_are_known_are_read_without_ranges() -> None:
    backend, state, buffer = opened()
    for time in range(100):
        buffer.append(b"k%d" % (time % 10), time, b"%d" % time)
    before = backend.ranges
    commit(state, backend)
    for time in range(100, 3_000):
        assert len(found(buffer, b"k%d" % (time % 10))) == time // 10
        assert found(buffer, b"other") == []
        buffer.append(b"k%d" % (time % 10), time, b"%d" % time)
    assert backend.ranges == before


def test_a_key_of_a_reopened_store_is_read_by_one_range() -> None:
    backend, state, buffer = opened()
    buffer.append(b"a", 5, b"1")
    commit(state, backend)
    state, buffer = view(backend, state.spec)
    assert found(buffer, b"a") == [b"1"]
    before = backend.ranges
    for time in range(10, 20):
        buffer.append(b"a", time, b"2")
        assert found(buffer, b"a") == [b"1"] + [b"2"] * (time - 9)
    assert backend.ranges == before


@pytest.mark.parametrize("serde", [BYTES, JSON])
def test_memory_is_counted_and_freed(serde: Serde[Any]) -> None:
    backend, state, buffer = opened(serde)
    value: Any = "v" if serde is JSON else b"v"
    for time in range(2_000):
        buffer.append(b"%d" % time, time, value)
    commit(state, backend)
    assert all(found(buffer, b"%d" % time) == [value] for time in range(2_000))
    whole = state.size_bytes()
    assert whole > 2_000 * 300
    state.trim(whole // 2)
    assert state.size_bytes() <= whole // 2
    assert all(found(buffer, b"%d" % time) == [value] for time in range(2_000))
    state.trim(0)
    assert state.size_bytes() == 0


def test_a_mutable_value_is_never_shared() -> None:
    _, _, buffer = opened(JSON)
    buffer.append(b"a", 5, [1])
    found(buffer, b"a")[0].append(2)
    assert found(buffer, b"a") == [[1]]


def test_what_expired_is_forgotten() -> None:
    backend, state, buffer = opened()
    for time in range(0, 9_000, 10):
        buffer.append(b"%d" % time, time, b"v")
        buffer.expire_before(time - 2_000)
        commit(state, backend)
    assert found(buffer, b"6000") == []
    assert found(buffer, b"8000") == [b"v"]
    assert state.size_bytes() < 500 * 1_000
