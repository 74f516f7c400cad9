"""The parts of the differential tests that need no other system: shrinking, looking past departures, the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.case_format import Case
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge
from tests.differential import departures as d
from tests.differential import flink_sql_side as sql
from tests.differential import known_queries
from tests.differential import replays as r
from tests.differential.departures import Departure, Sides, explanation
from tests.differential.inputs import Entry, Run, random_run
from tests.differential.judge import Difference, Verdict
from tests.differential.kafka_streams_side import KAFKA_STREAMS, KINDS, case_of
from tests.differential.kinds.patterns import PATTERNS
from tests.differential.kinds.queries import QUERIES
from tests.differential.outcomes import Outcome, same
from tests.differential.penstock_side import play
from tests.differential.report import lines
from tests.differential.shrink import shrunk


def entry(ts: int, key: str | None = "k", value: str | None = "a") -> Entry:
    return {"topic": "s", "k": key, "v": value, "ts": ts}


def echo(run: Run) -> Outcome:
    """A side that puts out each record."""
    return Outcome([{"out": [row(e["k"], e["v"], e["ts"])]} for e in run.input])


ECHOES = Sides(echo, echo)


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
        (d.without_tombstones, [row("a", 1)], [row("a", 1), row("b", None)]),
        (d.without_group_of_zero, [row("1", 1)], [row("0", -1), row("1", 1)]),
        (
            d.without_subtractions,
            [row("a", "+x"), row("a", "+x-y"), row("a", "+x-y+z")],
            [row("a", "+x"), row("a", "+x+z")],
        ),
    ],
)
def test_a_departure_explains_its_own_difference_alone(see: d.See, ours: list[Any], theirs: list[Any]) -> None:
    run = Run("x", 0, [], [entry(0)])
    departure = Departure("it", "It", ("x",), "choice", "why", seen_as=see)
    mine, other = Outcome([{"out": ours}]), Outcome([{"out": theirs}])
    assert not same(mine, other)
    assert explanation([departure], run, mine, other, ECHOES) == "it"
    assert explanation([departure], run, mine, Outcome([{"out": [*theirs, row("z", 9, 9)]}]), ECHOES) is None
    assert explanation([departure], Run("y", 0, [], []), mine, other, ECHOES) is None
    other_one = Departure("another", "Another", ("x",), "choice", "why", seen_as=lambda run, outcome: outcome)
    assert explanation([other_one, departure], run, mine, other, ECHOES) == "it", "no more departures than are needed"


@pytest.mark.parametrize(
    ("theirs", "same_at_last"),
    [
        ([{}, {"out": [row("a", "x|y", 1), row("a", "w|null", 0)]}], True),
        ([{"out": [row("a", "w|null", 0)]}, {"out": [row("a", "x|y", 1)]}], True),
        ([{}, {"out": [row("a", "x|y", 1), row("a", "w|null", 5)]}], False),
        ([{"out": [row("a", "x|y", 1), row("a", "w|null", 0)]}, {}], False),
        ([{}, {"out": [row("a", "x|y", 1)]}], False),
    ],
)
def test_only_rows_of_unmatched_records_may_come_late(theirs: list[Any], same_at_last: bool) -> None:
    run = Run("x", 0, [], [entry(0), entry(1)])
    ours = Outcome([{"out": [row("a", "w|null", 0)]}, {"out": [row("a", "x|y", 1)]}])
    assert same(*r.unmatched_when_due(run, ours, Outcome(theirs), ECHOES)) == same_at_last


def test_a_partner_may_come_before_the_row_of_an_unmatched_record() -> None:
    run = Run("x", 0, [], [entry(0), entry(1)])
    ours = Outcome([{"out": [row("a", "w|null")]}, {"out": [row("a", "w|y")]}])
    met, unmet = Outcome([{}, {"out": [row("a", "w|y")]}]), Outcome([{}, {"out": [row("a", "z|y")]}])
    assert same(*r.unmatched_when_due(run, ours, met, ECHOES))
    assert not same(*r.unmatched_when_due(run, ours, unmet, ECHOES))
    assert not same(*r.unmatched_when_due(run, met, ours, ECHOES))


def test_rows_of_unmatched_records_do_not_come_sooner() -> None:
    run = Run("x", 0, [], [entry(0), entry(1)])
    sooner, later = Outcome([{"out": [row("a", "w|null")]}, {}]), Outcome([{}, {"out": [row("a", "w|null")]}])
    assert same(*r.unmatched_when_due(run, sooner, later, ECHOES))
    assert not same(*r.unmatched_when_due(run, later, sooner, ECHOES))


NODES = [
    {"op": "stream", "id": "s", "topic": "s"},
    {"op": "join", "id": "made", "in": "s", "grace_ms": 3, "window": {"grace_ms": 3}},
    {"op": "suppress", "id": "last", "in": "made"},
    {"op": "sink", "in": "last", "name": "out"},
]


@pytest.mark.parametrize(
    ("replay", "entries", "left"),
    [
        (r.both_without_late_records, [entry(9), entry(6), entry(5)], [0, 1]),
        (r.both_without_deletions_of_one_time, [entry(3), entry(3, "k", None), entry(4, "k", None)], [0, 2]),
        (r.both_without_second_deletions, [entry(0, "k", None), entry(1, "k", None), entry(2)], [0, 2]),
        (r.null_values_left_out, [entry(0), entry(1, "k", None), entry(2, None)], [0, 2]),
    ],
)
def test_replays_leave_out_what_they_name(replay: d.Replay, entries: list[Entry], left: list[int]) -> None:
    run = Run("x", 0, NODES, entries)
    silent = Outcome([{} for _ in entries])
    _, theirs = replay(run, silent, echo(run), ECHOES)
    assert [index for index, step in enumerate(theirs.steps) if step] == left


def test_nulls_that_move_no_time_keep_what_they_put_out_themselves() -> None:
    run = Run("x", 0, NODES, [entry(1, "k", "x"), entry(50, None, "n"), entry(60, "q", None)])
    alone, due = row(None, "n|null", 50), row("k", "x|null", 1)  # type: ignore[arg-type]  # a null key
    theirs = Outcome([{}, {"out": [due, alone]}, {"out": [due]}])
    _, seen = r.nulls_moving_no_time(run, theirs, theirs, ECHOES)
    assert seen.steps == [{"out": [row("k", "x", 1)]}, {"out": [alone]}, {}]


STREAMS = [
    {"op": "stream", "id": "l", "topic": "l"},
    {"op": "stream", "id": "r", "topic": "r"},
    {
        "op": "join",
        "id": "made",
        "kind": "stream_stream",
        "type": "outer",
        "left": "l",
        "right": "r",
        "joiner": "pair",
        "before_ms": 8,
        "after_ms": 8,
        "grace_ms": 2,
    },
    {"op": "sink", "in": "made", "name": "out"},
]
FORGOTTEN_BY_ONE = [
    pytest.param([("l", "k", "x", 10), ("l", "q", "y", 28), ("r", "k", "late", 10)], id="one millisecond sooner"),
    pytest.param(
        [("l", "k", "x", 10), ("r", "q", "y", 40), ("r", "k", "late", 10)], id="by the time of the other side"
    ),
]
FORGOTTEN_BY_BOTH_OR_NONE = [
    pytest.param([("l", "k", "x", 10), ("l", "q", "y", 27), ("r", "k", "late", 10)], id="kept by both"),
    pytest.param([("l", "k", "x", 10), ("l", "q", "y", 29), ("r", "k", "late", 10)], id="forgotten by both"),
    pytest.param([("l", "k", "x", 10), ("l", "q", "y", 28), ("r", "k", "late", 19)], id="out of the window"),
    pytest.param([("l", "p", "x", 10), ("l", "q", "y", 28), ("r", "k", "late", 10)], id="another key"),
    pytest.param([("l", "k", None, 10), ("l", "q", "y", 28), ("r", "k", "late", 10)], id="no value"),
]


def seen_of_late_records(entries: list[Any]) -> list[Any]:
    """What is left of rows that tell of late records, of their partners, and of others."""
    run = Run("x", 0, STREAMS, [dict(zip(("topic", "k", "v", "ts"), e, strict=True)) for e in entries])
    rows = [row("k", "x|late", max(entries[0][3], entries[2][3])), row("k", "x|null", 10)]
    rows += [row("k", "null|late", entries[2][3]), row("q", "y|null", 28), row("k", "x|z", 20)]
    sides = Sides(lambda run: play(run.nodes, run.input), echo)
    seen, _ = r.late_records_left_out(run, Outcome([{"out": rows}]), Outcome([]), sides)
    return [row["v"] for _, row in seen.flat()]


@pytest.mark.parametrize("entries", FORGOTTEN_BY_ONE)
def test_results_of_partners_that_one_side_forgot_are_looked_past(entries: list[Any]) -> None:
    assert seen_of_late_records(entries) == ["y|null", "x|z"]


@pytest.mark.parametrize("entries", FORGOTTEN_BY_BOTH_OR_NONE)
def test_results_of_late_records_are_compared_where_both_agree(entries: list[Any]) -> None:
    assert seen_of_late_records(entries) == ["x|late", "x|null", "null|late", "y|null", "x|z"]


def test_what_suppress_lets_go_must_have_been_an_update() -> None:
    run = Run("x", 0, NODES, [entry(1, "k", "a"), entry(2, "k", "b")])
    let_go, made_up = Outcome([{}, {"out": [row("k", "a", 1)]}]), Outcome([{"out": [row("k", "c", 1)]}])
    assert same(*r.without_updates_of_windows(run, echo(run), let_go, ECHOES))
    assert not same(*r.without_updates_of_windows(run, echo(run), made_up, ECHOES))


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


def test_every_query_is_one_that_penstock_takes() -> None:
    assert len(QUERIES) >= 40
    for kind in QUERIES:
        [run] = sql.runs_of(kind, range(1))
        assert sql.play(run).error is None, kind


def test_changes_make_the_table_that_is_compared() -> None:
    run = Run("count", 0, [{"grouped": True}], [entry(0), entry(1)])
    changes = [("+I", 1), ("-U", 1), ("+U", 2), ("+I", 5), ("-D", 5)]
    answer = Outcome([{"out": [{"k": kind, "v": {"c": c}, "ts": 0} for kind, c in changes]}, {}])
    assert [step["table"] for step in sql.read(run, answer).steps] == [[{"v": {"c": 2}, "ts": 0}]] * 2
    rows = Run("sums", 0, [{"grouped": False}], [entry(0), entry(1)])
    assert sql.read(rows, answer).error is not None, "rows are not changed"


def test_decimals_are_compared_by_their_number() -> None:
    run = Run("decimals", 0, [{"grouped": False}], [entry(0)])
    found = [
        sql.read(run, Outcome([{"out": [{"k": "+I", "v": {"c": {"decimal": d}}, "ts": 0}]}]))
        for d in ("1.50", "1.5", "2")
    ]
    assert same(found[0], found[1]) and not same(found[0], found[2])


SQL_ROW: dict[str, Any] = {"topic": "l", "k": "a", "v": {"id": 1, "k": None, "m": 1, "s": "1x"}, "ts": 4}


@pytest.mark.parametrize(
    ("see", "theirs", "ours"),
    [
        (known_queries.without_windows_before_1970, [{"t": -5, "c": 1}, {"t": 0, "c": 1}], [{"t": 0, "c": 1}]),
        (known_queries.with_literals_as_floats, [{"c": {"decimal": "1.5"}}], [{"c": 1.5}]),
        (known_queries.with_nothing_like_nothing, [{"c1": "a", "c2": True}], [{"c1": "a", "c2": False}]),
        (known_queries.with_small_truths, [{"c2": "TRUE"}], [{"c2": "true"}]),
        (known_queries.with_whole_means, [{"c": -1}], [{"c": -1.5}]),
        (known_queries.with_nine_digits, [{"c": 1.4399999999999997}], [{"c": 1.44}]),
        (known_queries.with_whole_texts, [{"id": 1, "c3": {"decimal": "1"}}], [{"id": 1, "c3": None}]),
        (known_queries.with_whole_numbers, [{"id": 2, "c1": 1}], [{"id": 2, "c1": None}]),
        (known_queries.without_late_rows, [{"i": 1, "j": 2}], []),
    ],
)
def test_a_departure_of_sql_explains_its_own_difference_alone(see: d.See, theirs: list[Any], ours: list[Any]) -> None:
    fraction = {**SQL_ROW, "v": {**SQL_ROW["v"], "id": 2, "s": "1.5"}, "ts": 9}
    run = Run("x", 0, [{"grouped": False}], [{"event": "watermark", "ts": 5}, SQL_ROW, fraction])
    mine, other = (Outcome([{}, {"out": [{"v": v, "ts": 0} for v in rows]} if rows else {}]) for rows in (ours, theirs))
    more = Outcome(
        [
            {"out": [{"v": {"i": 9, "j": 9, "t": 1, "c": 7, "c1": "", "c2": "", "c3": None, "id": 1}, "ts": 0}]},
            other.steps[1],
        ]
    )
    assert not same(mine, other)
    assert same(see(run, mine), see(run, other))
    assert not same(see(run, mine), see(run, more))
