"""The check of outputs finds what a broken engine would do to them."""

from __future__ import annotations

import pytest

from demo.answers import Found, check_answer, read_answer, uncounted
from demo.records import Answer
from penstock.streams.ports.chunk import Chunk

EXPECTED = Answer({"a": 3, "b": 1}, {"a": 3, "b": 1})
RIGHT = [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def passed(rows: list[tuple[str, int]]) -> tuple[list[bool], str]:
    chunk = Chunk(
        "out", 0, list(range(len(rows))), [k.encode() for k, _ in rows], [b"%d" % v for _, v in rows], [0] * len(rows)
    )
    checks = check_answer("t", "now", EXPECTED, read_answer([chunk], int))
    return [c.passed for c in checks], "; ".join(c.said for c in checks)


def test_what_is_right_passes() -> None:
    assert passed(RIGHT) == ([True, True], "2 keys equal the count; 4 updates for 4 records, each once and in order")


@pytest.mark.parametrize(
    ("rows", "verdict", "said"),
    [
        (RIGHT[:-1], [False, False], "2 updates instead of 3"),
        ([*RIGHT, ("a", 3)], [True, False], "its update 4 says 3"),
        ([RIGHT[0], RIGHT[1], RIGHT[3]], [True, False], "its update 2 says 3"),
        ([*RIGHT, ("c", 1)], [False, False], "first c: None counted, 1 found"),
        ([*RIGHT, ("a", 4)], [False, False], "first a: 3 counted, 4 found"),
    ],
    ids=["lost at the end", "doubled", "lost in between", "a key too many", "one too many"],
)
def test_what_is_wrong_is_found_and_named(rows: list[tuple[str, int]], verdict: list[bool], said: str) -> None:
    found, words = passed(rows)
    assert found == verdict
    assert said in words


def test_lost_doubled_and_foreign_updates_are_counted_one_by_one() -> None:
    assert uncounted(EXPECTED, Found({}, {"a": [1, 2, 3], "b": [1]}, 4)) == 0
    assert uncounted(EXPECTED, Found({}, {"a": [1, 3, 3, 3], "c": [1]}, 5)) == 1 + 2 + 1 + 1
