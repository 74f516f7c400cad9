"""One value more to the best so far: the same as the best of all values, which are sorted anew."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.serdes.serde import JSON, Serde, serde_of
from penstock.topologies.aggregators import top_k

NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.0, -0.0, 1.0, 1.5, math.inf, math.nan]))
RANKS: dict[str, Any] = {
    "itself": lambda x: x,
    "its size": abs,
    "with another": lambda x: (abs(x), -x),
    "none for some": lambda x: None if x == 2 else x,
}


def expected(
    values: list[Any], serde: Serde[Any], rank: Any, k: int, *, largest: bool, ties: bool
) -> tuple[bytes, ...]:
    """By definition: sorted by bytes, then by rank; NaN above all. With ties, all that are not worse than the last."""
    kept = sorted(serde.serialize(v) for v in values if rank(v) is not None)

    def order(data: bytes) -> Any:
        found = rank(serde.deserialize(data))
        return (True, 0) if found != found else (False, found)

    best = sorted(kept, key=order, reverse=largest)
    return tuple(data for i, data in enumerate(best) if i < k or (ties and order(data) == order(best[k - 1])))


@pytest.mark.parametrize("by", RANKS)
@given(
    st.lists(NUMBERS, max_size=12), st.integers(1, 4), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 12)
)
def test_the_same_as_sorting_all(
    by: str, values: list[Any], k: int, largest: bool, ties: bool, plain: bool, restored_at: int
) -> None:
    if plain:
        values = [v for v in values if type(v) is int]
    elif by == "with another":
        values = [v for v in values if v == v]
    rank, serde = RANKS[by], serde_of(int) if plain else serde_of(float)
    values = values if plain else list(map(float, values))
    best = top_k(k, by=rank, largest=largest, ties=ties, value=serde)
    acc = best.init()
    for i, value in enumerate(values):
        if i == restored_at:  # as after a restart: nothing is remembered
            best = top_k(k, by=rank, largest=largest, ties=ties, value=serde)
        acc = best.add(acc, value, 0)
        assert acc == expected(values[: i + 1], serde, rank, k, largest=largest, ties=ties)
    assert list(map(repr, best.result(acc))) == [repr(serde.deserialize(v)) for v in acc]


def test_what_was_ranked_otherwise_is_ranked_again() -> None:
    """The state of a topology whose ``by`` was another one."""
    acc = top_k(3, by=lambda x: x, value=int).fold([(1, 0), (-5, 0), (3, 0)])
    assert top_k(3, by=abs, value=int).result(top_k(3, by=abs, value=int).add(acc, 2, 0)) == [-5, 3, 2]


def test_what_was_ranked_with_ties_is_cut_without_them() -> None:
    """The state of a topology that kept ties, or fewer values."""
    rows = [(1, 0), (3, 0), (-3, 0)]
    acc = top_k(1, by=abs, ties=True, value=int).fold(rows)
    assert top_k(1, by=abs, value=int).result(top_k(1, by=abs, value=int).add(acc, 2, 0)) == [3]
    assert top_k(1, by=abs, ties=True, value=int).result(top_k(2, by=abs, value=int).fold(rows)) == [3, -3]


def test_values_that_can_be_changed_are_copies() -> None:
    best = top_k(2, by="n", value=JSON)
    acc = best.fold([({"n": 1, "of": []}, 0), ({"n": 2, "of": []}, 0)])
    best.result(acc)[0]["of"].append("changed")
    assert best.result(acc) == [{"n": 2, "of": []}, {"n": 1, "of": []}]
