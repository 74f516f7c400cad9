"""Many partial matches of one key: what an event costs, how many there may be, and how their number is told."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import TopologyError, UserError
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.patterns.compiler import compile_pattern
from penstock.topologies.patterns.matcher import Matcher
from penstock.topologies.patterns.state import NOTHING, KeyState


def letter(one: str) -> Any:
    return lambda e: e[0] == one


A_THEN_ANY_B = ps.pattern("a").where(letter("a")).followed_by_any("b").where(letter("b")).within(100_000)


def test_an_event_does_not_look_at_those_that_only_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that begins another, nor one that nobody waits for, nor the end of the first ones."""
    matcher = Matcher(compile_pattern(A_THEN_ANY_B), str.encode, bytes.decode)
    looked: list[Any] = []
    for name in ("_open", "_ends_at", "_follow"):
        method = getattr(matcher, name)
        monkeypatch.setattr(matcher, name, lambda *given, method=method: looked.append(given) or method(*given))

    def took(state: KeyState, event: str, ts: int) -> KeyState:
        return matcher.step(matcher.advance(state, ts).state, event, ts).state

    def cost(state: KeyState, event: str, ts: int) -> int:
        looked.clear()
        took(state, event, ts)
        return len(looked)

    costs = []
    for many in (100, 1_000):
        state = NOTHING
        for i in range(many):
            state = took(state, f"a{i}", i)
        assert len(state.partials) == many
        costs.append([cost(state, event, ts) for event, ts in (("a", many), ("c", many), ("a", 100_004))])
    assert costs[0] == costs[1]


def run(text: str, pattern: Any = A_THEN_ANY_B, size: int = 1, **options: Any) -> tuple[list[str], dict[str, int]]:
    """The matches of one key's events, one a millisecond, and what was dropped and counted."""
    builder = ps.StreamsBuilder("many", value=str)
    found = builder.stream("in").match(pattern, event_order="arrival", name="look", **options)
    found.matches.map_values(lambda m: "".join(e for es in m.values() for e in es), value=str).to("out")
    with ps.TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=size)) as driver:
        driver.pipe_all("in", [ps.Record("k", event, ts) for ts, event in enumerate(text.split())])
        return [r.value for r in driver.read("out")], dict(driver.dropped_records)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_oldest_are_dropped_and_counted(size: int) -> None:
    found, dropped = run("a1 a2 a3 a4 b1", size=size, max_partial_matches=2, when_full="drop_oldest")
    assert found == ["a3b1", "a4b1"]
    assert dropped["look.partial_matches"] == 2


def test_what_waited_for_a_dropped_one_is_found() -> None:
    """Under a skip strategy a match waits for the partial matches that began before it."""
    ends = {"p": "z", "a": "b"}
    first = ps.pattern("first").where(lambda e: e[0] in ends)
    pattern = first.followed_by("last").where(lambda e, ctx: e[0] == ends[ctx.events("first")[0][0]])
    pattern = pattern.within(1_000).after_match(ps.skip_past_last_event())
    for size in (1, 100):
        assert run("p1 a1 b1 a2 a3", pattern, size)[0] == []
        limit: dict[str, Any] = {"max_partial_matches": 2, "when_full": "drop_oldest"}
        assert run("p1 a1 b1 a2 a3", pattern, size, **limit)[0] == ["a1b1"]


def test_the_application_stops() -> None:
    with pytest.raises(
        UserError, match=r"look: key 'k' has 3 partial matches, of at most 2; .*when_full='drop_oldest'"
    ):
        run("a1 a2 a3", max_partial_matches=2)
    assert run("a1 a2 b1", max_partial_matches=2)[0] == ["a1b1", "a2b1"]


def test_their_number_is_counted() -> None:
    _, counted = run("a1 a2 c a3", ps.pattern("a").where(letter("a")).followed_by("b").where(letter("b")).within(2))
    assert counted["look.user.partial_matches_added"] >= 2
    assert counted["look.user.partial_matches_added"] - counted["look.user.partial_matches_removed"] == 1


@pytest.mark.parametrize(
    "options", [{"max_partial_matches": 0}, {"max_partial_matches": "many"}, {"when_full": "wait"}]
)
def test_limits_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match="look"):
        run("a1", **options)
