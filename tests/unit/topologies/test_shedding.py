"""Shedding: the sample that is kept, and what it says of itself."""

from __future__ import annotations

from collections import Counter

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.operators.records.load_shedding import rate_of

NOW_MS = 10_000_000


def topology() -> ps.Topology:
    """Sheds above five seconds."""
    builder = ps.StreamsBuilder("shed", value=int)
    kept = builder.stream("in").shed("5s", settle=100, name="shed")
    kept.to("kept")
    return builder.build()


def driven(lag_ms: int, rounds: int, size: int = 10_000, restart: bool = False) -> tuple[list[ps.Record], int]:
    """Rounds of 200 records that lag behind the clock, 200 ms apart."""
    options = TaskOptions(batch_max_records=size, wall_resolution_ms=1)
    with ps.TopologyTestDriver(topology(), options=options) as driver:
        driver.advance_wall_time(NOW_MS)
        for step in range(rounds):
            driver.advance_wall_time(200)
            at = driver.wall_ms - lag_ms
            driver.pipe_all("in", [ps.Record("k", step * 200 + i, at) for i in range(200)])
            if restart and step == rounds // 2:
                driver.restart()
        return driver.read("kept"), driver.dropped_records["shed.shed"]


def test_nothing_is_shed_in_time() -> None:
    kept, dropped = driven(1_000, 5)
    assert (len(kept), dropped) == (1_000, 0)
    assert all(r.headers == () for r in kept)


def test_behind_the_bound_the_rate_is_halved_until_it_catches_up() -> None:
    """What is dropped is counted, what is kept says its rate."""
    kept, dropped = driven(6_000, 4)
    rates = Counter(rate_of(r.headers) for r in kept)
    assert set(rates) == {0.5, 0.25, 0.125, 0.0625}
    assert len(kept) + dropped == 800
    for rate, count in rates.items():
        assert abs(count - 200 * rate) < 4 * (200 * rate) ** 0.5


def test_the_same_sample_whatever_the_batch_and_the_restart() -> None:
    """It follows from the log and the journaled clock."""
    expected = driven(6_000, 6)
    assert driven(6_000, 6, size=1) == expected
    assert driven(6_000, 6, size=7, restart=True)[0] == expected[0]


def test_a_lower_rate_keeps_part_of_what_a_higher_one_keeps() -> None:
    """The choice is by a hash of the record's place alone."""
    first = {r.value for r in driven(6_000, 1)[0]}
    with ps.TopologyTestDriver(topology(), options=TaskOptions(wall_resolution_ms=1)) as driver:
        driver.advance_wall_time(NOW_MS)
        for _ in range(3):  # three halvings, by records of another partition's place: none of these is among the first
            driver.advance_wall_time(200)
            driver.pipe("in", "k", -1, driver.wall_ms - 6_000)
        lower = {r.value for r in driver.read("kept")}
    assert lower <= {-1}
    assert 60 < len(first) < 140


def test_counts_are_scaled_by_the_rates() -> None:
    """The recipe of LANGUAGE.md: each record stands for one divided by its rate."""
    builder = ps.StreamsBuilder("shed", value=int)
    kept = builder.stream("in").shed("5s", settle=100, name="shed")
    weights = kept.map_records(lambda record: record._replace(value=1 / ps.rate_of(record.headers)), value=float)
    weights.group_by_key().reduce(lambda a, b: a + b).to_stream().to("out")
    with ps.TopologyTestDriver(builder.build(), options=TaskOptions(wall_resolution_ms=1)) as driver:
        driver.advance_wall_time(NOW_MS)
        for _ in range(2):  # at a half and at a quarter
            driver.advance_wall_time(200)
            driver.pipe_all("in", [ps.Record("k", i, driver.wall_ms - 6_000) for i in range(1_000)])
        total = driver.read("out")[-1].value
    assert 1_700 < total < 2_300


def test_wrong_settings_are_refused() -> None:
    """At build time."""
    stream = ps.StreamsBuilder(value=int).stream("in")
    with pytest.raises(TopologyError, match="at least 1 ms"):
        stream.shed(0)
