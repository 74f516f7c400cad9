"""After-match skip strategies, as FlinkCEP's documentation shows them, and how matches wait for earlier partial ones."""

from __future__ import annotations

import pytest

from penstock.state.errors import ProcessingError
from penstock.topologies.patterns.conditions import MatchContext
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.skip import (
    Skip,
    no_skip,
    skip_past_last_event,
    skip_to_first,
    skip_to_last,
    skip_to_next,
)
from tests.unit.topologies.patterns.searching import find, search, shown, starts, words


def loop_then_c() -> Pattern:
    return pattern("b").where(starts("b")).one_or_more().consecutive().next("c").where(starts("c"))


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (no_skip(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (skip_to_next(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (skip_past_last_event(), ["b1 b2 b3 c"]),
        (skip_to_first("b"), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (skip_to_last("b"), ["b1 b2 b3 c", "b3 c"]),
    ],
)
def test_a_loop_and_its_end(skip: Skip, expected: list[str]) -> None:
    assert find(loop_then_c().after_match(skip), "b1 b2 b3 c") == expected


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (no_skip(), ["a b1", "a b1 b2", "a b1 b2 b3"]),
        (skip_to_next(), ["a b1"]),
        (skip_past_last_event(), ["a b1"]),
    ],
)
def test_a_loop_at_the_end(skip: Skip, expected: list[str]) -> None:
    assert find(words("a . b").one_or_more().after_match(skip), "a b1 b2 b3") == expected


@pytest.mark.parametrize(
    ("skip", "expected"),
    [
        (no_skip(), ["a1 b1 c1", "a1 b1 c2", "a2 b1 c1", "a2 b1 c2"]),
        (skip_to_next(), ["a1 b1 c1", "a2 b1 c1"]),
        (skip_past_last_event(), ["a1 b1 c1"]),
        (skip_to_first("b"), ["a1 b1 c1"]),
    ],
)
def test_overlaps(skip: Skip, expected: list[str]) -> None:
    assert find(words("a . b * c").after_match(skip), "a1 a2 b1 c1 c2") == expected


def test_matches_wait_for_partial_ones_that_began_earlier() -> None:
    def ends(event: str, ctx: MatchContext) -> bool:
        return event == f"end-{ctx.events('s')[0]}"

    looked_for = pattern("s").where(lambda e: e in "ab").followed_by("t").where(ends).within(50)
    found = search(looked_for.after_match(skip_to_next()), "a@0 b@1 end-b@2 x@49")
    assert found.matches == []
    found.time(50)
    assert [(shown([m]), m.ts) for m in found.matches] == [(["b end-b"], 2)]
    assert shown(found.timeouts) == ["a"]
    skipped = search(looked_for.after_match(skip_past_last_event()), "a@0 b@1 end-b@2 end-a@3")
    assert shown(skipped.matches) == ["a end-a"]
    assert shown(search(looked_for, "a@0 b@1 end-b@2").matches) == ["b end-b"]


def test_a_missing_stage_skips_nothing_or_fails() -> None:
    looked_for = words("a . b").optional().next("c").where(starts("c"))
    for skip in (skip_to_first("b"), skip_to_last("b")):
        assert find(looked_for.after_match(skip), "a c") == ["a c"]
        with pytest.raises(ProcessingError, match="no event of this stage"):
            find(looked_for.after_match(skip.error_on_miss()), "a c")


def test_skipping_to_the_first_event_of_the_match_fails_only_if_asked_to() -> None:
    looked_for = words("b > c")
    assert find(looked_for.after_match(skip_to_first("b")), "b1 c1 b2 c2") == ["b1 c1", "b2 c2"]
    with pytest.raises(ProcessingError, match="first event"):
        find(looked_for.after_match(skip_to_first("b").error_on_miss()), "b1 c1")
