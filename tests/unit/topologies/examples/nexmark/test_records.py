"""Queries of Nexmark that look at one bid at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.nexmark_generator import events
from benchmarks.nexmark_generator import records as records_of
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark import records
from penstock.topologies.examples.nexmark.model import NexmarkEvent
from penstock.topologies.graph.topology import Topology
from tests.unit.topologies.examples.nexmark import oracle
from tests.unit.topologies.examples.nexmark.running import (
    EVENTS,
    Way,
    bag,
    check_bag,
    expected_table,
    in_every_way,
    run,
    table,
)

QUERIES = [
    (records.q0, oracle.bag_q0),
    (records.q1, oracle.bag_q1),
    (records.q2, oracle.bag_q2),
    (records.q10, oracle.bag_q10),
    (records.q14, oracle.bag_q14),
    (records.q21, oracle.bag_q21),
    (records.q22, oracle.bag_q22),
]


@in_every_way
@pytest.mark.parametrize(("query", "meaning"), QUERIES, ids=[q.__name__ for q, _ in QUERIES])
def test_rows_are_those_of_the_oracle(
    query: Callable[[], Topology], meaning: Callable[[list[NexmarkEvent]], list[Any]], way: Way
) -> None:
    check_bag(query, meaning, way)


@in_every_way
def test_q10_names_the_folder_of_a_bid_and_says_when_it_is_complete(way: Way) -> None:
    bids, complete = run(records.q10(), way, "q10", "q10-success")
    expected = oracle.folders_q10(EVENTS)
    assert len(expected) == 2
    assert table(complete) == expected_table(expected)
    assert len(complete) == len(expected)
    folders = [r.key for r in bids]
    assert {folder: folders.count(folder) for folder in expected} == expected


@pytest.mark.parametrize("hour", range(24))
def test_q14_names_every_hour(hour: int) -> None:
    stream = {"base_time_ms": hour * 3_600_000 + 60_000, "event_rate": 25}
    with TopologyTestDriver(records.q14()) as driver:
        driver.pipe_raw({"nexmark": list(records_of(100, **stream))})
        assert bag([r.value for r in driver.read("q14")]) == bag(oracle.bag_q14(list(events(100, **stream))))


def test_q21_drops_bids_that_no_channel_is_known_of() -> None:
    known = oracle.bag_q21(EVENTS)
    assert 0.8 < len(known) / len(oracle.bids_of(EVENTS)) < 1
