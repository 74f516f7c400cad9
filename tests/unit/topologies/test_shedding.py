"""Shedding: the sample that is kept, what it says of itself, and estimates from it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import penstock as ps
from penstock.state.errors import TopologyError
from penstock.streams.task.task import TaskOptions
from penstock.topologies import estimates
from penstock.topologies.operators.records.load_shedding import rate_of

NOW_MS = 10_000_000


def topology() -> ps.Topology:
    """Sheds above five seconds, then estimates."""
    builder = ps.StreamsBuilder("shed", value=int)
    kept = builder.stream("in").shed("5s", settle=100, name="shed")
    kept.to("kept")
    kept.estimate(
        number=float, distinct=lambda v: v % 50, quantiles=(0.5, 0.9), name="estimates", emission="every_update"
    ).to("out")
    return builder.build()


def driven(lag_ms: int, rounds: int, size: int = 10_000, restart: bool = False) -> tuple[Any, Any, Any]:
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
        return driver.read("kept"), driver.read("out")[-1].value, driver.dropped_records["shed.shed"]


def test_nothing_is_shed_in_time() -> None:
    """And estimates are exact, without width."""
    kept, last, dropped = driven(1_000, 5)
    assert (len(kept), dropped) == (1_000, 0)
    assert all(r.headers == () for r in kept)
    exact = {"value": 1_000.0, "low": 1_000.0, "high": 1_000.0}
    assert last["count"] == exact
    assert last["sum"] == {k: float(sum(range(1_000))) for k in exact}
    assert last["mean"] == dict.fromkeys(exact, 499.5)
    assert last["distinct"] == dict.fromkeys(exact, 50.0)
    assert last["quantiles"] == {"0.5": dict.fromkeys(exact, 499.0), "0.9": dict.fromkeys(exact, 899.0)}


def test_behind_the_bound_the_rate_is_halved_until_it_catches_up() -> None:
    """What is dropped is counted, what is kept says its rate."""
    kept, _, dropped = driven(6_000, 4)
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


def test_intervals_hold_the_truth() -> None:
    """In about 95 % of many streams; each with its own sample."""
    held = Counter[str]()
    runs = 40
    for run in range(runs):
        builder = ps.StreamsBuilder("shed", value=float)
        kept = builder.stream(f"in-{run}").shed("5s", settle=100)
        kept.estimate(number=float, quantiles=(0.5,), emission="per_commit").to("out")
        options = TaskOptions(wall_resolution_ms=1)
        with ps.TopologyTestDriver(builder.build(), options=options, auto_commit=False) as driver:
            driver.advance_wall_time(NOW_MS)
            driver.advance_wall_time(200)
            values = [float((i * 7919 + run * 31) % 1_000) for i in range(1_000)]
            driver.pipe_all(f"in-{run}", [ps.Record("k", v, NOW_MS - 8_000) for v in values])
            driver.commit()
            (row,) = driver.read("out")
        truth = {
            "count": 1_000.0,
            "sum": sum(values),
            "mean": sum(values) / 1_000,
            "median": sorted(values)[499],
        }
        told = {**row.value, "median": row.value["quantiles"]["0.5"]}
        for name, value in truth.items():
            held[name] += told[name]["low"] <= value <= told[name]["high"]
    assert all(0.85 * runs <= n for n in held.values()), held
    assert all(n <= runs for n in held.values())
    assert min(held.values()) < runs  # intervals that always hold would say nothing


def quantiles_of(values: list[float], build: Any = lambda stream: stream, size: int = 10_000) -> dict[str, Any]:
    """The median and the tenths at either end of values of one key at one time, of which none was shed."""
    builder = ps.StreamsBuilder("shed", value=float)
    stream = build(builder.stream("in"))
    stream.estimate(number=float, quantiles=(0.1, 0.5, 0.9), emission="per_commit").to("out")
    options = TaskOptions(batch_max_records=size)
    with ps.TopologyTestDriver(builder.build(), options=options, auto_commit=False) as driver:
        driver.pipe_all("in", [ps.Record("k", v, 0) for v in values])
        driver.commit()
        found: dict[str, Any] = driver.read("out")[-1].value["quantiles"]
    return found


@pytest.mark.parametrize("size", [3_000, 8_000])
def test_quantiles_of_many_values_weigh_early_and_late_ones_alike(size: int) -> None:
    """However often the sample was cut."""
    for q, found in quantiles_of([float(i) for i in range(size)]).items():
        assert abs(found["value"] - float(q) * size) < 0.06 * size
        assert found["low"] < found["value"] < found["high"]


def test_equal_records_are_sampled_one_by_one() -> None:
    """Each by its place in the log, and among those that one record became."""
    parts = {0.0: 0.3, 1.0: 0.4, 2.0: 0.3}
    values = [v for v, share in parts.items() for _ in range(round(4_000 * share))]
    expected = {"0.1": 0.0, "0.5": 1.0, "0.9": 2.0}
    assert {q: found["value"] for q, found in quantiles_of(values).items()} == expected
    whole = quantiles_of([0.0], lambda stream: stream.flat_map_values(lambda _: values))
    assert {q: found["value"] for q, found in whole.items()} == expected


def test_the_sample_of_a_merged_stream_is_the_same_at_any_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is merged with itself."""
    monkeypatch.setattr(estimates, "KEPT_VALUES", 50)
    values = [float(i % 70) for i in range(300)]
    build = lambda stream: stream.merge(stream.filter_values(lambda v: v > 10))  # noqa: E731  # the topology at hand
    assert quantiles_of(values, build, size=1) == quantiles_of(values, build, size=70)


def test_wrong_settings_are_refused() -> None:
    """At build time."""
    stream = ps.StreamsBuilder(value=int).stream("in")
    with pytest.raises(TopologyError, match="at least 1 ms"):
        stream.shed(0)
    with pytest.raises(TopologyError, match="quantiles of what"):
        stream.estimate(quantiles=(0.5,))
    with pytest.raises(TopologyError, match="between 0 and 1"):
        stream.estimate(number=float, quantiles=(50,))
