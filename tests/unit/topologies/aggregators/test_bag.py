"""A bag is what a counter of values is, whatever the order in which they came, and never changes."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.topologies.aggregators import bag as bags
from penstock.topologies.aggregators.bag import Bag

MOVES = st.lists(st.tuples(st.binary(max_size=2), st.sampled_from([1, 1, -1])), max_size=60)


@given(moves=MOVES, run_max=st.sampled_from([2, 3, 8]))
def test_it_holds_what_a_counter_holds(moves: list[tuple[bytes, int]], run_max: int) -> None:
    usual, bags.RUN_MAX = bags.RUN_MAX, run_max
    try:
        bag, model = Bag(), Counter[bytes]()
        for value, by in moves:
            before, pairs = bag, tuple(bag)
            if by < 0 and not model[value]:
                with pytest.raises(ValueError, match="does not contain"):
                    bag.moved(value, by)
                continue
            bag = bag.moved(value, by)
            model[value] += by
            held = sorted((v, n) for v, n in model.items() if n)
            assert list(bag) == held
            assert len(bag) == len(held)
            assert bag == Bag(held)
            assert hash(bag) == hash(Bag(held))
            assert tuple(before) == pairs
    finally:
        bags.RUN_MAX = usual


@given(a=st.lists(st.binary(max_size=1), max_size=20), b=st.lists(st.binary(max_size=1), max_size=20))
def test_bags_are_put_together_and_taken_apart(a: list[bytes], b: list[bytes]) -> None:
    one, other = (Bag(sorted(Counter(some).items())) for some in (a, b))
    both = one.combined(other, 1)
    assert both == Bag(sorted(Counter(a + b).items()))
    assert both.combined(other, -1) == one
    if Counter(b) - Counter(a):
        with pytest.raises(ValueError, match="does not contain"):
            one.combined(other, -1)


def test_its_size_is_that_of_its_values() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        bag = Bag((b"%08d" % n, n + 1_000) for n in range(20_000))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.7 * taken < bag.__sizeof__() < 1.3 * taken


def test_runs_stay_short_in_every_order_of_arrival() -> None:
    values = [b"%06d" % n for n in range(5_000)]
    shuffled = random.Random(3).sample(values, len(values))
    for order in (values, values[::-1], shuffled):
        bag = Bag()
        for value in order:
            bag = bag.moved(value, 1)
        assert max(map(len, bag._runs)) <= bags.RUN_MAX
        assert len(bag._runs) <= 4 * len(values) // bags.RUN_MAX + 1
        assert bag == Bag((v, 1) for v in values)
