"""Operators that drop nulls report it once, with the operator, its line and what to do; all of them are counted."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record, TaskId
from penstock.streams.events.facts import NullsDropped
from penstock.streams.events.sentences import line_of
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import windows as w
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.recorder import Recorder


@pytest.fixture
def events() -> Recorder:
    return Recorder()


def driver_of(builder: StreamsBuilder, events: Recorder, **settings: Any) -> TopologyTestDriver:
    return TopologyTestDriver(builder, options=TaskOptions(events=events), **settings)


def test_the_first_null_of_each_kind_is_reported_with_the_line_of_its_operator(events: Recorder) -> None:
    builder = StreamsBuilder("t", value=str)
    builder.stream("in").group_by_key().count(name="n").to("out")
    with driver_of(builder, events) as driver:
        driver.pipe_all("in", [Record("a", "x", 1), Record(None, "x", 2), Record(None, "x", 3), Record("a", None, 4)])
        driver.pipe("in", None, "x", 5)
        driver.pipe("in", "a", None, 6)
        assert driver.dropped_records == {"n.null_key": 3, "n.null_value": 2}
    first, second = events.of(NullsDropped)
    assert (first.task, first.operator, first.reason) == (TaskId(0, 0), "n", "null_key")
    assert (second.operator, second.reason) == ("n", "null_value")
    assert str(first.declared).rpartition(":")[0].endswith("test_dropped_nulls.py")


def test_the_line_says_what_to_do() -> None:
    key, value, foreign = (
        line_of(NullsDropped(TaskId(0, 1), "n", reason, "app.py:7"))
        for reason in ("null_key", "null_value", "null_foreign_key")
    )
    assert key.level == value.level == foreign.level == "warning"
    assert "null key; give the stream a key" in key.sentence and "select_key" in key.sentence
    assert "null value" in value.sentence and "filter" in value.sentence
    assert "null foreign key; use a left join" in foreign.sentence
    assert key.fields == {"task": "0_1", "operator": "n", "reason": "null_key", "declared": "app.py:7"}


@pytest.mark.parametrize("columns", [False, True])
def test_a_null_key_behind_a_repartition_topic_is_counted_and_reported_once_per_task(
    events: Recorder, columns: bool
) -> None:
    builder = StreamsBuilder("t", value=str)
    keyed = builder.stream("in").select_key(lambda key, value: None if value == "none" else value, key=str)
    keyed.group_by_key().count(name="n").to("out")
    with driver_of(builder, events, partitions=2, columns=columns) as driver:
        for at_ms in range(6):
            driver.pipe("in", "a" if at_ms % 2 else "b", "none", at_ms)
        assert driver.dropped_records == {"n.null_key": 6}
        tasks = {task.id for task in driver.tasks.values() if task.dropped}
    reported = events.of(NullsDropped)
    assert {fact.task for fact in reported} == tasks and len(reported) == len(tasks)
    assert {(fact.operator, fact.reason) for fact in reported} == {("n", "null_key")}


def test_joins_report_nulls_and_left_joins_that_keep_them_do_not(events: Recorder) -> None:
    builder = StreamsBuilder("t", value=str)
    table = builder.table("table")
    builder.stream("in").join(table, lambda left, right: right, name="inner").to("inner-out")
    builder.stream("in").left_join(table, lambda left, right: right, name="outer").to("outer-out")
    with driver_of(builder, events) as driver:
        driver.pipe("in", None, "x", 1)
        assert len(driver.read("outer-out")) == 1
        assert driver.dropped_records == {"inner.null_key": 1}
    (fact,) = events.of(NullsDropped)
    assert (fact.operator, fact.reason) == ("inner", "null_key")


def test_late_records_are_counted_without_a_line(events: Recorder) -> None:
    builder = StreamsBuilder("t", value=str)
    builder.stream("in").group_by_key().windowed_by(w.tumbling(10, grace=0)).count(name="n").to("out")
    with driver_of(builder, events) as driver:
        driver.pipe_all("in", [Record("a", "x", 50), Record("a", "x", 1)])
        assert driver.dropped_records == {"n.late": 1}
    assert not events.of(NullsDropped)
