"""Patterns that contradict themselves are refused when they are made, or when they are put to use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.skip import skip_past_last_event, skip_to_first


def true(event: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pattern(""), "a stage is a name"),
        (lambda: pattern("a").where(3), "a condition is a function"),  # type: ignore[arg-type]  # what is refused
        (lambda: pattern("a").where(lambda a, b, c: True), "takes \\(event\\) or"),
        (lambda: pattern("a").where(lambda: True), "takes \\(event\\) or"),
        (lambda: pattern("a").times(0), "give 1 or more"),
        (lambda: pattern("a").times(3, 2), "give 1 or more"),
        (lambda: pattern("a").times_or_more(0), "give 1 or more"),
        (lambda: pattern("a").times(2).one_or_more(), "has a quantifier"),
        (lambda: pattern("a").optional().optional(), "already optional"),
        (lambda: pattern("a").greedy(), "for repeated stages"),
        (lambda: pattern(pattern("a")).one_or_more().greedy(), "group cannot be greedy"),
        (lambda: pattern("a").one_or_more().allow_combinations().greedy(), "contradicts"),
        (lambda: pattern("a").one_or_more().greedy().allow_combinations(), "contradicts"),
        (lambda: pattern("a").one_or_more().greedy().next("b").optional(), "cannot follow a greedy"),
        (lambda: pattern("a").consecutive(), "for repeated stages"),
        (lambda: pattern("a").times(2).consecutive().allow_combinations(), "already strict"),
        (lambda: pattern("a").times(2).until(true), "without a bound"),
        (lambda: pattern("a").one_or_more().until(true).until(true), "already given"),
        (lambda: pattern("a").optional().not_next("n"), "cannot follow an optional"),
        (lambda: pattern("a").optional().not_followed_by("n"), "cannot follow an optional"),
        (lambda: pattern("a").not_next("n").optional(), "cannot be optional"),
        (lambda: pattern("a").not_followed_by("n").one_or_more(), "cannot be repeated"),
        (lambda: pattern("a").not_next(pattern("n")), "not a group"),  # type: ignore[arg-type]  # what is refused
        (lambda: pattern(pattern("a").not_followed_by("n")), "cannot end in not_followed_by"),
        (lambda: pattern(pattern("a")).where(true), "stages inside the group"),
        (lambda: pattern(pattern("a").after_match(skip_past_last_event())), "no skip strategy of its own"),
        (lambda: pattern("a").after_match("no_skip"), "takes a skip strategy"),  # type: ignore[arg-type]  # the same
        (lambda: pattern("a").within(0), "leaves no time"),
        (lambda: pattern("a").within(5, "previous_to_current"), "the first stage has no event before it"),
        (lambda: pattern("a").within(5, "forever"), "kind must be"),  # type: ignore[arg-type]  # what is refused
        (lambda: pattern("a").subtype("str"), "takes a class"),  # type: ignore[arg-type]  # what is refused
    ],
)
def test_at_once(make: Callable[[], Pattern], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        make()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (pattern("a").next("a"), "named twice: a"),
        (pattern("a").next(pattern("b").next("a")), "named twice: a"),
        (pattern("a").not_followed_by("n"), "ends in not_followed_by"),
        (pattern("a").next("b").after_match(skip_to_first("z")), "the stages are: a, b"),
        (pattern("a").next("b").within(9, "previous_to_current").within(5), "9 ms between two events"),
        (pattern("a").times(2, within=9).within(5), "9 ms between two events"),
    ],
)
def test_as_a_whole(made: Pattern, says: str) -> None:
    with pytest.raises(TopologyError, match=f"operator 'op'.*{says}"):
        made.check("op")


def test_a_pattern_is_left_as_it_was() -> None:
    first = pattern("a")
    first.one_or_more().greedy().next("b")
    assert first == pattern("a")
    assert first.shape() == "begin 'a' no_skip"
