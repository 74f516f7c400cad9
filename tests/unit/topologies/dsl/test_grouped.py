"""Aggregations of the DSL end to end: ready aggregates, late records, processing time, failures, cogroups."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record, Windowed
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import windows as w
from penstock.topologies.aggregators import count, max_, mean, sum_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness, punctuated

SKIPPING = TaskOptions(policies=Policies(processing="skip"))


def rows(driver: TopologyTestDriver, topic: str = "out") -> list[tuple[Any, ...]]:
    """Keys (windows flat), values and timestamps of what was written since the last call."""
    return [
        (*(r.key if isinstance(r.key, Windowed) else (r.key,)), r.value, r.timestamp_ms) for r in driver.read(topic)
    ]


def test_ready_aggregates_emit_results_and_keep_accumulators() -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key()
    grouped.aggregate(mean(), name="mean").to("mean")
    grouped.agg(total=sum_(), n=count(), most=max_(), name="all").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", 2, 5), Record("a", 4, 3)])
        assert rows(driver, "mean") == [("a", 2.0, 5), ("a", 3.0, 5)]
        assert rows(driver)[-1] == ("a", {"total": 6, "n": 2, "most": 4}, 5)
        assert driver.store("mean").get("a") == (2, 6)


def test_a_joined_table_of_a_ready_aggregate_shows_results() -> None:
    builder = StreamsBuilder("t", value=int)
    means = builder.stream("in").group_by_key().aggregate(mean())
    builder.stream("asks").join(means, lambda ask, row: row, value=float).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", 1), Record("a", 2)])
        driver.pipe("asks", "a", 0)
        assert rows(driver) == [("a", 1.5, 0)]


def test_late_records_go_to_a_side_output_as_they_were() -> None:
    builder = StreamsBuilder("t", value=str)
    table = builder.stream("in").group_by_key().windowed_by(w.hopping(10, 5, grace=2)).count(late=True)
    table.to("out")
    table.late.map_values(str.upper).to("late")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", "x", 20, (("h", b"1"),)), Record("b", "y", 8), Record("b", "z", 7)])
        assert rows(driver) == [("a", 15, 25, 1, 20), ("a", 20, 30, 1, 20)]
        assert [tuple(r) for r in driver.read("late")] == [("b", "Y", 8, ()), ("b", "Z", 7, ())]
        assert driver.dropped_records == {"in-count.late": 2}
        # in time for the second of its windows only
        driver.pipe("in", "b", "w", 14)
        assert rows(driver) == [("b", 10, 20, 1, 14)]


def test_late_records_must_be_asked_for() -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key()
    windowed: Any = grouped.windowed_by(w.tumbling(5, grace=0)).count(name="n")
    with pytest.raises(TopologyError, match="only counts its late records; request them with late=True"):
        _ = windowed.late
    with pytest.raises(TopologyError, match="without windows nothing is late"):
        grouped.count(late=True)


def test_what_never_closes_cannot_be_emitted_on_close() -> None:
    grouped = StreamsBuilder("t", value=int).stream("in").group_by_key()
    with pytest.raises(TopologyError, match="waits for a window to close"):
        grouped.count(emission="on_close")
    for windows in (w.unlimited(), w.global_window()):
        with pytest.raises(TopologyError, match="never closes"):
            grouped.windowed_by(windows).count(emission="on_close")


def test_windows_in_processing_time_close_by_the_clock_alone() -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key().windowed_by(w.tumbling("10s", time="processing"))
    grouped.reduce(lambda a, b: a + b, emission="on_close").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.advance_wall_time(12_000)
        driver.pipe_all("in", [Record("a", 1, 99_000), Record("b", 5, 0)])
        driver.advance_wall_time(3_000)
        driver.pipe("in", "a", 2, 7)
        assert rows(driver) == []
        driver.restart(restore=True)
        driver.advance_wall_time(4_999)
        assert rows(driver) == []
        driver.advance_wall_time(1)
        assert rows(driver) == [("a", 10_000, 20_000, 3, 15_000), ("b", 10_000, 20_000, 5, 12_000)]


def test_the_watermark_closes_windows_where_there_is_a_strategy() -> None:
    builder = StreamsBuilder("t", value=int)
    stream = builder.stream("in", watermark=bounded_out_of_orderness(5)).filter(lambda key, value: value > 0)
    stream.group_by_key().windowed_by(w.tumbling(10, grace=0)).count(emission="on_close").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", 1, 3), Record("a", 1, 14), Record("a", 1, 9)])
        assert rows(driver) == []
        driver.pipe("in", "b", 0, 15)  # filtered, yet it moves the watermark to 9
        assert rows(driver) == [("a", 0, 10, 2, 9)]


def test_late_records_of_a_join_can_be_had() -> None:
    builder = StreamsBuilder("t", value=str)
    left, right = (builder.stream(topic, watermark=bounded_out_of_orderness(0)) for topic in ("left", "right"))
    joined = left.join(right, lambda a, b: a + b, within=10, grace=0, value=str)
    joined.to("out")
    left.late_of(joined).to("late")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("left", "a", "l", 20)
        driver.pipe("right", "a", "r", 20)
        assert rows(driver) == [("a", "lr", 20)]
        driver.pipe_all("left", [Record("a", "old", 5)])
        driver.pipe_all("right", [Record("a", "older", 4)])
        assert rows(driver) == []
        assert rows(driver, "late") == [("a", "old", 5), ("a", "older", 4)]


@pytest.mark.parametrize(
    "windows",
    [
        w.tumbling(10, grace=0),
        w.hopping(10, 10, grace=0),
        w.calendar("year", grace="1h"),
        w.custom(lambda key, value, ts: [(0, 10)], max_size=10, grace=0),
    ],
    ids=lambda x: x.describe(),
)
def test_the_end_of_time_closes_every_window(windows: w.Windows) -> None:
    builder = StreamsBuilder("t", value=int)
    stream = builder.stream("in", watermark=punctuated(lambda r: w.END_OF_TIME_MS if r.value == 0 else None))
    table = stream.group_by_key().windowed_by(windows).count(emission="on_close", late=True)
    table.to("out")
    table.late.to("late")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("a", 1, 3), Record("a", 1, 4), Record("a", 0, 5)])
        assert [row[-2:] for row in rows(driver)] == [(3, 5)]
        driver.restart(restore=True)
        driver.pipe("in", "a", 1, 9)
        assert [r.key for r in driver.read("late")] == ["a"]


def test_a_topic_that_falls_silent_holds_windows_back_until_it_counts_as_idle() -> None:
    builder = StreamsBuilder("t", value=int)
    strategy = bounded_out_of_orderness(0, idle="30s")
    first, second = (builder.stream(topic, watermark=strategy) for topic in ("first", "second"))
    grouped = first.merge(second).group_by_key().windowed_by(w.hopping(10, 5, grace=0))
    grouped.reduce(lambda a, b: a + b, inverse=lambda a, b: a - b, emission="on_close").to("out")
    with TopologyTestDriver(builder) as driver:
        driver.advance_wall_time(1_000)
        driver.pipe("second", "b", 1, 2)
        driver.pipe_all("first", [Record("a", 1, 3), Record("a", 2, 8), Record("a", 4, 99)])
        assert rows(driver) == []
        for _ in range(8):
            driver.advance_wall_time(10_000)
            driver.pipe("first", "a", 0, 99)
        assert rows(driver) == [("a", 0, 10, 3, 8), ("b", 0, 10, 1, 2), ("a", 5, 15, 2, 8)]


def test_a_record_whose_function_fails_is_in_none_of_its_windows() -> None:
    def adder(key: str, value: int, total: int) -> int:
        if total == 1 and value == 7:
            raise ValueError("seven after one")
        return total + value

    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key().windowed_by(w.hopping(10, 5, grace=50))
    grouped.aggregate(int, adder, value=int).to("out")
    with TopologyTestDriver(builder, options=SKIPPING) as driver:
        driver.pipe_all("in", [Record("a", 1, 12), Record("a", 7, 8), Record("a", 7, 18)])
        assert rows(driver) == [("a", 5, 15, 1, 12), ("a", 10, 20, 1, 12)]
        driver.pipe("in", "a", 2, 8)
        assert rows(driver) == [("a", 0, 10, 2, 8), ("a", 5, 15, 3, 12)]


def test_results_that_fail_are_skipped_and_functions_at_closing_stop_the_task() -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key()
    broken = sum_()
    object.__setattr__(broken, "result", lambda acc: 10 // (acc[1] - 3))
    grouped.aggregate(broken, value=int).to("out")
    with TopologyTestDriver(builder, options=SKIPPING) as driver:
        driver.pipe_all("in", [Record("a", 1), Record("a", 2), Record("a", 5)])
        assert rows(driver) == [("a", -5, 0), ("a", 2, 0)]

    builder = StreamsBuilder("t", value=int)
    hops = builder.stream("in").group_by_key().windowed_by(w.hopping(10, 5, grace=0))

    def merge(a: int, b: int) -> int:
        raise ValueError("cannot merge")

    hops.reduce(lambda a, b: a + b, merge=merge, emission="on_close", name="sums").to("out")
    driver = TopologyTestDriver(builder, options=SKIPPING)
    with pytest.raises(Exception, match="operator sums: ValueError: cannot merge"):
        driver.pipe_all("in", [Record("a", 1, 1), Record("a", 2, 6), Record("a", 3, 99)])
    driver.release()


def test_cogrouped_streams_meet_their_aggregate_in_task_order() -> None:
    builder = StreamsBuilder("t", value=int)
    ints = builder.stream("ints").group_by_key()
    texts = builder.stream("texts", value=str).group_by_key()
    both = ints.cogroup(lambda key, value, acc: f"{acc}+{value}").cogroup(texts, lambda key, value, acc: acc + value)
    both.aggregate(str, value=str).to("all")
    both.windowed_by(w.tumbling(10, grace=0)).aggregate(str, value=str, emission="on_close").to("out")
    for size in (1, 1000):
        options = TaskOptions(batch_max_records=size)
        with TopologyTestDriver(builder, options=options, arrival_order=True) as driver:
            some = [("ints", Record("a", 1, 1)), ("texts", Record("a", "x", 2)), ("ints", Record("a", 2, 3))]
            driver.pipe_sequence([*some, ("texts", Record("b", "y", 10))])
            assert rows(driver, "all") == [
                ("a", "+1", 1),
                ("a", "+1x", 2),
                ("a", "+1x+2", 3),
                ("b", "y", 10),
            ]
            assert rows(driver) == [("a", 0, 10, "+1x+2", 3)]


def test_cogroups_that_cannot_be_are_refused() -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in").group_by_key()
    other = builder.stream("by-int", key=int).group_by_key()
    cogrouped = grouped.cogroup(lambda key, value, acc: acc)
    with pytest.raises(TopologyError, match="serdes string and int"):
        cogrouped.cogroup(other, lambda key, value, acc: acc)
    with pytest.raises(TopologyError, match="cogroup first"):
        grouped.windowed_by(w.tumbling(5, grace=0)).cogroup(lambda key, value, acc: acc)
    with pytest.raises(TopologyError, match="cogroup all streams first"):
        cogrouped.windowed_by(w.tumbling(5, grace=0)).cogroup(grouped, lambda key, value, acc: acc)
    with pytest.raises(TopologyError, match="name it: aggregate"):
        cogrouped.aggregate(int)
    texts = builder.stream("texts", value=str).group_by_key()
    mixed = cogrouped.cogroup(texts, lambda key, value, acc: acc).windowed_by(w.tumbling(5, grace=0))
    with pytest.raises(TopologyError, match="values of one serde"):
        mixed.aggregate(int, value=int, late=True)
    no_group: Any = builder.stream("ungrouped")
    with pytest.raises(TopologyError, match="it takes grouped streams"):
        cogrouped.cogroup(no_group, lambda key, value, acc: acc)
    with pytest.raises(TopologyError, match="their aggregates must merge too"):
        merging = w.custom(lambda k, v, ts: [(ts, ts + 5)], max_size=50, grace=0, merge=w.merge_overlapping)
        grouped.windowed_by(merging).aggregate(int, lambda key, value, acc: acc, value=int)


def test_windowed_keys_of_every_kind_come_back_from_their_topic() -> None:
    every: list[w.Windows] = [
        w.tumbling(7, grace=0, offset=3),
        w.hopping(10, 5, grace=0),
        w.hopping(10, 5, grace=0, before_epoch=True),
        w.calendar("month", "Europe/Berlin", grace=0),
        w.unlimited(1),
        w.global_window(),
        w.custom(lambda key, value, ts: [(ts, ts + 3 + value)], max_size=50, grace=0),
    ]
    expected = [
        [(-4, 3)],
        [(0, 10)],
        [(-5, 5), (0, 10)],
        [(-3_600_000, 2_674_800_000)],
        [(1, w.END_OF_TIME_MS)],
        [(0, w.END_OF_TIME_MS)],
        [(2, 6)],
    ]
    for windows, bounds in zip(every, expected, strict=True):
        builder = StreamsBuilder("t", value=int)
        builder.stream("in").group_by_key().windowed_by(windows).count().to("out")
        with TopologyTestDriver(builder) as driver:
            driver.pipe("in", "a", 1, 2)
            assert rows(driver) == [("a", *pair, 1, 2) for pair in bounds], windows
