"""Counts kept in a tally are what a plain view of the store would hold: values, times, what commits write, and whatever is
read in between. Where the compiled part was not built, both are plain."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from penstock.state import native
from penstock.state.errors import IncompatibleError, SerdeError
from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.count_store import CountStoreView, state_of
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView

SPEC = StoreSpec("counts", "key_value", BYTES, INT)
ROUNDS = 60


class Counting:
    """A store of counts, that may be compiled."""

    def __init__(self) -> None:
        self.backend = MemoryBackend([SPEC])
        self.state: KeyValueStoreView = state_of(SPEC, self.backend)
        self.tallied = 0

    def count(self, keys: list[bytes], times: list[int]) -> None:
        """Count records, in columns where that can be done."""
        ends = np.cumsum([0, *map(len, keys)], dtype=np.int64)
        state = self.state
        if isinstance(state, CountStoreView) and state.count(b"".join(keys), ends, np.array(times, np.int64)):
            self.tallied += 1
            return
        for key, ts in zip(keys, times, strict=True):
            count, latest = state.get(key) or (0, ts)
            state.put(key, count + 1, max(ts, latest))

    def commit(self) -> Any:
        """Commit; what was written."""
        keys, values, times = self.state.pending()
        self.backend.commit([StoreWrites("counts", list(zip(keys, values, strict=True)), b"at", self.state.drop_below)])
        self.state.committed()
        return sorted(zip(keys, values, times, strict=True))

    def held(self) -> dict[bytes, bytes]:
        """What the backend holds."""
        return dict(self.backend.range("counts", None, None))


def lived(seed: int) -> tuple[list[Any], int]:
    """A store's life, and how many batches were tallied."""
    rng = random.Random(seed)
    made = Counting()
    names = [b"%d" % n for n in range(rng.choice([3, 50, 4000]))] + [b"", b"\x00", b"a long key" * 30]
    seen: list[Any] = []
    for _ in range(ROUNDS):
        match rng.randrange(10):
            case 0:
                seen.append(made.commit())
            case 1:
                made.state.discard()
            case 2:
                seen.append(made.state.get(rng.choice(names)))
            case 3:
                seen.append(list(made.state.range(b"1", b"3")))
            case 4:
                key = rng.choice(names)
                made.state.load([key])
                made.state.put(key, rng.choice([None, 7]), rng.randrange(100))
            case 5:
                seen.append(made.state.first())
            case _:
                rows = rng.randrange(1, 200)
                made.count(rng.choices(names, k=rows), [rng.randrange(-5, 1000) for _ in range(rows)])
    return [*seen, made.commit(), made.held()], made.tallied


@pytest.mark.parametrize("seed", range(25))
def test_a_tally_is_a_plain_view_that_counts(seed: int) -> None:
    found, tallied = lived(seed)
    with native.without():
        expected, _ = lived(seed)
    assert found == expected
    assert tallied or native.compiled() is None


def test_many_keys_over_several_commits() -> None:
    """Enough for the index to grow more than once."""
    keys = [b"key %d" % (n * 7919 % 5000) for n in range(12_000)]
    made = Counting()
    for start in range(0, 12_000, 3_000):
        made.count(keys[start : start + 3_000], list(range(start, start + 3_000)))
        if start == 6_000:
            made.commit()
    made.commit()
    numbers = {key: (sum(k == key for k in keys), max(i for i, k in enumerate(keys) if k == key)) for key in keys[:50]}
    for key, (count, latest) in numbers.items():
        assert made.state.get(key) == (count, latest)
    assert len(made.held()) == 5_000


def test_a_tally_that_is_dropped_leaves_the_store_as_it_was() -> None:
    made = Counting()
    made.count([b"a", b"b", b"a"], [1, 2, 3])
    made.commit()
    made.count([b"a", b"c"], [9, 9])
    made.state.discard()
    made.count([b"a"], [2])
    assert [(k, v[-1:]) for k, v, _ in made.commit()] == [(b"a", b"\x03")]
    assert made.state.get(b"a") == (3, 3)
    assert made.state.get(b"c") is None


def test_sizes_follow_what_is_counted() -> None:
    made = Counting()
    assert made.state.uncommitted_bytes() == 0
    made.count([b"%d" % n for n in range(2_000)], [0] * 2_000)
    assert made.state.uncommitted_bytes() > 2_000 * 16
    made.commit()
    assert made.state.uncommitted_bytes() == 0


HIGHEST = (1 << 63) - 1


def stored(count: int, time: int = 5) -> bytes:
    return time.to_bytes(8, "big") + count.to_bytes(8, "big", signed=True)


def held_by(made: Counting, *entries: tuple[bytes, bytes]) -> Counting:
    """With these in the store."""
    made.backend.commit([StoreWrites("counts", list(entries), b"at")])
    made.state.discard()
    return made


@pytest.mark.parametrize("before", [HIGHEST - 2, HIGHEST - 1, HIGHEST, -HIGHEST, 0])
@pytest.mark.parametrize("steps", [[1, 1, 1], [2, 1], [3], [1, 2]])
def test_counts_of_more_than_64_bits_are_refused_where_rows_refuse_them(before: int, steps: list[int]) -> None:
    """And are as high as rows have them until then."""

    def lived() -> list[Any]:
        made = held_by(Counting(), (b"k", stored(before)))
        for rows in steps:
            made.count([b"j"] + [b"k"] * rows, [9] * (rows + 1))
        try:
            seen: list[Any] = [made.commit()]
        except SerdeError as exc:
            seen = [str(exc)]
        return [*seen, made.state.get(b"k"), made.state.get(b"j")]

    found = lived()
    with native.without():
        assert found == lived()
    assert isinstance(found[0], str) == (before + sum(steps) > HIGHEST)


@pytest.mark.parametrize("wrong", [b"", bytes(7), bytes(15), bytes(17)])
def test_a_stored_value_that_is_no_count_is_met_at_every_step(wrong: bytes) -> None:
    """No count that lacks what the store holds is handed out, and other keys' are right once it is discarded."""
    made = held_by(Counting(), (b"bad", wrong), (b"good", stored(7)))
    for _ in range(3):
        with pytest.raises(
            IncompatibleError, match=r"store counts holds under key b'bad'.* which serde int cannot read"
        ):
            made.count([b"good", b"bad", b"new"], [9, 9, 9])
    if isinstance(made.state, CountStoreView):
        for step in (made.state.tallied, made.commit, lambda: made.state.get(b"good")):
            with pytest.raises(IncompatibleError, match="serde int cannot read"):
                step()
    made.state.discard()
    made.count([b"good", b"new"], [9, 9])
    assert made.commit() == [(b"good", stored(8, 9), 9), (b"new", stored(1, 9), 9)]


def test_a_plain_view_names_that_error_too() -> None:
    with native.without():
        made = held_by(Counting(), (b"bad", b""))
        for step in (lambda: made.state.get(b"bad"), lambda: list(made.state.range())):
            with pytest.raises(IncompatibleError, match="serde int cannot read"):
                step()
