"""Records of several partitions come by their timestamps."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.kafka.record_order import InOrder


class At(NamedTuple):
    """A record by its place and time."""

    topic: str
    partition: int
    timestamp_ms: int


def test_a_record_waits_for_partitions_that_may_have_an_earlier_one() -> None:
    order = InOrder[At]([("a", 0), ("b", 0)])
    order.add(At("a", 0, 5))
    assert order.take() == []
    order.add(At("b", 0, 3))
    assert order.take() == [At("b", 0, 3)]
    assert order.waiting(("a", 0)) == 1
    order.ended(("b", 0))
    assert order.take() == [At("a", 0, 5)]
    order.add(At("b", 0, 9))
    assert order.take() == []
    assert order.take(all_of_them=True) == [At("b", 0, 9)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=4))
def test_sorted_partitions_merge_to_a_sorted_list(times: list[list[int]]) -> None:
    order = InOrder[At]((str(number), 0) for number in range(len(times)))
    for number, of_one in enumerate(times):
        for at in sorted(of_one):
            order.add(At(str(number), 0, at))
        order.ended((str(number), 0))
    merged = [record.timestamp_ms for record in order.take()]
    assert merged == sorted(t for of_one in times for t in of_one)
