"""Members that the compiled part keeps between commits are what a plain view of the store would hold: what is new, what
commits write, and whatever is read in between."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.state import native
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.count_store import state_of
from penstock.state.stores.member_view import ROWS_OF_MEMBER, THERE, MemberStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView, window_floor

WINDOWS: StoreSpec[Any] = StoreSpec("members", "window", BYTES, ROWS_OF_MEMBER, window_size_ms=10, retention_ms=20)
KEYS: StoreSpec[Any] = dataclasses.replace(WINDOWS, kind="key_value", window_size_ms=None, retention_ms=None)
FORMS = b"bb"
HEADS = [window_floor(start) + name for start in (0, 10, 20) for name in (b"a", b"", b"ab")]

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="the compiled part is not built")


def column(texts: list[bytes]) -> tuple[bytes, Any]:
    return b"".join(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64)


def bag(members: set[bytes]) -> bytes:
    return msgspec.msgpack.encode([(member, 1) for member in sorted(members)])


class Packed(MemoryBackend):
    """Has no packed values, as a backend that cannot give them."""

    def get_packed(self, *_: Any) -> Any:
        return None


def ask(state: KeyValueStoreView, rows: list[tuple[int, list[set[bytes]]]]) -> Any:
    """How many members of rows are new: of entries, and of the members of two counts."""
    partials = column([msgspec.msgpack.encode([bag(first), bag(second)]) for _, (first, second) in rows])
    assert isinstance(state, MemberStoreView)
    entries = np.array([entry for entry, _ in rows], np.int64)
    lowest = min(HEADS[entry] for entry, _ in rows)
    return state.fresh(partials, FORMS, column(HEADS), entries, lowest)


def keep(state: KeyValueStoreView) -> None:
    assert isinstance(state, MemberStoreView)
    state.keep()


def plainly(state: KeyValueStoreView, rows: list[tuple[int, list[set[bytes]]]]) -> list[list[int]]:
    """As ``ask``, one by one, and adds them."""
    out = []
    for entry, counts in rows:
        out.append([0, 0])
        for number, members in enumerate(counts):
            for key in (HEADS[entry] + number.to_bytes(2, "big") + member for member in sorted(members)):
                if state.get(key) is None:
                    out[-1][number] += 1
                    state.put(key, *THERE)
    return out


def written(state: KeyValueStoreView) -> tuple[list[Any], list[Any], list[Any]]:
    """The next commit."""
    changes = state.packed_changes()
    if changes is None:
        return state.pending()
    keys, values = (list(part) for part in changes.puts.listed())
    return keys, values, changes.times.tolist()


def commit(state: KeyValueStoreView, backend: MemoryBackend) -> Any:
    keys, values, times = written(state)
    backend.commit([StoreWrites("members", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
    state.committed()
    return keys, values, times


@pytest.mark.parametrize("spec", [WINDOWS, KEYS], ids=["windows", "keys"])
@pytest.mark.parametrize("kind", [MemoryBackend, Packed])
def test_members_are_those_of_a_plain_view(spec: StoreSpec[Any], kind: type[MemoryBackend]) -> None:
    asked = 0
    for seed in range(60):
        rng = random.Random(seed)
        backends = kind([spec]), MemoryBackend([spec])
        state, plain = state_of(spec, backends[0]), KeyValueStoreView(spec, backends[1])
        assert isinstance(state, MemberStoreView)
        floor = 0
        for _ in range(30):
            step = rng.random()
            if step < 0.6:
                open_ = [i for i, head in enumerate(HEADS) if head >= window_floor(floor)]
                some = [(rng.choice(open_), [_some(rng), _some(rng)]) for _ in range(rng.randint(1, 5))]
                found = ask(state, some)
                asked += found is not None
                if found is None:
                    assert plainly(state, some) == plainly(plain, some), seed
                elif rng.random() < 0.9:  # else the rows are left to others, which do nothing
                    state.keep()
                    assert found.tolist() == plainly(plain, some), seed
            elif step < 0.7:
                key = rng.choice(HEADS) + bytes(2) + b"m1"
                assert state.get(key) == plain.get(key), seed
            elif step < 0.75:
                assert list(state.range()) == list(plain.range()), seed
            elif step < 0.8 and spec.kind == "window":
                floor = min(floor + rng.choice((0, 1, 10)), 20)
                state.expire_below(window_floor(floor))
                plain.expire_below(window_floor(floor))
            elif step < 0.85:
                state.discard()
                plain.discard()
            else:
                assert commit(state, backends[0]) == commit(plain, backends[1]), seed
                assert list(backends[0].range("members", None, None)) == list(backends[1].range("members", None, None))
    assert asked > 300


def _some(rng: random.Random) -> set[bytes]:
    return {b"m%d" % rng.randrange(9) for _ in range(rng.randrange(4))}


def test_changelogs_have_the_keys_of_window_stores() -> None:
    for spec, expected in ((WINDOWS, b"\0\0m" + bytes(7) + b"\x0a" + bytes(4)), (KEYS, HEADS[4] + b"\0\0m")):
        state = state_of(spec, MemoryBackend([spec]))
        assert state.packed_changes() is None
        assert ask(state, [(4, [{b"m"}, set()])]).tolist() == [[1, 0]]
        assert state.packed_changes() is None, "it was only asked about"
        keep(state)
        changes = state.packed_changes()
        assert changes is not None and changes.times.tolist() == [1]
        assert (changes.keys[0], changes.keys[1].tolist()) == (expected, [0, len(expected)])
        assert (changes.values[0], changes.values[1].tolist()) == (bytes(7) + b"\x01", [0, 8])


def test_memory_counts_until_the_commit() -> None:
    state = state_of(KEYS, MemoryBackend([KEYS]))
    assert (state.uncommitted_bytes(), state.size_bytes()) == (0, 0)
    ask(state, [(0, [{b"m%d" % n for n in range(2_000)}, set()])])
    keep(state)
    assert min(state.uncommitted_bytes(), state.size_bytes()) > 2_000 * 14
    state.discard()
    assert (state.uncommitted_bytes(), state.size_bytes()) == (0, 0)


def test_expired_and_unreadable_partials_are_left_to_rows() -> None:
    state = state_of(WINDOWS, MemoryBackend([WINDOWS]))
    assert isinstance(state, MemberStoreView)
    state.expire_below(window_floor(10))
    assert ask(state, [(0, [{b"m"}, set()])]) is None
    assert ask(state, [(3, [{b"m"}, set()])]) is not None
    for data in (b"", b"\x92\xc4\x01\x90", msgspec.msgpack.encode([b"\x90", b"\x91\x92\xa1m\x01"])):
        zero = np.zeros(1, np.int64)
        assert state.fresh(column([data]), FORMS, column(HEADS), zero + 4, HEADS[4]) is None
    state.put(HEADS[4] + b"\0\0x", *THERE)
    assert ask(state, [(4, [{b"m"}, set()])]) is None
