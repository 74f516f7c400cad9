"""A bag is what a counter of values is, whatever the order in which they came, and never changes."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.topologies.aggregators.bag import Bag

MOVES = st.lists(st.tuples(st.binary(max_size=2), st.sampled_from([1, 1, -1])), max_size=60)


def pairs_of(model: Counter[bytes]) -> list[tuple[bytes, int]]:
    """What a bag of these counts holds."""
    return sorted((v, n) for v, n in model.items() if n)


@given(moves=MOVES, look=st.booleans())
def test_it_holds_what_a_counter_holds(moves: list[tuple[bytes, int]], look: bool) -> None:
    bag, model = Bag(), Counter[bytes]()
    for value, by in moves:
        before, pairs = bag, pairs_of(model)
        if by < 0 and not model[value]:
            with pytest.raises(ValueError, match="does not contain"):
                bag.moved(value, by)
            continue
        bag = bag.moved(value, by)
        model[value] += by
        held = pairs_of(model)
        assert len(bag) == len(held)
        assert len(before) == len(pairs)
        if look:
            assert list(bag) == held
            assert bag == Bag(held)
            assert hash(bag) == hash(Bag(held))
            assert tuple(before) == tuple(pairs)
    assert list(bag) == pairs_of(model)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([1, 1, -1]), st.booleans()),
        max_size=40,
    )
)
def test_older_ones_keep_what_they_hold_and_can_be_gone_on_from(steps: list[tuple[int, bytes, int, bool]]) -> None:
    made = [(Bag(), Counter[bytes]())]
    for place, value, by, look in steps:
        bag, model = made[place % len(made)]
        if by < 0 and not model[value]:
            continue
        made.append((bag.moved(value, by), model + Counter({value: by}) if by > 0 else model - Counter({value: -by})))
        if look:
            assert list(bag) == pairs_of(model)
    for bag, model in made:
        assert (len(bag), list(bag)) == (len(pairs_of(model)), pairs_of(model))
    for bag, model in made:
        assert bag == Bag(pairs_of(model))
    assert pickle.loads(pickle.dumps(made[-1][0])) == made[-1][0]


@given(
    parts=st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=5), max_size=8), back=st.integers(0, 7)
)
def test_many_values_are_added_as_one_after_the_other(parts: list[list[bytes]], back: int) -> None:
    made = [Bag()]
    for values in parts:
        one, bag = made[-1], made[-1].added(*_once(values))
        for value in values:
            one = one.moved(value, 1)
        assert len(bag) == len(one)
        made.append(bag)
        if back == len(made):
            assert list(bag) == list(one)
    counts = [Counter(value for values in parts[:n] for value in values) for n in range(len(made))]
    for bag, model in reversed(list(zip(made, counts, strict=True))):
        assert list(bag) == pairs_of(model)


def _once(values: list[bytes]) -> tuple[list[bytes], list[int]]:
    """The distinct values, and how often each occurs."""
    counts = Counter(values)
    return list(counts), list(counts.values())


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


def test_many_older_ones_that_only_the_first_keeps_alive_can_be_used_and_go() -> None:
    values = [b"%06d" % n for n in range(200_000)]
    first = bag = Bag([(b"", 1)])
    for value in values:
        bag = bag.moved(value, 1)
    del bag
    assert list(first) == [(b"", 1)]
    first = bag = Bag([(b"", 1)])
    for value in values:
        bag = bag.moved(value, 1)
    del bag, first
