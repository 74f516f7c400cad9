"""A store as operators see it: what a commit writes, and ranges over uncommitted writes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.state.serdes.serde import BYTES, INT, STRING, typed_json
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView

SPEC = StoreSpec("s", "key_value", BYTES, INT)


class Price(msgspec.Struct, frozen=True):
    """With a number that has several notations."""

    amount: float


def opened(spec: StoreSpec = SPEC) -> tuple[KeyValueStoreView, MemoryBackend]:
    """A view over an empty backend."""
    backend = MemoryBackend([spec])
    return KeyValueStoreView(spec, backend), backend


def commit(state: KeyValueStoreView, backend: MemoryBackend) -> list[tuple[bytes, bytes | None]]:
    """Commit, and what was written."""
    keys, values, _ = state.pending()
    puts = list(zip(keys, values, strict=True))
    backend.commit([StoreWrites("s", puts, b"at", state.drop_below)])
    state.committed()
    return puts


def test_what_is_new_and_deleted_before_the_commit_is_not_written() -> None:
    state, backend = opened()
    state.put_new(b"a", 1, 5)
    state.put_new(b"b", 2, 5)
    state.put(b"a", 3, 6)
    state.put(b"a", None, 7)
    assert state.get(b"a") is None
    assert [k for k, _ in commit(state, backend)] == [b"b"]
    state.put(b"b", None, 8)
    assert commit(state, backend) == [(b"b", None)]


def test_what_the_backend_holds_is_deleted_though_it_was_put_as_new_meanwhile() -> None:
    state, backend = opened()
    state.put(b"a", 1, 5)
    commit(state, backend)
    state.put(b"a", None, 6)
    state.put_new(b"a", 2, 7)
    state.put(b"a", None, 8)
    assert commit(state, backend) == [(b"a", None)]
    assert backend.get_many("s", [b"a"]) == [None]


def test_what_was_new_before_a_commit_or_a_discard_is_not_new_behind_it() -> None:
    state, backend = opened()
    state.put_new(b"a", 1, 5)
    commit(state, backend)
    state.put(b"a", None, 6)
    assert commit(state, backend) == [(b"a", None)]
    state.put_new(b"c", 1, 5)
    state.discard()
    state.put(b"c", None, 6)
    assert commit(state, backend) == [(b"c", None)]


def test_a_new_value_that_cannot_be_written_leaves_the_store_as_it_was() -> None:
    state, backend = opened(StoreSpec("s", "key_value", BYTES, STRING))
    with pytest.raises(TypeError):
        state.put_new(b"a", 5, 5)
    state.put(b"a", None, 6)
    assert commit(state, backend) == [(b"a", None)]


def test_ranges_and_commits_are_those_of_a_plain_dict_whatever_comes_between() -> None:
    rng = random.Random(7)
    for _ in range(60):
        state, backend = opened()
        model: dict[bytes, int] = {}
        stored: dict[bytes, int] = {}
        for step in range(120):
            key = bytes([rng.randrange(12)])
            action = rng.random()
            if action < 0.35:
                (state.put if key in model else state.put_new)(key, step, step)
                model[key] = step
            elif action < 0.6:
                state.put(key, None, step)
                model.pop(key, None)
            elif action < 0.9:
                low, high = sorted((bytes([rng.randrange(12)]), bytes([rng.randrange(12)])))
                reverse = rng.random() < 0.5
                found = [(k, v) for k, v, _ in state.range(low, high, reverse=reverse)]
                inside = sorted((k, v) for k, v in model.items() if low <= k < high)
                assert found == sorted(inside, reverse=reverse)
                first = state.first(low, high)
                assert (first and first[:2]) == (inside[0] if inside else None)
            else:
                for k, raw in commit(state, backend):
                    if raw is None:
                        stored.pop(k, None)
                    else:
                        stored[k] = int.from_bytes(raw[8:], "big")
                assert stored == model


def test_entries_of_keys_are_loaded_where_they_are_not_there() -> None:
    state, backend = opened()
    for key in (b"a", b"b"):
        state.put(key, 1, 5)
    commit(state, backend)
    again = KeyValueStoreView(SPEC, backend)
    again.put(b"a", 2, 6)
    assert again.entries_of([b"b", b"none", b"a", b"b"]) == [(1, 5), None, (2, 6), (1, 5)]
    assert again.entries_of([b"a", b"none"]) == [(2, 6), None]
    assert again.entries_of([]) == []


USES: dict[str, Callable[[KeyValueStoreView], Any]] = {
    "load": lambda state: state.load([b"a"]),
    "entries_of": lambda state: state.entries_of([b"a"]),
    "packed": lambda state: state.packed(b"a", np.array([0, 1])),
    "get": lambda state: state.get(b"a"),
    "changed": lambda state: state.changed(b"a"),
    "range": lambda state: list(state.range()),
    "first": lambda state: state.first(),
    "put": lambda state: state.put(b"b", 1, 5),
    "put_new": lambda state: state.put_new(b"b", 1, 5),
    "put_entry": lambda state: state.put_entry(b"b", None, 5),
    "put_entries": lambda state: state.put_entries([b"b"], [(1, 5)], [5]),
    "put_raw": lambda state: state.put_raw([b"b"], [bytes(8)], [0], [5]),
    "pending": lambda state: state.pending(),
    "uncommitted_bytes": lambda state: state.uncommitted_bytes(),
}


@pytest.mark.parametrize("use", USES)
def test_what_is_held_back_is_there_before_any_use(use: str) -> None:
    state, backend = opened()
    calls: list[str] = []

    def settle() -> None:
        calls.append(use)
        state.put_entries([b"a", b"c"], [(7, 1), (8, 2)], [1, 2], new=True)

    state.get(b"a")  # from now on in memory
    state.defer(settle)
    USES[use](state)
    assert calls == [use]
    assert state.get(b"c") == (8, 2)
    assert state.get(b"a") == (7, 1)
    state.put(b"a", None, 6)  # the backend has none, so nothing is written for it
    assert b"a" not in dict(commit(state, backend))
    assert calls == [use]


def test_what_is_held_back_is_discarded_with_the_rest() -> None:
    state, _ = opened()
    state.defer(lambda: state.put(b"a", 1, 5))
    state.discard()
    assert state.get(b"a") is None
    state.defer(lambda: state.put(b"a", 1, 5))
    state.defer(None)
    assert state.pending() == ([], [], [])


def test_entries_put_at_once_delete_what_the_backend_has() -> None:
    state, backend = opened()
    state.put(b"a", 1, 5)
    commit(state, backend)
    state.put(b"a", None, 6)
    state.put_entries([b"a"], [(2, 7)], [7], new=True)
    state.put(b"a", None, 8)
    assert commit(state, backend) == [(b"a", None)]


def test_a_store_of_bytes_holds_what_one_of_objects_holds() -> None:
    rng = random.Random(5)
    objects = StoreSpec("s", "key_value", BYTES, typed_json(Price))
    views = [opened(spec) for spec in (objects, dataclasses.replace(objects, as_bytes=True))]
    for step in range(300):
        key, amount = rng.choice((b"a", b"b", b"c")), rng.choice((1, 1.0, 2.5, None))
        value = None if amount is None else Price(amount)
        for state, _ in views:
            state.put(key, value, step)
        one, other = (
            (
                [state.get(key) for key in (b"a", b"b")],
                list(state.range()),
                list(state.range(b"b", reverse=True)),
                state.first(),
            )
            for state, _ in views
        )
        assert repr(one) == repr(other)
        if rng.random() < 0.1:
            assert commit(*views[0]) == commit(*views[1])
            for state, _ in views:
                state.discard()
    assert views[1][0].immutable is False


def test_bytes_are_put_as_they_are() -> None:
    state, backend = opened(StoreSpec("s", "key_value", BYTES, typed_json(Price), as_bytes=True))
    state.put_raw([b"a", b"b", b"a"], [b'{"amount":1.5}', None, b'{"amount":2.5}'], [], [1, 2, 3])
    assert state.get(b"a") == (Price(2.5), 3)
    assert list(state.entries_between()) == [(b"a", (3).to_bytes(8, "big") + b'{"amount":2.5}')]
    assert commit(state, backend) == [(b"a", (3).to_bytes(8, "big") + b'{"amount":2.5}'), (b"b", None)]
