"""Many entries appended at once to a list store: what is written, and in which order, is as if they came one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.count_store import state_of
from penstock.state.stores.list_store import ListStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import TIME_IN, SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites

SPEC = StoreSpec("s", "list", BYTES, BYTES, retention_ms=40)
KEYS = [b"a", b"ab", b"b", b""]


class Buffer:
    """A store, its view, and what commits wrote."""

    def __init__(self) -> None:
        self.backend = MemoryBackend([SPEC])
        self.committed: list[Any] = []
        self.reopen()

    def reopen(self) -> None:
        """As after a restart."""
        state = state_of(SPEC, self.backend)
        assert isinstance(state, ListStoreView)
        self.state, self.buffer = state, SegmentedState(state, only_appends=True)

    def commit(self) -> None:
        keys, values, times = self.state.pending()
        self.committed.append((keys, values, times))
        self.backend.commit([StoreWrites("s", list(zip(keys, values, strict=True)), b"at", self.state.drop_below)])
        self.state.committed()


def one_by_one(to: Buffer, rows: list[tuple[int, int, bytes, int]]) -> None:
    """Rows: number of the key, time, value, floor."""
    for number, time_ms, value, floor_ms in rows:
        to.buffer.expire_before(floor_ms)
        to.buffer.append(KEYS[number], time_ms, value)


def at_once(to: Buffer, rows: list[tuple[int, int, bytes, int]]) -> None:
    numbers, times, values = ([row[i] for row in rows] for i in range(3))
    expired = [i for i, (_, time_ms, _, floor_ms) in enumerate(rows) if time_ms < floor_ms]
    to.buffer.append_all(KEYS, numbers, times, values, expired)  # type: ignore[arg-type]  # each of its type
    to.buffer.expire_before(max((row[3] for row in rows), default=0))


@pytest.mark.parametrize("seed", range(60))
def test_the_same_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    single, batched = Buffer(), Buffer()
    now, number = 0, 0
    for _ in range(rng.randint(1, 25)):
        rows = []
        for _ in range(rng.randint(0, 12)):
            now += rng.choice((0, 0, 1, 7))
            time_ms = max(0, now - rng.choice((0, 0, 1, 5, 30, 60)))
            rows.append((rng.randrange(len(KEYS)), time_ms, b"%d" % number, max(0, now - 40)))
            number += 1
        one_by_one(single, rows)
        at_once(batched, rows)
        then = rng.choice(("", "", "commit", "commit", "reopen", "trim"))
        for to in (single, batched):
            if then in ("commit", "reopen"):
                to.commit()
            if then == "reopen":
                to.reopen()
                to.buffer.expire_before(max(0, now - 40))
            if then == "trim":
                to.state.trim(rng.choice((1, 2_000)), remeasure=True)
        low, high = sorted((rng.randint(0, now), rng.randint(0, now)))
        counts, store_keys = batched.buffer.between(KEYS, low, high)
        entries = [[e.value for e in single.buffer.fetch(key, low, high)] for key in KEYS]
        assert counts == list(map(len, entries))
        assert [e[8:] for e in batched.buffer.encoded(store_keys)] == [value for of in entries for value in of]
        assert all(low <= int.from_bytes(key[TIME_IN], "big") <= high for key in store_keys)
        assert batched.committed == single.committed
    for to in (single, batched):
        to.commit()
    assert batched.committed == single.committed
