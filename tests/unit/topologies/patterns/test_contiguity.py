"""Contiguity between stages and inside loops, as FlinkCEP's documentation shows it."""

from __future__ import annotations

import pytest

from penstock.topologies.patterns.pattern import pattern
from tests.unit.topologies.patterns.searching import find, search, shown, starts, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a > b", []), ("a . b", ["a b1"]), ("a * b", ["a b1", "a b2"])],
)
def test_between_stages(text: str, expected: list[str]) -> None:
    assert find(words(text), "a c b1 b2") == expected


RELAXED = ["a b1 b2 b3 c", "a b1 b2 c", "a b1 c", "a b2 b3 c", "a b2 c", "a b3 c"]


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("strict", ["a b1 c", "a b2 c", "a b3 c"]),
        ("relaxed", RELAXED),
        ("combinations", sorted([*RELAXED, "a b1 b3 c"])),
    ],
)
def test_inside_loops(inner: str, expected: list[str]) -> None:
    loop = words("a * b").one_or_more()
    if inner == "strict":
        loop = loop.consecutive()
    elif inner == "combinations":
        loop = loop.allow_combinations()
    assert find(loop.followed_by("c").where(starts("c")), "a b1 d1 b2 d2 b3 c") == expected


def test_a_strict_stage_behind_a_loop_ends_it_at_the_event_before() -> None:
    loop = words("a . b").one_or_more().next("c").where(starts("c"))
    assert find(loop, "a b1 b2 c") == ["a b1 b2 c"]


def test_what_must_not_come_next() -> None:
    looked_for = pattern("a").where(starts("a")).not_next("n").where(starts("n")).followed_by("b").where(starts("b"))
    assert find(looked_for, "a n b") == []
    assert find(looked_for, "a x n b") == ["a b"]


def test_what_must_not_come_next_at_the_end_is_known_at_the_next_event() -> None:
    looked_for = words("a . b").not_next("n").where(starts("n"))
    assert find(looked_for, "a b") == []
    assert find(looked_for, "a b x") == ["a b"]
    assert find(looked_for, "a b n") == []


def test_what_must_not_come_between() -> None:
    looked_for = (
        pattern("a").where(starts("a")).not_followed_by("n").where(starts("n")).followed_by("b").where(starts("b"))
    )
    assert find(looked_for, "a x b") == ["a b"]
    assert find(looked_for, "a x n b a b") == ["a b"]


def test_what_must_not_come_ends_with_the_optional_stage_behind_it() -> None:
    looked_for = (
        pattern("a")
        .where(starts("a"))
        .not_followed_by("n")
        .where(starts("n"))
        .followed_by_any("c")
        .where(starts("c"))
        .optional()
        .followed_by("d")
        .where(starts("d"))
    )
    assert find(looked_for, "a c n d") == ["a c d"]
    assert find(looked_for, "a n d") == []


def test_what_must_not_come_bars_a_loop_from_its_first_event_on() -> None:
    looked_for = words("a . b").times(2).not_followed_by("n").where(starts("n")).followed_by("d").where(starts("d"))
    assert find(looked_for, "a n b b d") == ["a b b d"]
    assert find(looked_for, "a b n b d") == []


def test_an_end_that_must_not_come_is_a_match_when_time_is_up() -> None:
    looked_for = words("a . b").not_followed_by("n").where(starts("n")).within(10)
    found = search(looked_for, "a@0 b@3 x@5")
    found.time(9)
    assert found.matches == []
    found.time(10)
    assert [(shown([m]), m.ts) for m in found.matches] == [(["a b"], 10)]
    assert found.timeouts == []
    assert search(looked_for, "a@0 b@3 n@9 x@20").matches == []
    assert find(looked_for, "a@0 b@3 n@10") == ["a b"]


def test_an_end_that_must_not_come_behind_a_loop() -> None:
    looked_for = words("a . b").one_or_more().not_followed_by("n").where(starts("n")).within(10)
    found = search(looked_for, "a@0 b1@3 b2@4")
    found.time(10)
    assert shown(found.matches) == ["a b1", "a b1 b2"]


def test_an_end_that_must_not_come_for_some_time_after_the_last_event() -> None:
    looked_for = words("a . b").not_followed_by("n").where(starts("n")).within(5, "previous_to_current")
    found = search(looked_for, "a@0 b@100 x@103 n@104")
    assert found.matches == []
    found = search(looked_for, "a@0 b@100 n@105")
    assert [m.ts for m in found.matches] == [105]
