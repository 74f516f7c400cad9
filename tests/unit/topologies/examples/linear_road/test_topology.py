"""Linear Road: the rules on traffic made by hand, and generated traffic against the oracle in several ways of running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from benchmarks.linear_road_generator import Line, Traffic, former_tolls, lines, records
from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.linear_road.model import line
from penstock.topologies.examples.linear_road.topology import build
from tests.unit.topologies.examples.linear_road import oracle

UNUSED = (-1,) * 6
SLOW = 30


def report(time: int, vid: int, seg: int, lane: int = 2, direction: int = 0, pos: int | None = None) -> Line:
    """A car at 30 mph on expressway 0, somewhere of its own in the segment unless told."""
    at = seg * 5280 + vid * 7 + time if pos is None else pos
    return (0, time, vid, SLOW, 0, lane, direction, seg, at, *UNUSED)


def balance(time: int, vid: int, qid: int) -> Line:
    return (2, time, vid, *[-1] * 6, qid, *[-1] * 5)


def expenditure(time: int, vid: int, day: int, xway: int, qid: int) -> Line:
    return (3, time, vid, -1, xway, *[-1] * 4, qid, *[-1] * 4, day)


def pipe(driver: TopologyTestDriver, rows: Iterable[Line]) -> None:
    driver.pipe_raw({"linear-road": [Record(b"%d" % row[2], line(row)) for row in rows]})


def end(driver: TopologyTestDriver, partitions: int = 1) -> None:
    """A question that nobody answers, so late that all before it is over."""
    late = Record(b"0", line((4, 90_000, 0, *[-1] * 12)))
    for p in range(partitions):
        driver.pipe_raw({"linear-road": [late]}, partition=p)


def read(driver: TopologyTestDriver) -> oracle.Answers:
    """The answers as bags, without the time of emission."""

    def bag(topic: str) -> Counter[tuple[int, ...]]:
        rows = [r.value for r in driver.read(f"linear-road-{topic}")]
        return Counter(tuple(v for name, v in row.items() if name != "emit") for row in rows)

    return oracle.Answers(bag("tolls"), bag("accidents"), bag("balances"), bag("expenditures"))


@pytest.fixture(params=[1, 1000], ids=["batches of 1", "batches of 1000"])
def driver(request: pytest.FixtureRequest) -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(build(), options=TaskOptions(batch_max_records=request.param)) as made:
        yield made


def jam(vids: Iterable[int] = range(60)) -> list[Line]:
    """Cars that drive through segment 10 in minute 1."""
    return [report(n % 60, vid, 10) for n, vid in enumerate(vids)]


def test_sixty_slow_cars_make_a_toll_in_the_next_minute(driver: TopologyTestDriver) -> None:
    """2 (60 - 50)²; who reports the segment again is not told again, and who leaves by it is not told at all."""
    pipe(driver, [*jam(), report(60, 5, 10), report(61, 100, 10), report(62, 101, 10, lane=4), report(119, 102, 10)])
    pipe(driver, [report(120, 103, 10), report(60, 104, 11)])
    end(driver)
    tolls = {vid: (lav, toll) for _, vid, time, lav, toll in read(driver).tolls if time >= 60}
    assert tolls == {100: (30, 200), 102: (30, 200), 103: (30, 0), 104: (0, 0)}


def test_fifty_cars_or_fast_ones_are_free(driver: TopologyTestDriver) -> None:
    fast = [(*row[:3], 40, *row[4:7], 20, row[8], *UNUSED) for row in jam(range(200, 260))]
    pipe(driver, [*jam(range(50)), *fast, report(60, 100, 10), report(60, 101, 20)])
    end(driver)
    tolls = {vid: (lav, toll) for _, vid, time, lav, toll in read(driver).tolls if time >= 60}
    assert tolls == {100: (30, 0), 101: (40, 0)}


def test_a_toll_is_charged_when_the_car_goes_on(driver: TopologyTestDriver) -> None:
    """Not while it stays, not when it leaves by the exit lane of the segment, but by that of the next."""
    enter = [report(60, 100, 10), report(60, 101, 10), report(60, 102, 10), report(60, 103, 10)]
    move = [report(90, 100, 11), report(90, 101, 10, lane=4), report(90, 102, 11, lane=4), report(90, 103, 10)]
    asked = [balance(119, 100, 1), *(balance(130 + n, 100 + n, 10 + n) for n in range(4))]
    pipe(driver, [*jam(), *enter, *move, report(120, 101, 12), *asked])
    end(driver)
    assert set(read(driver).balances) == {
        (2, 119, 0, 1, 0),  # as of the minute's beginning
        (2, 130, 90, 10, 200),
        (2, 131, 0, 11, 0),
        (2, 132, 90, 12, 200),
        (2, 133, 0, 13, 0),
    }


@pytest.mark.parametrize("direction", [0, 1])
def test_an_accident_is_told_in_five_segments_and_makes_them_free(driver: TopologyTestDriver, direction: int) -> None:
    """From the minute after the later car's fourth report through the one in which one of them moves on."""
    place = 30 * 5280 + 100
    first = [report(t, 1, 30, direction=direction, pos=place) for t in range(0, 240, 30)]
    second = [report(t, 2, 30, direction=direction, pos=place) for t in range(20, 180, 30)]
    moved = report(185, 2, 30, direction=direction, pos=place + 90)
    entries = [
        report(t, 1000 + t + seg, seg, direction=direction) for t in (119, 120, 239, 240) for seg in range(22, 39)
    ]
    pipe(driver, sorted([*first, *second, moved, *entries], key=lambda row: row[1]))
    end(driver)
    told = Counter((time, vid - 1000 - time) for _, time, _, seg, _, vid in read(driver).accidents if seg == 30)
    segments = range(26, 31) if direction == 0 else range(30, 35)
    assert told == Counter((time, seg) for time in (120, 239) for seg in segments)


