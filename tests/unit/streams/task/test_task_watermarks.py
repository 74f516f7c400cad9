"""Event time of a task: strategies, the minimum over sources, idleness by journaled readings, restarts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.errors import ProcessingError, StateCorruptedError
from penstock.state.log import Record, TaskId
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.commit_metadata import LIMIT_CHARS, CommitMetadata, encode
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.feed import Run, in_turns
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_watermarks import HEADER, TaskWatermarks, WatermarkMark, mark_of, with_marks
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.operator import NO_TIME
from penstock.topologies.operator_api.watermark_strategies import (
    END_OF_TIME_MS,
    Carried,
    Looped,
    bounded_out_of_orderness,
    punctuated,
)
from penstock.topologies.operators.records.source_sink import SourceSpec


def chunk(topic: str, times: Sequence[int], marks: Sequence[Any] | None = None) -> Chunk:
    n = len(times)
    made = Chunk(topic, 0, list(range(n)), [None] * n, [None] * n, list(times))
    made.marks = None if marks is None else list(marks)
    return made


def clocks(saved: dict[str, Any] | None = None, **strategies: Any) -> TaskWatermarks:
    sources = {t: SourceSpec(topic=t, watermark=s) for t, s in strategies.items()}
    return TaskWatermarks(sources, saved or {})


def run(marks: TaskWatermarks, topic: str, times: Sequence[int], stated: Sequence[Any] | None = None) -> list[int]:
    c = chunk(topic, times, stated)
    return marks.after(topic, c, 0, len(c)).tolist()


def random_mark(rng: random.Random) -> WatermarkMark:
    return WatermarkMark(rng.randrange(2), 2, rng.randrange(100), rng.random() < 0.2, rng.random() < 0.1)


def test_merged_runs_give_the_marks_of_their_records_in_turn() -> None:
    rng = random.Random(8)
    for _ in range(300):
        strategies = {
            t: rng.choice(
                (None, bounded_out_of_orderness(rng.choice((0, 7)), idle=50), punctuated(lambda r: None), Carried())
            )
            for t in ("a", "b", "c")
        }
        merged, in_turn = clocks(**strategies), clocks(**strategies)
        now_ms = 0
        for _ in range(4):
            owners = [rng.randrange(3) for _ in range(rng.randint(1, 30))]
            runs = []
            for number, topic in enumerate("abc"):
                count = owners.count(number)
                if count:
                    times = [rng.randrange(100) for _ in range(count)]
                    carried = isinstance(strategies[topic], Carried)
                    said = (random_mark(rng) if carried else rng.randrange(100) for _ in times)
                    made = chunk(topic, times, [rng.choice((None, None, mark)) for mark in said])
                    runs.append(Run(number, made, 0, count, np.flatnonzero(np.array(owners) == number)))
            found = merged.after_all(runs).tolist()
            expected = in_turn.after_all(list(in_turns(runs))).tolist()
            assert found == expected
            assert merged.idle_by_place == in_turn.idle_by_place
            assert merged.said_by == in_turn.said_by
            assert merged.saved() == in_turn.saved()
            now_ms += rng.choice((10, 60))
            assert merged.read_clock(now_ms) == in_turn.read_clock(now_ms)


# -- strategies ----------------------------------------------------------------------------------------------------


def test_bounded_follows_the_highest_timestamp_less_the_delay_and_one() -> None:
    marks = clocks(a=bounded_out_of_orderness(5))
    assert run(marks, "a", [3, 10, 7, 20]) == [NO_TIME, 4, 4, 14]
    assert run(marks, "a", [1]) == [14]


def test_punctuated_follows_what_records_say_and_never_goes_back() -> None:
    marks = clocks(a=punctuated(lambda r: None))
    assert run(marks, "a", [0, 0, 0, 0], [None, 7, 3, END_OF_TIME_MS]) == [NO_TIME, 7, 7, END_OF_TIME_MS]


def test_the_lowest_source_counts_and_those_without_a_strategy_do_not() -> None:
    marks = clocks(a=bounded_out_of_orderness(0), b=bounded_out_of_orderness(0), c=None)
    assert run(marks, "a", [100]) == [NO_TIME]
    assert run(marks, "b", [10, 50]) == [9, 49]
    assert run(marks, "c", [1, 2]) == [49, 49]
    assert run(marks, "b", [500]) == [99]
    assert marks.strategies and not clocks(c=None).strategies


def test_a_source_without_records_between_two_readings_is_idle_until_it_has_one() -> None:
    marks = clocks(a=bounded_out_of_orderness(0, idle=100), b=bounded_out_of_orderness(0, idle=100))
    run(marks, "a", [10])
    marks.read_clock(1_000)
    run(marks, "b", [70])
    marks.read_clock(1_050)
    assert marks.watermark_ms == 9
    run(marks, "b", [80])
    marks.read_clock(1_100)  # 100 ms after the reading at which a was last seen
    assert (marks.watermark_ms, marks.idle) == (79, False)
    assert run(marks, "a", [20]) == [79]  # late, and time does not go back
    assert run(marks, "b", [90]) == [79]
    assert run(marks, "a", [85]) == [84]


def test_when_all_are_idle_the_furthest_counts() -> None:
    marks = clocks(a=bounded_out_of_orderness(0, idle=100), b=bounded_out_of_orderness(0, idle=100))
    run(marks, "a", [10])
    run(marks, "b", [70])
    for now in (1_000, 1_100):
        marks.read_clock(now)
    assert (marks.watermark_ms, marks.idle, marks.idle_interval_ms()) == (69, True, None)


def test_a_source_without_idleness_holds_time_back_for_ever() -> None:
    marks = clocks(a=bounded_out_of_orderness(0), b=bounded_out_of_orderness(0, idle=100))
    run(marks, "b", [70])
    for now in (1_000, 2_000, 3_000):
        marks.read_clock(now)
    assert marks.watermark_ms == NO_TIME


# -- what travels --------------------------------------------------------------------------------------------------


def test_a_mark_comes_back_from_its_header() -> None:
    mark = WatermarkMark(3, 8, END_OF_TIME_MS, True)
    assert mark_of((("other", b"x"), *mark.headers)) == mark
    assert mark_of((("other", b"x"),)) is None


@pytest.mark.parametrize("value", [None, b"", b"12"])
def test_a_header_that_is_no_mark_is_refused(value: bytes | None) -> None:
    with pytest.raises(StateCorruptedError, match=HEADER):
        mark_of(((HEADER, value),))


def test_carried_is_the_lowest_of_all_writers_once_all_were_heard() -> None:
    marks = clocks(a=Carried())
    stated = [
        WatermarkMark(0, 2, 50, False),
        None,
        WatermarkMark(1, 2, 20, False),
        WatermarkMark(1, 2, 60, False),
        WatermarkMark(0, 2, 70, False),
    ]
    assert run(marks, "a", [0] * 5, stated) == [NO_TIME, NO_TIME, 20, 50, 60]


def test_idle_writers_hold_nothing_back_at_the_very_place_where_they_say_so() -> None:
    marks = clocks(a=Carried())
    stated = [
        WatermarkMark(0, 2, 50, False),
        WatermarkMark(1, 2, 20, False),
        WatermarkMark(1, 2, 20, True),
        WatermarkMark(0, 2, 55, True),
        None,
    ]
    assert run(marks, "a", [0] * 5, stated) == [NO_TIME, 20, 50, 55, 55]
    assert marks.idle_by_place == [False, False, False, True, True]


def test_a_new_writer_is_waited_for() -> None:
    marks = clocks(a=Carried())
    assert run(
        marks,
        "a",
        [0] * 3,
        [WatermarkMark(0, 1, 10, False), WatermarkMark(0, 2, 90, False), WatermarkMark(1, 2, 30, False)],
    ) == [
        10,
        10,
        30,
    ]


def test_a_mark_that_says_nothing_of_time_changes_nothing() -> None:
    marks = clocks(a=Carried())
    assert run(marks, "a", [0] * 2, [WatermarkMark(0, 1, 10, False), WatermarkMark(0, 1, NO_TIME, False, True)]) == [
        10,
        10,
    ]


@pytest.mark.parametrize("cut", range(1, 6))
def test_where_runs_are_cut_and_restarts_change_nothing(cut: int) -> None:
    stated = [
        WatermarkMark(0, 2, 50, False),
        WatermarkMark(1, 2, 20, True),
        None,
        WatermarkMark(0, 2, 50, True),
        None,
        WatermarkMark(1, 2, 60, False),
    ]
    strategies: dict[str, Any] = {"a": Carried(), "b": bounded_out_of_orderness(0, idle=10)}
    whole = clocks(**strategies)
    run(whole, "b", [33])
    expected = run(whole, "a", [0] * 6, stated)
    assert expected == [NO_TIME, 32, 32, 32, 32, 32]
    cut_up = clocks(**strategies)
    run(cut_up, "b", [33])
    first = run(cut_up, "a", [0] * cut, stated[:cut])
    again = clocks(cut_up.saved(), **strategies)
    assert first + run(again, "a", [0] * (6 - cut), stated[cut:]) == expected
    assert again.saved() == whole.saved()
    assert run(again, "b", [99]) == run(whole, "b", [99]) == [60]


# -- what user functions do wrong, and the clamp -------------------------------------------------------------------


def test_a_refused_record_moves_no_watermark() -> None:
    source = SourceSpec(topic="a", watermark=punctuated(lambda r: 10**15))
    made, wrong = with_marks(chunk("a", [1, 2]), source, {1: "too far ahead"})
    assert (made.marks, wrong) == ([10**15, None], {})


def _counted(policies: Policies, watermark: Any) -> TopologyTestDriver:
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in", watermark=watermark).to("out")
    return TopologyTestDriver(builder.build(), options=TaskOptions(policies=policies))


@pytest.mark.parametrize("policy", ["clamp", "skip"])
def test_a_record_from_the_far_future_does_not_move_event_time(policy: Any) -> None:
    policies = Policies(timestamp=policy, future_timestamp_max_ms=1_000)
    with _counted(policies, bounded_out_of_orderness(0)) as driver:
        driver.pipe_all("in", [Record("k", 1, 100), Record("k", 2, 10**12), Record("k", 3, 200)])
        assert driver.tasks[TaskId(0, 0)].watermark_ms == 199
        assert [r.timestamp_ms for r in driver.read("out")] == ([100, 100, 200] if policy == "clamp" else [100, 200])


@pytest.mark.parametrize("fn", [lambda r: 1 // r.value, lambda r: "soon" if r.value == 0 else None])
def test_a_watermark_function_that_fails_meets_the_policy_of_timestamps(fn: Any) -> None:
    rows = [Record("k", 1, 5), Record("k", 0, 6), Record("k", 2, 7)]
    with _counted(Policies(timestamp="skip"), punctuated(fn)) as driver:
        driver.pipe_all("in", rows)
        assert [r.value for r in driver.read("out")] == [1, 2]
    driver = _counted(Policies(), punctuated(fn))
    with pytest.raises(ProcessingError, match="watermark function"):
        driver.pipe_all("in", rows)
    driver.release()


def test_without_a_strategy_stream_time_is_one_ahead_of_the_watermark() -> None:
    with _counted(Policies(), None) as driver:
        driver.pipe("in", "k", 1, 40)
        driver.pipe("in", "k", 1, 30)
        assert driver.tasks[TaskId(0, 0)].watermark_ms == 39


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 1 << 40), st.booleans()), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1 << 40), st.integers(0, 2)), max_size=12),
)
def test_what_was_heard_is_the_same_after_a_restart(
    marks: list[tuple[int, int, bool]], rounds: list[tuple[int, int, int]]
) -> None:
    """Of writers behind a repartition, and of those of a loop."""
    sources = {
        "carried": SourceSpec(topic="carried", internal=True, watermark=Carried()),
        "looped": SourceSpec(topic="looped", internal=True, watermark=Looped(rounds=3), loop_rounds=3),
    }

    def hear(heard: TaskWatermarks) -> list[int]:
        said = [WatermarkMark(w, 7, ms, idle) for w, ms, idle in marks]
        around = [WatermarkMark(w, 4, ms, False, round=r) for w, ms, r in rounds]
        heard.begin()
        return [
            ms
            for topic, some in (("carried", said), ("looped", around))
            for ms in heard.after(topic, chunk(topic, [0] * len(some), some), 0, len(some)).tolist()
        ]

    first = TaskWatermarks(sources, {})
    hear(first)
    again = TaskWatermarks(sources, msgspec.json.decode(msgspec.json.encode(first.saved())))
    assert again.saved() == first.saved()
    assert hear(again) == hear(first)
    assert again.relays == first.relays


def test_the_times_of_hundreds_of_writers_fit_into_a_commit() -> None:
    """The limit is the brokers', and a commit over it would stop the task for good."""
    rng = random.Random(7)
    now_ms = 1_700_000_000_000
    carried = TaskWatermarks({"c": SourceSpec(topic="c", internal=True, watermark=Carried())}, {})
    some = [WatermarkMark(w, 800, now_ms + rng.randrange(10_000), False) for w in range(800)]
    carried.after("c", chunk("c", [0] * len(some), some), 0, len(some))
    assert len(encode(CommitMetadata(watermarks=carried.saved()))) < LIMIT_CHARS
    looped = TaskWatermarks(
        {"l": SourceSpec(topic="l", internal=True, watermark=Looped(rounds=100), loop_rounds=100)}, {}
    )
    for r in range(100):
        some = [WatermarkMark(w, 24, now_ms - 200 * r + rng.choice((0, 200)), False, round=r) for w in range(24)]
        looped.begin()
        looped.after("l", chunk("l", [0] * len(some), some), 0, len(some))
    assert len(encode(CommitMetadata(watermarks=looped.saved()))) < LIMIT_CHARS
