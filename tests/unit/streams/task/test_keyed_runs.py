"""Runs by key: every record once, each side and each key in its order, and far fewer runs than turns."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.state import native
from penstock.state.serdes.serde import FLOAT, INT, STRING
from penstock.streams.task.keyed_runs import Entering, runs_by_key
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn

Turn = tuple[int, int, bytes | None]
"""Side, order and key."""


def entry_of(side: int, turns: list[Turn], *, encoded: bool = False) -> Entering:
    keys: Any = BytesColumn.of([key for of, _, key in turns if of == side])
    if encoded:
        keys = EncodedColumn(keys, STRING, Coder())
    orders = np.array([order for of, order, _ in turns if of == side], np.int64)
    values = BytesColumn.of([b"%d" % order for order in orders])
    return side + 10, side, ColumnBatch(keys, values, orders, orders)


def random_turns(rng: random.Random, sides: int, count: int, keys: int) -> list[Turn]:
    turns: list[Turn] = []
    order = 0
    for _ in range(count):
        order += rng.choice((0, 3)) if turns else 0
        side = turns[-1][0] if turns and turns[-1][1] == order else rng.randrange(sides)
        turns.append((side, order, None if rng.random() < 0.02 else b"%d" % rng.randrange(keys)))
    return turns


def taken(runs: Any) -> list[Turn]:
    out: list[Turn] = []
    for _, port, batch in runs:
        keys = [key.encode() if isinstance(key, str) else key for key in batch.keys]
        out += [(port, order, key) for order, key in zip(batch.order, keys, strict=True)]
    return out


@pytest.mark.parametrize("compiled", [True, False])
def test_each_side_and_each_key_keeps_its_order(compiled: bool) -> None:
    rng, shorter = random.Random(3), 0
    for _ in range(150):
        sides = rng.choice((2, 2, 3, 4))
        turns = random_turns(rng, sides, rng.randint(0, 300), rng.choice((1, 5, 60, 10_000)))
        entries = [entry_of(side, turns, encoded=side % 2 == 1) for side in range(sides)]
        entries = [entry for entry in entries if len(entry[2])]
        if not compiled:
            with native.without():
                found = runs_by_key(entries) if entries else None
        else:
            found = runs_by_key(entries) if entries else None
        if found is None:
            continue
        runs = list(found)
        shorter += 1
        all_taken = taken(runs)
        assert sorted(all_taken, key=lambda t: t[1]) == turns
        for part in range(sides):
            assert [t for t in all_taken if t[0] == part] == [t for t in turns if t[0] == part]
        for key in {key for _, _, key in turns}:
            assert [t for t in all_taken if t[2] == key] == [t for t in turns if t[2] == key]
        assert len(runs) * 4 <= 1 + sum(a[0] != b[0] for a, b in pairwise(turns))
    assert shorter > 20


def test_two_sides_whose_keys_never_meet_are_two_runs() -> None:
    turns: list[Turn] = [(i % 2, i, b"%d" % i) for i in range(100)]
    runs = runs_by_key([entry_of(0, turns), entry_of(1, turns)])
    assert runs is not None
    assert [len(batch) for _, _, batch in runs] == [50, 50]


def test_one_key_of_both_sides_in_turns_is_left_to_the_task_order() -> None:
    turns: list[Turn] = [(i % 2, i, b"k") for i in range(100)]
    assert runs_by_key([entry_of(0, turns), entry_of(1, turns)]) is None


def test_a_few_long_runs_are_left_as_they_are() -> None:
    turns: list[Turn] = [(i // 50, i, b"%d" % i) for i in range(100)]
    assert runs_by_key([entry_of(0, turns), entry_of(1, turns)]) is None


def test_keys_that_are_lists_or_have_several_notations_are_left_to_the_task_order() -> None:
    turns: list[Turn] = [(i % 2, i, b"%08d" % i) for i in range(100)]
    entries = [entry_of(0, turns), entry_of(1, turns)]
    node, port, batch = entries[1]
    listed = Batch([b"%08d" % i for i in range(50)], [None] * 50, batch.timestamps, batch.order)
    assert runs_by_key([entries[0], (node, port, listed)]) is None
    raw = batch.key_column
    assert isinstance(raw, BytesColumn)
    for serde, same in ((FLOAT, False), (INT, True)):
        encoded = batch.replace(keys=EncodedColumn(raw, serde, Coder()))
        assert (runs_by_key([entries[0], (node, port, encoded)]) is not None) == same
