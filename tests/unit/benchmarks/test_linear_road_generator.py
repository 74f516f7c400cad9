"""Generated traffic: reproducible, in the order that was asked for, and within the schema."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from benchmarks.linear_road_generator import Traffic, former_tolls, lines, records
from penstock.topologies.examples.linear_road.model import INPUT, SEGMENTS


def test_the_same_parameters_give_the_same_traffic_and_another_seed_gives_other() -> None:
    assert lines(Traffic(cars=50)) == lines(Traffic(cars=50)) != lines(Traffic(cars=50, seed=2))
    assert former_tolls(Traffic(cars=50)) == former_tolls(Traffic(cars=50)) != former_tolls(Traffic(cars=50, seed=2))


def test_lines_are_in_order_of_time_or_as_late_as_they_may_be() -> None:
    times = [row[1] for row in lines(Traffic(cars=80))]
    assert times == sorted(times)
    shaken = [row[1] for row in lines(Traffic(cars=80, out_of_order_s=5))]
    latest = 0
    behind = set()
    for time in shaken:
        latest = max(latest, time)
        behind.add(latest - time)
    assert behind == set(range(6))


def test_reports_of_a_car_are_in_order_and_thirty_seconds_apart_within_a_trip() -> None:
    trips: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for row in lines(Traffic(cars=80, out_of_order_s=29)):
        if row[0] == 0:
            trips[row[2]].append(row)
    for trip in trips.values():
        assert all(b[1] - a[1] == 30 or (b[5] == 0 and b[1] - a[1] >= 60) for a, b in pairwise(trip))
        assert all(0 <= row[7] < SEGMENTS and row[8] // 5280 == row[7] for row in trip)


def test_records_are_lines_of_the_schema_under_their_car() -> None:
    for record in records(Traffic(cars=20)):
        assert record.value is not None
        row = INPUT.deserialize(record.value)
        assert record.key == str(row["vid"]).encode()
        assert record.timestamp_ms == row["time"] * 1000


def test_traffic_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="out_of_order_s below 30"):
        Traffic(out_of_order_s=30)
