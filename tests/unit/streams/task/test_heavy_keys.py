"""Heavy keys are found in a bounded sample, whatever the batches, and light ones are not taken for them."""

from __future__ import annotations

import random

import pytest

from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.feed import Run
from penstock.streams.task.heavy_keys import COUNTERS, HeavyKeys


def runs(keys: list[bytes | None], size: int, *, columns: bool = False) -> list[Run]:
    """The records in chunks of which only the middle is taken, cut into runs."""
    out = []
    for i in range(0, len(keys), size):
        some = [b"before", *keys[i : i + size], b"after"]
        chunk = Chunk("t", 0, range(len(some)), some, some, [0] * len(some))
        out.append(Run("t", chunk.in_columns() if columns else chunk, 1, len(some) - 1))
    return out


@pytest.mark.parametrize("size", [1, 7, 33, 10_000])
@pytest.mark.parametrize("columns", [False, True])
def test_the_same_keys_are_found_however_records_come(size: int, *, columns: bool) -> None:
    rng = random.Random(1)
    keys: list[bytes | None] = [
        b"heavy" if rng.random() < 0.5 else b"%d" % rng.randrange(100_000) for _ in range(160_000)
    ]
    heavy = HeavyKeys()
    heavy.see(runs(keys, size, columns=columns))
    (found,) = heavy.found()
    assert (found.topic, found.key) == ("t", b"heavy")
    assert 0.5 - 1 / COUNTERS - 0.03 < found.share < 0.53
    assert max(map(len, heavy._counts.values())) <= COUNTERS


def test_nothing_is_heavy_among_few_records_null_keys_or_many_keys() -> None:
    heavy = HeavyKeys()
    heavy.see(runs([b"a"] * 4_000, 100))
    assert heavy.found() == []  # too few to say
    heavy = HeavyKeys()
    heavy.see(runs([None] * 40_000, 1_000))
    assert heavy.found() == []
    heavy.see(runs([b"%d" % (i % 97) for i in range(200_000)], 1_000))
    assert heavy.found() == []


def test_what_was_heavy_long_ago_is_forgotten() -> None:
    heavy = HeavyKeys()
    heavy.see(runs([b"old"] * 200_000, 10_000))
    assert [h.key for h in heavy.found()] == [b"old"]
    heavy.see(runs([b"new"] * 4_000_000, 100_000))
    assert [h.key for h in heavy.found()] == [b"new"]
