"""Many entries appended at once to a list store: what is written, and in which order, is as if they came one by one."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.state import native
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.count_store import state_of
from penstock.state.stores.list_store import ListStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.packed_lists import PackedListView
from penstock.state.stores.segmented_store import DistinctKeys, SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites

SPEC = StoreSpec("s", "list", BYTES, BYTES, retention_ms=40)
KEYS = [b"a", b"ab", b"b", b""]


def packed(values: list[bytes]) -> tuple[bytes, Any]:
    """Values as a column."""
    return b"".join(values), np.cumsum([0, *map(len, values)], dtype=np.int64)


DISTINCT = DistinctKeys(KEYS, packed(KEYS))


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


def one_by_one(to: Buffer, rows: list[tuple[int, int, bytes, int]]) -> list[int]:
    """Rows: number of the key, time, value, floor. Returns the sequence numbers."""
    given = []
    for number, time_ms, value, floor_ms in rows:
        to.buffer.expire_before(floor_ms)
        given.append(int.from_bytes(to.buffer.append(KEYS[number], time_ms, value), "big"))
    return given


def at_once(to: Buffer, rows: list[tuple[int, int, bytes, int]]) -> list[int]:
    numbers, times, floors = (np.array([row[i] for row in rows], np.int64) for i in (0, 1, 3))
    expired = times < floors
    values = packed([row[2] for row in rows])
    given = to.buffer.append_all(DISTINCT, numbers, times, values, expired if expired.any() else None)
    to.buffer.expire_before(max((row[3] for row in rows), default=0))
    return given.tolist()


def listed(values: Any) -> list[bytes]:
    """A column, or a list, as a list."""
    if isinstance(values, list):
        return values
    data, offsets = values
    return [data[start:end] for start, end in pairwise(offsets.tolist())]


def found(of: Buffer, low: int, high: int) -> tuple[list[int], list[int], list[bytes], list[bytes]]:
    """How many entries each key has, their times, the values of every second one, the names of every third."""
    entries = of.buffer.within(DISTINCT, low, high)
    values = listed(entries.values_at(np.arange(0, len(entries.times), 2)))
    names = entries.names_at(np.arange(0, len(entries.times), 3))
    return entries.counts.tolist(), entries.times.tolist(), values, names


def named(of: Buffer, names: list[bytes]) -> list[bytes | None]:
    """The values of these names; ``None``: there is none."""
    values, absent = of.buffer.values_named(names)
    gone = [False] * len(names) if absent is None else absent.tolist()
    return [None if missing else value for value, missing in zip(listed(values), gone, strict=True)]


@pytest.mark.parametrize("in_rows", [0.0, 0.2])
@pytest.mark.parametrize("compiled", ["off", "auto"])
@pytest.mark.parametrize("seed", range(60))
def test_the_same_as_one_by_one(seed: int, compiled: native.Choice, in_rows: float) -> None:
    """``in_rows``: how often a batch is appended row by row in between."""
    native.choose("off")
    single = Buffer()
    native.choose(compiled)
    try:
        play(seed, single, Buffer(), in_rows)
    finally:
        native.choose("auto")


def play(seed: int, single: Buffer, batched: Buffer, in_rows: float) -> None:
    """Play random steps, once row by row."""
    rng = random.Random(seed)
    now, number = 0, 0
    for _ in range(rng.randint(1, 25)):
        rows = []
        for _ in range(rng.randint(0, 12)):
            now += rng.choice((0, 0, 1, 7))
            time_ms = max(0, now - rng.choice((0, 0, 1, 5, 30, 60)))
            rows.append((rng.randrange(len(KEYS)), time_ms, b"%d" % number, max(0, now - 40)))
            number += 1
        given = one_by_one(single, rows)
        assert (one_by_one if rng.random() < in_rows else at_once)(batched, rows) == given
        then = rng.choice(("", "", "commit", "commit", "reopen", "trim", "discard"))
        size = rng.choice((0, 1, 300, 2_000))
        for to in (single, batched):
            if then in ("commit", "reopen"):
                to.commit()
            if then == "discard":
                to.state.discard()
            if then == "reopen":
                to.reopen()
                to.buffer.expire_before(max(0, now - 40))
            if then == "trim":
                to.state.trim(size, remeasure=True)
        low, high = sorted((rng.randint(0, now), rng.randint(0, now)))
        entries = [[*single.buffer.fetch(key, low, high)] for key in KEYS]
        every = [entry for of in entries for entry in of]
        names = [e.key + e.time_ms.to_bytes(8, "big") + e.suffix for e in every]
        expected = [*map(len, entries)], [e.time_ms for e in every], [e.value for e in every[::2]], names[::3]
        if rng.random() < in_rows:
            assert [[*batched.buffer.fetch(key, low, high)] for key in KEYS] == entries
        if rng.random() < 0.5:
            assert found(batched, low, high) == expected
        nobody = b"a" + (now + 1).to_bytes(8, "big") + bytes(4)
        assert named(batched, [*names[::2], nobody, *names[1::2]]) == [
            *(e.value for e in every[::2]),
            None,
            *(e.value for e in every[1::2]),
        ]
        assert found(batched, low, high) == expected
        assert batched.committed == single.committed
    for to in (single, batched):
        to.commit()
    assert batched.committed == single.committed


def test_what_the_compiled_part_keeps_is_counted_and_freed() -> None:
    if native.compiled() is None:
        return
    spec = StoreSpec("s", "list", BYTES, BYTES, retention_ms=2_000)
    backend = MemoryBackend([spec])
    state = state_of(spec, backend)
    buffer = SegmentedState(state, only_appends=True)
    names = [b"%d" % number for number in range(2_000)]
    keys, numbers = DistinctKeys(names, packed(names)), np.arange(2_000)
    buffer.append_all(keys, numbers, numbers, packed([b"v" * 100] * 2_000))
    assert state.uncommitted_bytes() > 2_000 * 100
    whole = state.size_bytes()
    state.trim(whole // 8)
    assert state.size_bytes() == whole, "what is uncommitted stays"
    put, values, times = state.pending()
    backend.commit([StoreWrites("s", list(zip(put, values, strict=True)), b"at")])
    state.committed()
    assert (len(put), times, state.uncommitted_bytes()) == (2_000, numbers.tolist(), 0)
    assert state.size_bytes() <= whole // 8, "it is trimmed once that can be done"
    entries = buffer.within(keys, 0, 10_000)
    assert entries.counts.tolist() == [1] * 2_000
    before = state.size_bytes()
    buffer.expire_before(1_000)
    state.committed()
    assert state.size_bytes() < before * 0.6, "expired entries are forgotten"
    state.trim(0)
    assert state.size_bytes() == 0


@pytest.mark.skipif(native.compiled() is None, reason="only the compiled part packs lists")
def test_a_view_that_rows_use_is_packed_again_the_later_the_more_often() -> None:
    view = state_of(SPEC, MemoryBackend([SPEC]))
    assert isinstance(view, PackedListView)
    view.only_appended()

    def commits_in_rows() -> int:
        assert view.takes_columns()
        view.group(b"12345678k")
        commits = 0
        while not view.takes_columns():
            view.committed()
            commits += 1
        return commits

    assert [commits_in_rows() for _ in range(9)] == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    for _ in range(63):
        view.committed()
    assert commits_in_rows() == 64
    for _ in range(64):
        view.committed()
    assert [commits_in_rows() for _ in range(2)] == [1, 2]
