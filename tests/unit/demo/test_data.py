"""The demo's data sets: the same whenever they are made, whole or in parts, and answered as the topologies answer them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from demo.answers import check_answer, read_answer
from demo.events import BLOCK, Events
from demo.flights import AIRPORTS, Flights
from demo.pipelines import Pipeline, pipelines
from demo.records import DataSet
from penstock.state.log import Record
from penstock.streams.ports.chunk import Chunk
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.streams.topology_loading import load_topology

NOW_MS = 1_795_000_123_456


@pytest.fixture(scope="module")
def flights() -> Flights:
    return Flights()


def records(data: DataSet, *bounds: int) -> dict[str, list[tuple[bytes, bytes, int]]]:
    """Everything of the ranges between the bounds, by topic."""
    out: dict[str, list[tuple[bytes, bytes, int]]] = {}
    for start, stop in pairwise(bounds):
        for rows in data.rows(start, stop):
            out.setdefault(rows.topic, []).extend(zip(rows.keys, rows.values, rows.timestamps, strict=True))
    return out


def test_events_in_parts_are_the_events() -> None:
    data = Events(2 * BLOCK + 10, NOW_MS)
    whole = records(data, 0, data.size)
    assert whole == records(data, 0, 7, BLOCK - 1, BLOCK + 1, data.size)
    assert len(whole["events"]) == data.size
    assert records(Events(1000, NOW_MS), 0, 1000)["events"] == whole["events"][:1000]
    assert records(Events(1000, NOW_MS, seed=8), 0, 1000)["events"] != whole["events"][:1000]


def test_the_count_of_views_is_that_of_the_records() -> None:
    """Read back from the JSON, the slow way."""
    data = Events(BLOCK + 5_000, NOW_MS)
    made = records(data, 0, data.size)
    campaigns = {key: json.loads(value)["campaign_id"] for key, value, _ in made["ads"]}
    counted: Counter[str] = Counter()
    for key, value, time_ms in made["events"]:
        event = json.loads(value)
        assert (event["ad_id"].encode(), int(event["event_time"])) == (key, time_ms)
        if event["event_type"] == "view":
            counted[f"{campaigns[key]}@{time_ms // 10_000 * 10_000}"] += 1
    assert data.answer(data.size).last == counted
    assert 0.32 < sum(counted.values()) / data.size < 0.35


def test_the_year_has_its_published_numbers(flights: Flights) -> None:
    answer = flights.answer(flights.size)
    assert flights.size == 336_776
    assert len(answer.last) == 365 * len(AIRPORTS)
    assert sum(day["cancelled"] for day in answer.last.values()) == 8_255
    assert sum(day["flights"] for name, day in answer.last.items() if name.startswith("EWR")) == 120_835


def test_flights_in_parts_are_the_flights(flights: Flights) -> None:
    """Reports come no later than the departures that need them, and none comes twice."""
    whole = records(flights, 0, 30_000)
    parts = records(flights, 0, 1_000, 1_001, 29_000, 30_000)
    assert whole == parts
    assert max(t for _, _, t in parts["airport-weather"]) <= max(t for _, _, t in parts["departures"])


def test_weather_that_comes_first_reaches_beyond_the_last_departure_of_every_airport() -> None:
    data = Flights(20_000, weather_first=True)
    whole, parts = records(data, 0, data.size), records(data, 0, 2_000, 11_000, data.size)
    assert whole == parts
    last_ms = max(t for _, _, t in whole["departures"])
    later = [key for key, _, t in whole["airport-weather"] if t > last_ms]
    assert sorted(later) == sorted(airport.encode() for airport in AIRPORTS)
    until = [row for row in whole["airport-weather"] if row[2] <= last_ms]
    assert until == records(Flights(20_000), 0, 20_000)["airport-weather"]


@pytest.mark.parametrize("place", [0, 1], ids=["ysb", "flights"])
def test_the_topology_gives_the_counted_answer(place: int) -> None:
    """The whole topology, repartition included, in process."""
    pipeline = pipelines(12_000, NOW_MS)[place]
    stop = pipeline.parts()[0]
    with TopologyTestDriver(load_topology(pipeline.topology)) as driver:
        made = records(pipeline.data, 0, stop)
        driver.pipe_raw({topic: [Record(*row) for row in rows] for topic, rows in made.items()})
        found = read_answer([output(driver, pipeline)], pipeline.updates_of)
    checks = check_answer(pipeline.title, "in process", pipeline.data.answer(stop), found)
    assert [check.said for check in checks if not check.passed] == []
    assert found.records > 3_000


def output(driver: TopologyTestDriver, pipeline: Pipeline) -> Chunk:
    """What the driver's output topic holds, as bytes."""
    rows: list[Any] = driver.read_raw(pipeline.output)
    return Chunk(
        pipeline.output, 0, list(range(len(rows))), [r.key for r in rows], [r.value for r in rows], [0] * len(rows)
    )


def test_events_end_before_now_and_begin_with_a_window() -> None:
    """Records of the future would be refused, and windows cut in two would be harder to look at."""
    for count in (2_000, 123_456, 1_000_000):
        data = pipelines(count, NOW_MS)[0].data
        assert isinstance(data, Events)
        assert data.base_ms % 10_000 == 0
        ended_ms = data.base_ms + count // 10
        assert NOW_MS - 30_000 < ended_ms <= NOW_MS
