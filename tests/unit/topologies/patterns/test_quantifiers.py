"""Quantifiers, greediness, ends of loops, groups and iterative conditions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import ProcessingError
from penstock.topologies.patterns.conditions import MatchContext
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.state import decode, encode
from tests.unit.topologies.patterns.searching import Search, find, search, starts, words


def then(made: Pattern, name: str) -> Pattern:
    return made.followed_by(name).where(starts(name))


def test_times() -> None:
    assert find(then(words("c . a").times(2), "b"), "c a1 a2 a3 b") == ["c a1 a2 b"]
    assert find(then(words("c . a").times(2).allow_combinations(), "b"), "c a1 a2 a3 b") == ["c a1 a2 b", "c a1 a3 b"]
    assert find(then(words("c . a").times(2, 3), "b"), "c a1 a2 a3 a4 b") == ["c a1 a2 a3 b", "c a1 a2 b"]
    assert find(then(words("c . a").times(0, 1), "b"), "c a1 a2 b") == ["c a1 b", "c b"]
    assert find(then(words("c . a").times_or_more(2), "b"), "c a1 a2 a3 b") == ["c a1 a2 a3 b", "c a1 a2 b"]


def test_optional() -> None:
    assert find(then(words("c . a").optional(), "b"), "c x a b") == ["c a b", "c b"]
    assert find(then(words("c > a").optional(), "b"), "c x a b") == ["c b"]
    assert find(then(words("c . a").one_or_more().optional(), "b"), "c a1 a2 b") == ["c a1 a2 b", "c a1 b", "c b"]


def test_optional_at_the_end_is_a_match_without_it_too() -> None:
    assert find(words("a . b").optional(), "a x b") == ["a", "a b"]


def test_greedy_takes_all() -> None:
    loop = words("c . a").one_or_more().greedy()
    assert find(then(loop, "d"), "c a1 a2 x a3 d") == ["c a1 a2 a3 d"]
    any_next = loop.followed_by("d").where(lambda e: e[0] in "ad")
    assert find(any_next, "c a1 a2 d") == ["c a1 a2 d"]
    assert find(words("c . a").one_or_more().followed_by("d").where(lambda e: e[0] in "ad"), "c a1 a2 d") == [
        "c a1 a2",
        "c a1 a2 d",
    ]


def test_greedy_within_bounds() -> None:
    assert find(then(words("c . a").times(1, 2).greedy(), "d"), "c a1 a2 d") == ["c a1 a2 d"]
    # an event that the loop would take may not be passed over behind it either
    assert find(then(words("c . a").times(1, 2).greedy(), "d"), "c a1 a2 a3 d") == []


def test_until_ends_a_loop() -> None:
    loop = words("c . a").one_or_more().until(lambda e: e == "a!")
    assert find(loop, "c a1 a2 a! a3") == ["c a1", "c a1 a2"]
    assert find(then(loop, "b"), "c a1 a! a2 b") == ["c a1 b"]
    greedy = words("c . a").one_or_more().until(lambda e: e == "a!").greedy()
    assert find(greedy.followed_by("e").where(lambda e: e == "a!"), "c a1 a2 a!") == ["c a1 a2 a!"]


def test_until_of_a_group_ends_it() -> None:
    group = words("a . b")
    looked_for = pattern("c").where(starts("c")).followed_by(group).one_or_more().until(lambda e: e == "u")
    assert find(then(looked_for, "d"), "c a1 u b1 d") == []
    assert find(then(looked_for, "d"), "c a1 b1 a2 u b2 d") == ["c a1 b1 d"]
    assert find(looked_for, "c a1 b1 u a2 b2") == ["c a1 b1"]


def test_groups_repeat_as_a_whole() -> None:
    looked_for = then(pattern("c").where(starts("c")).followed_by(words("a . b")).one_or_more(), "d")
    assert find(looked_for, "c a1 b1 a2 b2 d") == ["c a1 a2 b1 b2 d", "c a1 b1 d"]
    twice = then(pattern("c").where(starts("c")).followed_by(words("a . b")).times(2).optional(), "d")
    assert find(twice, "c a1 b1 a2 b2 d") == ["c a1 a2 b1 b2 d", "c d"]
    assert find(twice, "c a1 b1 d") == ["c d"]


def test_a_match_is_found_once_whatever_lies_between_a_group_and_what_follows() -> None:
    looked_for = then(pattern("c").where(starts("c")).followed_by(words("a . b")).one_or_more(), "d")
    assert find(looked_for, "c a1 b1 x y z d1 d2") == ["c a1 b1 d1"]


def test_groups_in_groups() -> None:
    inner = words("b > e")
    outer = pattern("a").where(starts("a")).followed_by(inner).times(2).consecutive()
    looked_for = then(pattern("c").where(starts("c")).followed_by_any(outer).times(0, 2).consecutive(), "d")
    assert find(looked_for, "c a b1 e1 b2 e2 d") == ["c a b1 b2 e1 e2 d", "c d"]
    assert find(looked_for, "c a b1 e1 x b2 e2 d") == ["c d"]


def test_a_first_stage_that_is_a_group_in_a_group_follows_as_the_outer_one() -> None:
    looked_for = pattern("c").where(starts("c")).followed_by_any(pattern(words("a > b")))
    assert find(looked_for, "c x a1 b1 a2 b2") == ["c a1 b1", "c a2 b2"]


def test_a_greedy_loop_at_the_end_of_a_repeated_group() -> None:
    group = words("a . b").one_or_more().consecutive().greedy()
    looked_for = then(pattern("c").where(starts("c")).followed_by(group).one_or_more(), "d")
    assert find(looked_for, "c a1 b1 b2 d") == ["c a1 b1 b2 d"]
    assert find(looked_for, "c a1 b1 b2 a2 b3 d") == ["c a1 a2 b1 b2 b3 d", "c a1 b1 b2 d"]


def test_iterative_conditions_see_what_was_taken() -> None:
    def rises(event: int, ctx: MatchContext) -> bool:
        return all(event > e for e in ctx.events("up")) and sum(ctx.events()) + event < 20

    made = Search(pattern("up").where(rises).times_or_more(3).consecutive())
    for ts, value in enumerate([3, 1, 4, 6, 5, 9]):
        made.event(value, ts)
    assert [m.events for m in made.matches] == [{"up": [1, 4, 6]}]


def test_a_condition_cannot_alter_what_others_see() -> None:
    def spoils(event: Any, ctx: MatchContext) -> bool:
        for taken in ctx.events("a"):
            taken["n"] = 99
        return bool(event["n"] == 2)

    made = Search(pattern("a").where(lambda e: e["n"] == 1).followed_by("b").where(spoils))
    made.event({"n": 1}, 0)
    made.event({"n": 2}, 1)
    assert [m.events for m in made.matches] == [{"a": [{"n": 1}], "b": [{"n": 2}]}]


def test_a_condition_knows_the_time_and_asks_only_for_stages_that_exist() -> None:
    seen = []
    made = Search(pattern("a").where(lambda e, ctx: bool(seen.append((ctx.timestamp, ctx.processing_time))) or True))
    made.event("x", 17)
    assert seen == [(17, 0)]
    with pytest.raises(ProcessingError, match="the stages of the pattern are: a"):
        search(pattern("a").where(lambda e, ctx: ctx.events("z")), "x")


def test_alternatives_and_types() -> None:
    either = pattern("a").where(starts("a")).where(lambda e: e.endswith("1")).or_(starts("b"))
    assert find(either, "a1 a2 b2") == ["a1", "b2"]
    made = Search(pattern("n").subtype(int).where(lambda e: e > 1))
    for ts, value in enumerate(["x", 1, 2]):
        made.event(value, ts)
    assert [m.events for m in made.matches] == [{"n": [2]}]


def test_a_failing_condition_changes_nothing() -> None:
    made = search(words("a . b").next("c").where(lambda e: 1 / 0), "a b")
    before = made.state
    with pytest.raises(ZeroDivisionError):
        made.event("c", 5)
    assert made.state is before


def test_paths_of_any_length_can_be_stored() -> None:
    loop = pattern("first").where(lambda e: e == "a0").next("a").where(starts("a")).one_or_more().consecutive().greedy()
    looked_for = loop.next("b").where(starts("b"))
    made = Search(looked_for)
    for number in range(1_500):
        made.state = made.matcher.step(made.state, f"a{number}", number).state
    stored = encode(made.state, 1)
    made.state = decode(stored, 1, "search")
    assert encode(made.state, 1) == stored
    (match,) = made.matcher.step(made.state, "b", 1_500).matches
    assert match.events["a"] == [f"a{n}" for n in range(1, 1_500)]