def test_cars_that_stop_in_other_lanes_or_for_three_reports_are_no_accident(driver: TopologyTestDriver) -> None:
    place = 30 * 5280
    cars = [(1, 1, 8), (2, 2, 8), (3, 2, 3), (4, 0, 8), (5, 0, 8)]
    stops = [report(30 * n, vid, 30, lane=lane, pos=place) for vid, lane, times in cars for n in range(times)]
    pipe(driver, sorted([*stops, report(90, 3, 31), report(185, 6, 30)], key=lambda row: row[1]))
    end(driver)
    answers = read(driver)
    assert not answers.accidents
    assert len(answers.tolls) == 7


def test_what_was_paid_is_looked_up_by_car_day_and_expressway(driver: TopologyTestDriver) -> None:
    driver.pipe_raw({"linear-road-former-tolls": [Record(b"7-3-0", b"7,3,0,42")]})
    pipe(driver, [expenditure(0, 7, 3, 0, 1), expenditure(1, 7, 3, 1, 2), expenditure(2, 7, 4, 0, 3)])
    assert set(read(driver).expenditures) == {(3, 0, 1, 42), (3, 1, 2, 0), (3, 2, 3, 0)}


def test_answers_bear_the_time_of_the_clock(driver: TopologyTestDriver) -> None:
    driver.advance_wall_time(1230)
    pipe(driver, [report(0, 1, 10)])
    end(driver)
    assert [r.value["emit"] for r in driver.read("linear-road-tolls")] == [1230]


def test_a_simulation_begins_with_a_minute() -> None:
    with pytest.raises(TopologyError, match="give a multiple of 60000"):
        build(began_ms=61_000)


class Way(NamedTuple):
    """How the topology is run."""

    batch: int
    partitions: int = 1
    restarts: int = 0
    out_of_order_s: int = 0
    began_ms: int = 0


@pytest.mark.parametrize(
    "way",
    [Way(1), Way(10_000), Way(10_000, 2, 2, 9, 7_200_000), Way(7, 3, 1)],
    ids=lambda way: ", ".join(f"{name} {value}" for name, value in way._asdict().items()),
)
def test_generated_traffic_gets_the_answers_of_the_oracle(way: Way) -> None:
    traffic = Traffic(cars=140, hot=1, minutes=8, seed=5, out_of_order_s=way.out_of_order_s)
    former = former_tolls(traffic)
    expected = oracle.answers(lines(traffic), [tuple(map(int, (r.value or b"").split(b","))) for r in former])
    assert sum(n for row, n in expected.tolls.items() if row[-1]) > 10, "the traffic has tolls"
    assert len(expected.accidents) > 5, "and accidents"
    assert sum(n for row, n in expected.balances.items() if row[-1]) > 5, "and charges"
    driver = TopologyTestDriver(
        build(out_of_order=f"{way.out_of_order_s}s", began_ms=way.began_ms),
        partitions=way.partitions,
        options=TaskOptions(batch_max_records=way.batch),
    )
    driver.pipe_raw({"linear-road-former-tolls": former})
    rows = list(records(traffic))
    size = -(-len(rows) // (way.restarts + 1))
    for first in range(0, len(rows), size):
        if first:
            driver.restart(restore=True)
        driver.pipe_raw({"linear-road": rows[first : first + size]})
    end(driver, way.partitions)
    found = read(driver)
    assert found.tolls == expected.tolls
    assert found.accidents == expected.accidents
    assert found.balances == expected.balances
    assert found.expenditures == expected.expenditures
    assert not driver.dropped_records
    driver.close()
