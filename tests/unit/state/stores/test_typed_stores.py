"""Session stores and window stores by key as processors and queries use them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Windowed
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.state.stores.typed_stores import (
    KeyValueStore,
    KeyWindowStore,
    SessionStore,
    WindowStore,
    key_value_store,
    key_window_store,
    session_store,
    store_facade,
    window_store,
)

LAST_MS = (1 << 63) - 1
WINDOWS = window_store("s", key=str, value=int, size_ms=10, retention_ms=100)
KEY_WINDOWS = key_window_store("s", key=str, value=int, size_ms=10, retention_ms=100)


def state_of(spec: StoreSpec) -> KeyValueStoreView:
    """An empty store."""
    return KeyValueStoreView(spec, MemoryBackend([spec]))


def sessions() -> SessionStore[str, int]:
    """An empty session store."""
    return SessionStore(state_of(session_store("s", key=str, value=int, retention_ms=100)))


def test_the_facade_follows_the_kind() -> None:
    kinds = [
        (key_value_store("s", key=str, value=int), KeyValueStore),
        (window_store("s", key=str, value=int, size_ms=10, retention_ms=100), WindowStore),
        (key_window_store("s", key=str, value=int, size_ms=10, retention_ms=100), KeyWindowStore),
        (session_store("s", key=str, value=int, retention_ms=100), SessionStore),
    ]
    for spec, kind in kinds:
        assert type(store_facade(state_of(spec))) is kind


def test_sessions_are_found_by_where_they_end_and_start() -> None:
    store = sessions()
    put = {Windowed("a", 0, 5): 1, Windowed("a", 300, 310): 2, Windowed("a", 320, 900): 3, Windowed("b", 0, 400): 4}
    for session, value in put.items():
        store.put(session, value)
    assert list(store.fetch("a")) == [(s, v) for s, v in put.items() if s.key == "a"]
    assert [v for _, v in store.find("a", 5, 319)] == [1, 2]
    assert [v for _, v in store.find("a", 6, 320)] == [2, 3]
    assert store.get(Windowed("a", 300, 310)) == 2
    assert store.get(Windowed("a", 300, 311)) is None
    store.put(Windowed("a", 300, 310), None)
    assert [v for _, v in store.all()] == [1, 4, 3]


def test_a_key_that_is_the_beginning_of_another_has_its_own_sessions() -> None:
    store = sessions()
    store.put(Windowed("a", 1, 2), 1)
    store.put(Windowed("a\x00", 1, 2), 2)
    assert [v for _, v in store.fetch("a")] == [1]


def test_windows_by_key_are_read_by_start() -> None:
    store: KeyWindowStore[str, int] = KeyWindowStore(
        state_of(key_window_store("s", key=str, value=int, size_ms=10, retention_ms=100))
    )
    for key, start, value in (("b", 7, 1), ("a", 260, 2), ("a", 9, 3), ("a", 7, 4)):
        store.put(key, value, start)
    assert list(store.fetch("a", 8, 260)) == [(9, 3), (260, 2)]
    assert list(store.all()) == [("a", 7, 4), ("b", 7, 1), ("a", 9, 3), ("a", 260, 2)]
    store.put("a", None, 9)
    assert store.get("a", 9) is None
    assert store.get("a", 7) == 4


@pytest.mark.parametrize("spec", [WINDOWS, KEY_WINDOWS])
def test_windows_are_fetched_to_the_end_of_time(spec: StoreSpec) -> None:
    store: Any = store_facade(state_of(spec))
    store.put("a", 1, 5)
    store.put("a", 2, 90)
    for last in (90, LAST_MS - 1, LAST_MS, LAST_MS + 1):
        assert list(store.fetch("a", 5, last)) == [(5, 1), (90, 2)]
    assert list(store.fetch("a", 91, LAST_MS)) == []


@pytest.mark.parametrize("spec", [WINDOWS, KEY_WINDOWS])
def test_expired_windows_are_gone_for_every_reader(spec: StoreSpec) -> None:
    store: Any = store_facade(state_of(spec))
    for start in (39, 40):
        store.put("a", start, start)
    store.expire_before(40)
    assert list(store.all()) == [("a", 40, 40)]
    assert list(store.fetch("a", 0, 100)) == [(40, 40)]
    assert store.get("a", 39) is None


def test_expired_sessions_are_gone_for_every_reader() -> None:
    store = sessions()
    old, new = Windowed("a", 0, 39), Windowed("a", 0, 40)
    store.put(old, 1)
    store.put(new, 2)
    store.expire_before(40)
    assert list(store.all()) == list(store.fetch("a")) == [(new, 2)]
    assert store.get(old) is None
