"""Timers of keys in processors: both kinds of time, moved, deleted, restored, and in any batches."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.processors.keyed_timers import Timer
from penstock.topologies.operators.processors.processor import Processor, processor_spec

BATCHES = (1, 2, 7, 10_000)


class Alarm(Processor):
    """A value is how long after the record the key's alarm is to ring; 0 silences it."""

    timers: ClassVar[Any] = ("event",)

    def process(self, record: Record, ctx: Any) -> None:
        if record.value:
            ctx.set_timer("alarm", record.timestamp_ms + record.value)
        else:
            ctx.delete_timer("alarm")
        ctx.forward(record.key, "record")

    def on_timer(self, timer: Timer, ctx: Any) -> None:
        ctx.forward(timer.key, f"{timer.name} {timer.domain} {timer.time_ms}")


class ByClock(Alarm):
    timers = ("processing",)

    def process(self, record: Record, ctx: Any) -> None:
        ctx.set_timer("alarm", ctx.wall_time_ms + record.value, "processing")


def driver_of(factory: Any, batch: int = 10_000) -> TopologyTestDriver:
    builder = StreamsBuilder(key=str, value=int)
    source = builder.stream("in", watermark=bounded_out_of_orderness(0))
    source.process(factory, value=str, name="alarms").to("out")
    return TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=batch, wall_resolution_ms=1))


def rows(driver: TopologyTestDriver) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


@pytest.mark.parametrize("batch", BATCHES)
def test_event_timers_fire_behind_the_record_that_moved_the_watermark_to_them(batch: int) -> None:
    with driver_of(Alarm, batch) as driver:
        given = [("b", 5, 10), ("a", 5, 10), ("a", 2, 12), ("c", 90, 12), ("c", 0, 15), ("d", 1, 16), ("e", 50, 40)]
        driver.pipe_all("in", [Record(*g) for g in given])
        fired = [r for r in rows(driver) if r[1] != "record"]
        assert fired == [
            ("a", "alarm event 14", 14),  # moved from 15; the watermark comes to 14 with the record of 15
            ("b", "alarm event 15", 15),
            ("d", "alarm event 17", 17),
        ]
        assert [len(list(s.range())) for s in driver.tasks[(0, 0)].stores.values()] == [1, 1, 0]  # type: ignore[index]  # a plain pair equals a task id


@pytest.mark.parametrize("batch", BATCHES)
def test_a_timer_for_a_time_that_is_behind_fires_right_after_its_record(batch: int) -> None:
    class Behind(Alarm):
        def process(self, record: Record, ctx: Any) -> None:
            ctx.set_timer("alarm", 1)
            ctx.forward(record.key, "record")

    with driver_of(Behind, batch) as driver:
        driver.pipe_all("in", [Record("a", 1, 10), Record("b", 1, 10)])
        assert rows(driver) == [
            ("a", "record", 10),
            ("a", "alarm event 1", 1),
            ("b", "record", 10),
            ("b", "alarm event 1", 1),
        ]


@pytest.mark.parametrize("restore", [False, True])
def test_timers_survive_a_restart(restore: bool) -> None:
    with driver_of(Alarm) as driver:
        driver.pipe("in", "a", 5, 10)
        driver.restart(restore=restore)
        driver.pipe("in", "b", 100, 30)
        assert ("a", "alarm event 15", 15) in rows(driver)


@pytest.mark.parametrize("restore", [False, True])
def test_processing_timers_fire_at_readings_of_the_clock(restore: bool) -> None:
    with driver_of(ByClock) as driver:
        driver.advance_wall_time(1_000)
        driver.pipe_all("in", [Record("a", 50, 1), Record("b", 20, 2)])
        driver.advance_wall_time(10)
        assert rows(driver) == []
        driver.restart(restore=restore)
        driver.advance_wall_time(100)
        assert rows(driver) == [("b", "alarm processing 1020", 1020), ("a", "alarm processing 1050", 1050)]


def test_timers_of_one_instant_may_delete_and_move_each_other() -> None:
    class Rivals(Alarm):
        def process(self, record: Record, ctx: Any) -> None:
            if record.value == 1:
                for name in ("one", "two", "three"):
                    ctx.set_timer(name, 10, key="k")

        def on_timer(self, timer: Timer, ctx: Any) -> None:
            ctx.forward(timer.key, f"{timer.name} {timer.time_ms}")
            ctx.delete_timer("three" if timer.name == "one" else "none")
            ctx.set_timer("two", timer.time_ms + 1)

    with driver_of(Rivals) as driver:
        driver.pipe_all("in", [Record("x", 1, 1), Record("y", 0, 14)])
        assert [r[1] for r in rows(driver)] == ["one 10", "two 11", "two 12", "two 13"]


def test_a_timer_that_would_fire_for_ever_stops_the_task() -> None:
    class Mad(Alarm):
        def on_timer(self, timer: Timer, ctx: Any) -> None:
            ctx.set_timer("alarm", timer.time_ms)

    driver = driver_of(Mad)
    with pytest.raises(ProcessingError, match="set it to a later time"):
        driver.pipe_all("in", [Record("a", 1, 1), Record("b", 1, 50)])
    driver.release()


def test_what_is_not_declared_is_refused() -> None:
    driver = driver_of(type("Wrong", (ByClock,), {"timers": ("event",), "reads_clock": True}))
    with pytest.raises(TopologyError, match="'processing'"):
        driver.pipe("in", "a", 1, 1)
    driver.release()
    with pytest.raises(TopologyError, match="name="):
        processor_spec(Alarm)
    with pytest.raises(TopologyError, match="timer_key"):
        driver_of(type("Keyless", (Alarm,), {"timer_key": object()}))


def test_without_a_key_at_hand_it_must_be_named() -> None:
    driver = driver_of(Alarm)
    with pytest.raises(ProcessingError, match="key="):
        driver.pipe("in", None, 5, 1)
    driver.release()
