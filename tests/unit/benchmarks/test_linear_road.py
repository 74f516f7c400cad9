"""The search for the highest L, and expressways beside each other."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.expressways import APART, FORMER, INPUT, OUTPUTS, Expressway, last_line, placed_keys, without_emit
from benchmarks.linear_road import Arrivals, about, highest, responses_ms, table
from penstock.state.log import Record
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.linear_road.topology import build


@pytest.mark.parametrize("first", [1, 4, 10, 20])
@pytest.mark.parametrize("right", range(12))
def test_the_highest_is_found(right: int, first: int) -> None:
    tried: list[int] = []

    def holds(expressways: int) -> bool:
        tried.append(expressways)
        return expressways <= right

    assert highest(holds, 10, first) == (min(right, 10), right < 10)
    assert len(tried) == len(set(tried)) <= 7
    assert tried[0] == min(first, 10)


def test_without_time_the_best_so_far_is_told_as_that() -> None:
    answers = {1: True, 2: True, 4: False, 3: None}
    assert highest(lambda n: answers[n], 64) == (2, False)


def held(expressways: int, holds: bool, **more: object) -> dict[str, object]:
    """The result of one L."""
    return {"expressways": expressways, "holds": holds, "processes": 2, "guarantee": "ALO", **more}


def test_the_text_says_at_least_where_no_higher_one_failed() -> None:
    facts = {"minutes": 3, "cars": 45_000}
    limit = [held(1, True), held(2, True), held(4, True, **facts)]
    assert about(limit).startswith(
        "L = 4 at least, with 2 processes, ALO, 3 simulated minutes, 45,000 cars on each expressway. "
    )
    assert about([*limit, held(8, False, **facts)]).startswith("L = 4 at least, ")
    assert about([*limit, held(5, False, **facts)]).startswith("L = 4, with ")
    assert about([held(1, False, **facts)]).startswith("L = 0, with ")
    assert "minutes and cars are not in the results" in about([held(1, True)])


def test_expressways_together_answer_what_each_answers_alone() -> None:
    ways = [Expressway(xway, 40, 4) for xway in range(2)]
    with TopologyTestDriver(build()) as driver:
        driver.pipe_raw({FORMER: [Record(*row) for way in ways for row in way.former]})
        for second in range(240):
            driver.pipe_raw({INPUT: [Record(*row, second * 1000) for way in ways for row in way.seconds[second]]})
        driver.pipe_raw({INPUT: [Record(b"0", last_line(240))]})
        found = Counter((t, without_emit(t, r.value or b"")) for t in OUTPUTS for r in driver.read_raw(t))
    assert found == ways[0].answers + ways[1].answers
    assert not ways[0].answers & ways[1].answers
    assert {topic for topic, _ in found} >= {"linear-road-tolls", "linear-road-balances", "linear-road-expenditures"}


def test_an_expressway_has_cars_of_its_own() -> None:
    keys = {int(key) // APART for second in Expressway(3, 20, 2).seconds for key, _ in second}
    assert keys == {3}


def test_each_partition_gets_a_key() -> None:
    assert [partition_for(key, 4) for key in placed_keys(4)] == [0, 1, 2, 3]


def test_responses_count_from_the_second_of_the_line_at_the_speed() -> None:
    arrivals = Arrivals()
    arrivals.answers = [("linear-road-tolls", b"0,7,60,123,30,0"), ("linear-road-expenditures", b"3,20,123,1,0")]
    arrivals.came.extend([1_000_000 + 6_500_000, 1_000_000 + 2_250_000])
    assert responses_ms(arrivals, 1_000_000, 10.0) == ([250.0], [500.0])


def test_what_did_not_come_is_late_and_what_is_wrong_is_void() -> None:
    row = {"expressways": 1, "speed": 1.0, "void": "", "holds": True}
    late = {**row, "expressways": 2, "holds": False, "missing": 1_234}
    wrong = {**row, "expressways": 3, "holds": False, "void": "5 answers are not among the 9 right ones"}
    _, rows = table([wrong, late, row], "verdict")
    assert [cells[-1] for cells in rows] == [
        "holds",
        "too late, 1,234 not within 30 s of the end",
        "VOID: 5 answers are not among the 9 right ones",
    ]
