"""Aggregates that the compiled part folds between commits are what a plain view of the store would hold: what commits write
and log, and whatever is read in between."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import numpy as np
import pytest

from penstock.state import native
from penstock.state.errors import IncompatibleError
from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.count_store import state_of
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.part_store import COUNT, GREATEST, LEAST, TOTAL, PartStoreView, holds_parts
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView, window_floor, window_key
from penstock.topologies.aggregators.encoding import BAGS, FLAT, joined

SERDE = joined((INT, FLAT, FLAT, FLAT))
PARTS = COUNT + TOTAL + LEAST + GREATEST
WINDOWS: StoreSpec[Any] = StoreSpec("parts", "window", BYTES, SERDE, window_size_ms=10, retention_ms=20)
KEYS: StoreSpec[Any] = StoreSpec("parts", "key_value", BYTES, SERDE)
NAMES = [b"", b"a", b"b", b"long" * 20]

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="the compiled part is not built")


def view(spec: StoreSpec[Any], backend: MemoryBackend) -> PartStoreView:
    state = state_of(spec, backend)
    assert isinstance(state, PartStoreView) and state.use(PARTS)
    return state


def taken(state: PartStoreView, rows: list[tuple[bytes, int, int, int]]) -> bool:
    """Fold rows of names, starts, numbers and times."""
    ends = np.cumsum([0, *(len(name) for name, *_ in rows)], dtype=np.int64)
    starts, numbers, times = (np.array([row[i] for row in rows], np.int64) for i in (1, 2, 3))
    columns: list[Any] = [(None, None), *[(numbers, None)] * 3]
    begins = starts if state.spec.kind == "window" else None
    data = b"".join(name for name, *_ in rows)
    return state.take(data, ends, begins, lambda tally: tally.fold(columns, times))


def plainly(state: KeyValueStoreView, rows: list[tuple[bytes, int, int, int]]) -> None:
    """The same, one by one."""
    for name, start, number, ts in rows:
        key = window_key(start, name) if state.spec.kind == "window" else name
        (n, (some, total), low, high), latest = state.get(key) or ((0, (0, 0), (), ()), ts)
        made = (n + 1, (some + 1, total + number), (min((number, *low)),), (max((number, *high)),))
        state.put(key, made, max(latest, ts))


def commit(state: KeyValueStoreView, backend: MemoryBackend) -> Any:
    changes = state.packed_changes()
    if changes is None:
        keys, values, times = state.pending()
    else:
        keys, values = (list(part) for part in changes.puts.listed())
        times = changes.times.tolist()
    backend.commit([StoreWrites("parts", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
    state.committed()
    return keys, values, times


@pytest.mark.parametrize("spec", [WINDOWS, KEYS], ids=["windows", "keys"])
def test_aggregates_are_those_of_a_plain_view(spec: StoreSpec[Any]) -> None:
    folded = 0
    for seed in range(80):
        rng = random.Random(seed)
        backends = MemoryBackend([spec]), MemoryBackend([spec])
        state, plain = view(spec, backends[0]), KeyValueStoreView(spec, backends[1])
        floor, clock = 0, count()
        for _ in range(30):
            step = rng.random()
            if step < 0.6:
                starts = [start for start in (0, 10, 20, 30) if start >= floor]
                far = rng.random() < 0.1
                rows = [
                    (
                        rng.choice(NAMES),
                        rng.choice(starts),
                        rng.choice((1 << 61, -(1 << 61), 1 << 62)) if far else rng.randint(-9, 1 << 40),
                        next(clock) + rng.randint(-5, 5),
                    )
                    for _ in range(rng.randint(1, 6))
                ]
                before = state.uncommitted_bytes()
                if taken(state, rows):
                    folded += 1
                    assert state.uncommitted_bytes() >= before > 0 or not before
                else:
                    plainly(state, rows)
                plainly(plain, rows)
            elif step < 0.66:
                key = window_key(rng.choice((0, 10)), rng.choice(NAMES)) if spec is WINDOWS else rng.choice(NAMES)
                assert state.get(key) == plain.get(key), seed
            elif step < 0.7:
                assert list(state.range()) == list(plain.range()), seed
            elif step < 0.76 and spec is WINDOWS:
                floor = min(floor + rng.choice((0, 10)), 20)
                state.expire_below(window_floor(floor))
                plain.expire_below(window_floor(floor))
            elif step < 0.8:
                state.discard()
                plain.discard()
                floor = 0 if state._floor is None else int.from_bytes(state._floor, "big")
            else:
                assert commit(state, backends[0]) == commit(plain, backends[1]), seed
                assert list(backends[0].range("parts", None, None)) == list(backends[1].range("parts", None, None))
    assert folded > 300


def test_an_aggregate_that_cannot_be_read_is_reported_by_the_entries() -> None:
    backend = MemoryBackend([KEYS])
    backend.commit([StoreWrites("parts", [(b"a", bytes(8) + b"no aggregate")], b"at")])
    state = view(KEYS, backend)
    assert taken(state, [(b"b", 0, 1, 1)]) and not taken(state, [(b"c", 0, 1, 1), (b"a", 0, 1, 1)])
    assert set(state.dirty) == {b"b"} and state.settled == [b"b"], "what was taken before is in the entries"
    with pytest.raises(IncompatibleError, match="no aggregate"):
        state.get(b"a")
    assert not taken(state, [(b"d", 0, 1, 1)]), "entries are uncommitted"
    state.discard()
    assert taken(state, [(b"d", 0, 1, 1)])


def test_what_was_shown_takes_no_more_before_the_commit() -> None:
    backend = MemoryBackend([KEYS])
    state = view(KEYS, backend)
    assert taken(state, [(b"a", 0, 5, 7)])
    found = state.tallied()
    assert found is not None and found.starts is None and [c.tolist() for c in found.numbers[:3]] == [[1], [1], [5]]
    state.shown = True
    assert not taken(state, [(b"a", 0, 1, 1)])
    commit(state, backend)
    assert state.tallied() is None and taken(state, [(b"a", 0, 1, 1)])
    assert state.get(b"a") == ((2, (2, 6), (1,), (5,)), 7)


def test_only_stores_of_such_aggregates_have_the_view() -> None:
    for spec in (
        StoreSpec("s", "key_value", BYTES, joined((INT, BAGS))),
        StoreSpec("s", "key_value", BYTES, FLAT),
        StoreSpec("s", "key_value", BYTES, SERDE, source_topic="in"),
        StoreSpec("s", "key_value", BYTES, SERDE, as_bytes=True),
        StoreSpec("s", "session", BYTES, SERDE, retention_ms=9),
    ):
        assert not holds_parts(spec) and not isinstance(state_of(spec, MemoryBackend([spec])), PartStoreView)
    with native.without():
        assert not isinstance(state_of(KEYS, MemoryBackend([KEYS])), PartStoreView)
