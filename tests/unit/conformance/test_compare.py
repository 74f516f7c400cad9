"""Every match holds where it should, and fails where it should."""

from __future__ import annotations

import pytest

from tests.conformance.case_format import CaseError
from tests.conformance.compare import Row, assignable, match, table_of

A: Row = {"k": "a", "v": 1, "ts": 5}
A2: Row = {"k": "a", "v": 2, "ts": 6}
B: Row = {"k": "b", "v": 1, "ts": 5}
GONE: Row = {"k": "a", "v": None, "ts": 7}
W1: Row = {"k": "a", "w": [0, 10], "v": 1, "ts": 5}
W2: Row = {"k": "a", "w": [10, 20], "v": 1, "ts": 15}

HOLDS = [
    ("sequence", [A, B], [A, B]),
    ("sequence", [{"k": "a"}], [A]),
    ("sequence", [{"k": ["x"], "v": 1.0}], [{"k": ("x",), "v": 1}]),
    ("sequence_no_ts", [A], [{**A, "ts": 99}]),
    ("queue_prefix", [A], [A]),
    ("bag", [A, B, A], [B, A, A]),
    ("bag", [{"k": "a"}, {"k": "a", "v": 2}], [A2, A]),
    ("bag_values", [A], [{**A, "ts": 99}]),
    ("set", [A, B], [A, B, A]),
    ("grouped_sequence", [A, B, A2], [B, A, A2]),
    ("grouped_sequence", [W1, W2], [W2, W1]),
    ("last_per_key", [A2, B], [A, B, A2]),
    ("last_per_key", [GONE], [A, GONE]),
    ("last_per_window", [W1, W2], [W2, W1]),
    ("last_contains", [A2], [A, B, A2]),
    ("last_contains", [{"k": "c", "absent": True}], [A]),
    ("table_from_changelog", [B], [A, B, GONE]),
    ("table", [A, B], [B, A]),
    ("table_contains", [A, {"k": "c", "v": None}], [A, B]),
]
FAILS = [
    ("sequence", [A, B], [B, A]),
    ("sequence", [A], [A, B]),
    ("sequence", [A], [{**A, "ts": 99}]),
    ("sequence_no_ts", [A], [A2]),
    ("queue_prefix", [A, B], [A]),
    ("bag", [A, A, B], [A, B, B]),
    ("bag_values", [A], [B]),
    ("set", [A], [A, B]),
    ("set", [A, B], [A]),
    ("grouped_sequence", [A, A2], [A2, A]),
    ("grouped_sequence", [A], [A, B]),
    ("last_per_key", [A], [A, A2]),
    ("last_per_key", [A], [A, B]),
    ("last_per_window", [W1], [W1, W2]),
    ("last_contains", [A], [A, A2]),
    ("last_contains", [{"k": "a", "absent": True}], [A]),
    ("table_from_changelog", [A, B], [A, B, GONE]),
    ("table", [A], [A, B]),
    ("table_contains", [{"k": "a", "v": None}], [A]),
    ("table_contains", [A], [B]),
]


@pytest.mark.parametrize(("name", "expected", "actual"), HOLDS)
def test_holds(name: str, expected: list[Row], actual: list[Row]) -> None:
    assert match(name, expected, actual) is None


@pytest.mark.parametrize(("name", "expected", "actual"), FAILS)
def test_fails(name: str, expected: list[Row], actual: list[Row]) -> None:
    assert match(name, expected, actual)


def test_windows_are_compared_unless_they_are_to_be_ignored() -> None:
    other = {**W1, "w": [0, 11]}
    assert match("sequence", [W1], [other])
    assert match("sequence", [W1], [other], ignore_window=True) is None


def test_an_unknown_match_is_refused() -> None:
    with pytest.raises(CaseError, match="queue_prefix"):
        match("order", [], [])


def test_items_that_fit_several_are_still_assigned() -> None:
    fits = {("x", 1), ("x", 2), ("y", 1)}
    assert assignable(["x", "y"], [1, 2], lambda e, a: (e, a) in fits)
    assert not assignable(["y", "y"], [1, 2], lambda e, a: (e, a) in fits)


def test_a_table_is_what_updates_leave() -> None:
    assert table_of([A, B, A2]) == [B, A2]
    assert table_of([A, GONE]) == []
