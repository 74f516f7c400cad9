"""An answer counts only where there is one; what the clock decides is held against the number of bids."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import nexmark
from benchmarks.nexmark import EVENTS, NOTHING, STREAM, Bids, Pair, Result, answers, brought, expected, table, verdict
from benchmarks.nexmark_generator import records

ONE: list[Pair] = [(b"k", b"1")]


def test_an_empty_answer_is_told_as_that() -> None:
    assert verdict("q7", [], [], 9) == NOTHING
    assert not answers(NOTHING)


@pytest.mark.parametrize(
    ("right", "found", "said"),
    [
        (ONE, ONE, "equal"),
        ([(b"k", b"0"), *ONE], ONE, "equal tables"),
        (ONE, [], "differs: 0 records instead of 1"),
        ([], ONE, "differs: 1 records instead of 0"),
    ],
)
def test_answers_are_compared(right: list[Pair], found: list[Pair], said: str) -> None:
    assert verdict("q1", right, found, 9) == said
    assert answers(said) == said.startswith("equal")


@pytest.mark.parametrize(("counted", "right"), [(9, True), (8, False), (10, False), (0, False)])
def test_query_12_counts_every_bid_once(counted: int, right: bool) -> None:
    found: list[Pair] = [(b"a", b'{"bid_count": 3}'), (b"b", b'{"bid_count": %d}' % (counted - 3))]
    said = verdict("q12", [], found, 9)
    assert answers(said) is right
    assert f"{counted:,}" in said


def test_bids_of_the_events_are_counted() -> None:
    bids = Bids(records(500, **STREAM))
    assert (len(list(bids)), bids.count) == (500, 460)


def test_the_default_number_of_events_closes_windows() -> None:
    seconds = EVENTS / STREAM["event_rate"]
    assert seconds > 4 * nexmark.WINDOW_S
    few = list(records(1_000, **STREAM))
    assert expected("q8", few) == []
    # A slower stream of the same length in event time has the same windows.
    slow = list(records(EVENTS // 100, **{**STREAM, "event_rate": STREAM["event_rate"] // 100}))
    assert all(expected(query, slow) for query in ("q7", "q8", "q11"))


def result(**more: Any) -> dict[str, Any]:
    """A line of a results file."""
    facts = Result("penstock", "q7", 100, 0, 2.0, 1.0, 10**6, None, "equal")._asdict()
    return {"kind": "nexmark", "at": "now", "file": "nexmark", **facts, **more}


def test_a_kept_result_of_nothing_is_told_as_nothing_expected() -> None:
    part = {"records": 5, "seconds": 1.0, "records_per_s": 5.0, "cpu_s_per_million": 2.0,
            "broker_cpu_s_per_million": 1.0, "others_cores": 0.0}  # fmt: skip
    flink = result(query="q1", written=3, system="flink")
    lines = [result(), result(query="q1", written=3, steady=part), flink, result(query="q1", written=4)]
    for line in (lines[0], lines[1], lines[3]):
        del line["system"]
    head, rows = brought(lines)
    ours = Result("penstock", "q1", 100, 4, 2.0, 1.0, 10**6, None, "equal")
    nothing = ours._replace(query="q7", written=0)
    assert (head, rows) == table([ours, ours._replace(system="flink", written=3), nothing])
    assert [row[-1] for row in rows] == ["equal", "equal", NOTHING]


def test_results_of_more_partitions_stand_behind_those_of_one() -> None:
    four = result(partitions=4, processes=2, events=7)
    _, rows = brought([four, result(), result(events=8), {**four, "events": 9}])
    assert [(row[2], row[3]) for row in rows] == [("1 / 1", "8"), ("4 / 2", "9")]
