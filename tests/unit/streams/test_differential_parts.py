"""The parts of the differential tests that need no other system: shrinking, looking past departures, the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.case_format import Case
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge
from tests.differential import departures as d
from tests.differential.departures import Departure, explanation
from tests.differential.inputs import Entry, Run, random_run
from tests.differential.judge import Difference, Verdict
from tests.differential.kafka_streams_side import KAFKA_STREAMS, KINDS, case_of
from tests.differential.kinds.patterns import PATTERNS
from tests.differential.outcomes import Outcome, same
from tests.differential.penstock_side import play
from tests.differential.report import lines
from tests.differential.shrink import shrunk


def entry(ts: int, key: str | None = "k", value: str | None = "a") -> Entry:
    return {"topic": "s", "k": key, "v": value, "ts": ts}


def row(key: str, value: Any, ts: int = 0) -> dict[str, Any]:
    return {"k": key, "v": value, "ts": ts}


def test_shrinking_leaves_what_is_needed() -> None:
    asked = 0

    def both_there(inputs: Sequence[list[Entry]]) -> list[bool]:
        nonlocal asked
        asked += len(inputs)
        return [{7, 31} <= {e["ts"] for e in entries} for entries in inputs]

    assert [e["ts"] for e in shrunk([entry(t) for t in range(40)], both_there)] == [7, 31]
    assert asked < 150


@pytest.mark.parametrize("kind", ["keyed_count", "streams_outer_symmetric", "processor_two_timed"])
def test_a_seed_is_one_run(kind: str) -> None:
    assert random_run(KINDS[kind], 3) == random_run(KINDS[kind], 3)
    assert random_run(KINDS[kind], 3) != random_run(KINDS[kind], 4)


def test_there_are_as_many_kinds_as_promised() -> None:
    assert len(KINDS) >= 120
    assert len(PATTERNS) >= 40


@pytest.mark.parametrize(
    ("see", "ours", "theirs"),
    [
        (d.any_order_at_once, [row("a", 1), row("b", 2)], [row("b", 2), row("a", 1)]),
        (d.last_at_once, [row("a", 1)], [row("a", 2), row("a", 1)]),
        (d.without_times, [row("a", 1, 5)], [row("a", 1, 7)]),
        (d.without_idle_changes, [row("a", 1)], [row("b", None), row("a", 1)]),
        (d.without_repeats, [row("a", 1)], [row("a", 1), row("a", 1, 4)]),
        (d.without_outdated, [row("a", 1, 4)], [row("a", 1, 4), row("a", 2, 3)]),
    ],
)
def test_a_departure_explains_its_own_difference_alone(see: d.See, ours: list[Any], theirs: list[Any]) -> None:
    run = Run("x", 0, [], [entry(0)])
    departure = Departure("it", ("x",), "choice", "why", seen_as=see)
    mine, other = Outcome([{"out": ours}]), Outcome([{"out": theirs}])
    assert not same(mine, other)
    assert explanation([departure], run, mine, other) == "it"
    assert explanation([departure], run, mine, Outcome([{"out": [*theirs, row("z", 9, 9)]}])) is None
    assert explanation([departure], Run("y", 0, [], []), mine, other) is None


def test_order_across_steps_is_looked_past_only_where_it_may_be() -> None:
    run = Run("x", 0, [], [entry(0), entry(1)])
    ours, theirs = Outcome([{"out": [row("a", 1)]}, {}]), Outcome([{}, {"out": [row("a", 1)]}])
    assert same(d.any_order(run, ours), d.any_order(run, theirs))
    assert not same(d.any_order_at_once(run, ours), d.any_order_at_once(run, theirs))


@pytest.mark.parametrize(
    ("where", "holds", "fails"),
    [
        (d.has_null_key, [entry(0, None)], [entry(0)]),
        (d.has_null_value, [entry(0, "k", None)], [entry(0)]),
        (d.is_behind, [entry(5), entry(4)], [entry(4), entry(4)]),
        (d.is_late, [entry(5), entry(1)], [entry(5), entry(2)]),
        (d.is_as_late_as_grace, [entry(5), entry(2)], [entry(5), entry(3)]),
        (d.is_as_late_as_grace, [entry(5), entry(2)], [entry(5, "k", None), entry(6, None), entry(2)]),
        (d.is_behind_a_record_without, [entry(9, "k", None), entry(2)], [entry(9), entry(9, "k", None), entry(2)]),
        (d.changes_a_key_again, [entry(0), entry(1)], [entry(0), entry(1, "m")]),
        (d.deletes_a_key_again, [entry(0, "k", None), entry(1, "k", None)], [entry(0), entry(1, "k", None)]),
        (d.deletes_at_the_time_of_the_row, [entry(3), entry(3, "k", None)], [entry(3), entry(4, "k", None)]),
        (d.inside_a_session, [entry(1), entry(5), entry(3)], [entry(1), entry(5), entry(3, "m")]),
    ],
)
def test_inputs_in_which_a_fault_may_show(where: d.Where, holds: list[Entry], fails: list[Entry]) -> None:
    nodes = [{"op": "join", "grace_ms": 3}]
    assert where(Run("x", 0, nodes, holds))
    assert not where(Run("x", 0, nodes, fails))


def test_an_error_on_either_side_is_a_difference() -> None:
    assert not same(Outcome([], "failed"), Outcome([]))
    assert not same(Outcome([], "failed"), Outcome([], "failed"))


@pytest.mark.parametrize("kind", ["tumbling_reduce_on_close", "tables_outer_to_null", "stateless_merge_of_three"])
def test_a_printed_case_is_one_that_conform_can_judge(kind: str) -> None:
    run = random_run(KINDS[kind], 2)
    right = play(run.nodes, run.input)
    assert right.records > 0
    assert _wrong(case_of(run, right)) == []
    first = next(step for step in right.steps if step)
    next(iter(first.values()))[0]["v"] = "something else"
    assert _wrong(case_of(run, right)) != []


def _wrong(data: dict[str, Any]) -> list[str]:
    return judge(Case(data["id"], data["group"], data["kind"], data["portability"], data), DriverPlayer(1))


def test_the_table_adds_up_and_shows_what_is_unexplained() -> None:
    run = Run("keyed_count", 5, [{"op": "sink", "in": "s", "name": "out"}], [entry(4)])
    bad = Difference(run, Outcome([{}]), Outcome([{"out": [row("k", 1, 4)]}]))
    verdicts = [
        Verdict("keyed_count", seeds=2, records=3, identical=1, unexplained=[bad], unexplained_count=1),
        Verdict("keyed_reduce", seeds=2, records=4, identical=2),
    ]
    printed = list(lines(KAFKA_STREAMS, verdicts, every_kind=False))
    assert not any(line.startswith("keyed_reduce") for line in printed)
    [total] = [line for line in printed if line.startswith("all kinds (2)")]
    assert total.split()[3:] == ["4", "7", "3", "0", "0", "1"]
    assert any('"differential.keyed_count.5"' in line for line in printed)
