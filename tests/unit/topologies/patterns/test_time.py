"""Bounds in time, and partial matches that time out."""

from __future__ import annotations

import pytest

from penstock.state.errors import IncompatibleError
from penstock.topologies.patterns.pattern import pattern
from penstock.topologies.patterns.state import NOTHING, decode, encode
from tests.unit.topologies.patterns.searching import find, search, shown, starts, words


def test_the_whole_match_takes_less_than_within() -> None:
    looked_for = words("a . b . c").within(10)
    assert find(looked_for, "a@0 b@3 c@9") == ["a b c"]
    assert find(looked_for, "a@0 b@3 c@10") == []


def test_the_smallest_bound_counts_wherever_it_is_said() -> None:
    assert words("a . b").within(5).followed_by("c").within(9).within_ms == 5
    assert pattern(words("a . b").within(7)).followed_by("c").within(9).within_ms == 7


def test_a_partial_match_that_is_over_times_out_at_its_time() -> None:
    found = search(words("a . b . c").within(10), "a1@0 b@3 a2@4 x@12")
    assert [(shown([m]), m.ts) for m in found.timeouts] == [(["a1 b"], 10)]
    found.time(14)
    assert [(shown([m]), m.ts) for m in found.timeouts[1:]] == [(["a2"], 14)]
    assert found.state == NOTHING


def test_the_time_from_one_event_to_the_next() -> None:
    looked_for = words("a . b").within(5, "previous_to_current").followed_by("c").where(starts("c"))
    assert find(looked_for, "a@0 b@4 c@100") == ["a b c"]
    found = search(looked_for, "a@0 x@4 b@5 c@6")
    assert found.matches == []
    assert [(shown([m]), m.ts) for m in found.timeouts] == [(["a"], 5)]


def test_the_time_between_repetitions() -> None:
    looked_for = words("a . b").times(3, within=3)
    assert find(looked_for, "a@0 b1@50 b2@52 b3@54") == ["a b1 b2 b3"]
    assert find(looked_for, "a@0 b1@50 b2@53 b3@54") == []


def test_an_optional_stage_in_time_does_not_hasten_those_behind_it() -> None:
    looked_for = words("a . b").optional().within(5, "previous_to_current").followed_by("c").where(starts("c"))
    assert find(looked_for, "a@0 b@2 c@50") == ["a b c", "a c"]
    assert find(looked_for, "a@0 b@20 c@50") == ["a c"]


def test_which_patterns_have_a_horizon() -> None:
    assert not words("a . b").bounded
    assert words("a . b").within(5).bounded
    assert words("a > b").bounded
    assert words("a > b").times(3).consecutive().bounded
    assert not words("a > b").one_or_more().consecutive().bounded
    assert words("a . b").within(5, "previous_to_current").bounded
    assert not words("a > b").optional().followed_by("c").bounded
    assert pattern(words("a > b")).times(2).consecutive().bounded
    assert not pattern(words("a > b")).times(2).bounded


def test_state_of_another_pattern_is_refused() -> None:
    state = search(words("a . b"), "a").state
    assert decode(encode(state, 5), 5, "op") == state
    with pytest.raises(IncompatibleError, match=r"operator 'op'.*another pattern"):
        decode(encode(state, 5), 6, "op")


def test_only_events_that_are_held_are_kept() -> None:
    found = search(words("a . b . c").within(10), "a@0 x@1 b@2 y@3")
    stored = encode(found.state, 1)
    assert b'"a"' in stored and b'"b"' in stored
    assert b'"x"' not in stored and b'"y"' not in stored
    found.event("c", 4)
    assert found.state == NOTHING
