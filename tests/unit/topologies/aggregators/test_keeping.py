"""Aggregates that keep values: order, ties, and what they refuse."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators import agg, count_distinct, first, last, list_, max_by, min_by, set_, top_k
from penstock.topologies.aggregators.encoding import PLAIN


def test_equal_times_go_by_order() -> None:
    rows = [("a", 5), ("b", 3), ("c", 3), ("d", 9), ("e", 9)]
    early, late = first(), last()
    assert (early.result(early.fold(rows)), late.result(late.fold(rows))) == ("b", "e")


def test_equal_ranks_go_by_bytes_whatever_the_order() -> None:
    a = top_k(2, by=len, value=str)
    for order in (["bb", "aa", "cc", "z"], ["cc", "z", "bb", "aa"]):
        assert a.result(a.fold([(x, 0) for x in order])) == ["aa", "bb"]


def test_the_top_of_dicts_by_a_field() -> None:
    a = top_k(1, by="score")
    rows = [({"n": "x", "score": 1}, 0), ({"n": "y", "score": 8}, 0), ({"n": "z", "score": None}, 0)]
    assert a.result(a.fold(rows)) == [{"n": "y", "score": 8}]
    with pytest.raises(TopologyError, match="at least 1"):
        top_k(0)


def test_the_value_with_the_highest_rank() -> None:
    """Null ranks do not count; equal ranks are ordered by bytes, as in ``top_k``; if no rank counts, the result is null."""
    rows = [
        ({"n": n, "score": s, "of": {"x": x}}, 0) for n, s, x in (("b", 8, 1), ("a", 8, 1), ("z", None, 9), ("c", 2, 0))
    ]
    for order in (rows, rows[::-1]):
        high, low = max_by("score"), min_by((lambda v: v["score"], lambda v: v["n"]))
        assert [a.result(a.fold(order))["n"] for a in (high, low)] == ["a", "c"]
    both = agg(high=max_by("score"), low=min_by("score"))
    assert both.result(both.fold([])) == {"high": None, "low": None}
    assert both.result(both.fold(rows))["low"]["n"] == "c"
    with pytest.raises(TopologyError, match="by=\\(\\) ranks nothing"):
        max_by(())


def test_kept_values_are_copies() -> None:
    a = list_()
    value = {"n": [1]}
    acc = a.add(a.init(), value, 0)
    value["n"].append(2)
    a.result(acc)[0]["n"].append(3)
    assert a.result(acc) == [{"n": [1]}]


def test_sets_of_mixed_types_have_an_order_too() -> None:
    a = set_()
    one = a.result(a.fold([("b", 0), (1, 0), ("a", 0), (1, 0)]))
    other = a.result(a.fold([("a", 0), ("b", 0), (1, 0)]))
    assert one == other
    assert sorted(map(str, one)) == ["1", "a", "b"]


def test_what_is_not_there_cannot_be_taken_out() -> None:
    a = count_distinct()
    assert a.inverse is not None
    assert a.subtract is not None
    with pytest.raises(ValueError, match="does not contain"):
        a.inverse(a.fold([("x", 0)]), "y", 0)
    with pytest.raises(ValueError, match="does not contain"):
        a.subtract(a.fold([("x", 0)]), a.fold([("x", 0), ("x", 0)]))


def test_plain_values_come_back_as_they_were() -> None:
    value = {"b": [1, 2.5, None, True, b"\0", 10**40, -(10**19)], "a": {"d": Decimal("1.50")}}
    back = PLAIN.deserialize(PLAIN.serialize(value))
    assert back == value
    assert str(back["a"]["d"]) == "1.50"
    assert PLAIN.serialize({"x": 1, "y": 2}) == PLAIN.serialize({"y": 2, "x": 1})


def test_types_that_would_change_are_refused() -> None:
    for value in (datetime.date(2020, 1, 1), {1, 2}, [object()]):
        with pytest.raises(TypeError, match="not a plain value"):
            PLAIN.serialize(value)
