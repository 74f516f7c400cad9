"""How many watermark records go through a repartition topic: bounded by the records that a task reads, and by event time."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_watermarks import HEADER, WatermarkMark, mark_of

RECORDS = 12_000
BETWEEN = "test-in-group-by-repartition"


def counted(rate: int, partitions: int, batch: int, **more: str) -> tuple[int, int]:
    """Marks and data in the repartition topic. ``rate``: records of a task per second of event time."""
    b = ps.StreamsBuilder("counted", value=str)
    stream = b.stream("in", watermark=ps.bounded_out_of_orderness("5s", **more))
    stream.group_by(lambda key, value: value).windowed_by(ps.tumbling("1m", grace=0)).count(
        name="n", emission="on_close"
    )
    options = TaskOptions(batch_max_records=batch)
    with ps.TopologyTestDriver(b.build(), partitions=partitions, options=options, auto_commit=False) as driver:
        steps = range(RECORDS)
        driver.pipe_sequence(
            [("in", Record(f"k{i % 97}", f"g{i % 53}", i * 1000 // (rate * partitions))) for i in steps]
        )
        driver.commit()
        rows = driver.read_raw(BETWEEN)
    marks = sum(any(name == HEADER for name, _ in row.headers) for row in rows)
    return marks, len(rows) - marks


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("rate", [1, 10, 100])
def test_marks_are_a_few_per_cent_of_what_a_task_reads_whatever_the_batches(partitions: int, rate: int) -> None:
    found = {batch: counted(rate, partitions, batch) for batch in (7, 1000)}
    assert len(set(found.values())) == 1
    marks, data = found[7]
    assert data == RECORDS
    seconds = RECORDS / partitions / rate
    # of each task, to every partition: the first hundred, one in 25 records, one a minute
    assert marks <= partitions * partitions * (100 + seconds / 60 + 2) + RECORDS * 0.04
    # and no window waits longer than that
    assert marks >= partitions * partitions * (seconds // 60)


def test_a_shorter_hold_and_a_longer_interval_choose_between_time_and_space() -> None:
    often, _ = counted(1, 1, 1000, hold="2s")
    assert RECORDS // 3 <= often <= RECORDS
    thinner, _ = counted(100, 4, 1000, interval="10s")
    assert thinner <= 16 * (RECORDS / 4 / 100 / 10 + 1)


def test_a_source_that_becomes_idle_lets_go_what_was_held_back() -> None:
    b = ps.StreamsBuilder("idle", value=str)
    stream = b.stream("in", watermark=ps.bounded_out_of_orderness("5s", idle="10s"))
    stream.group_by(lambda key, value: value).windowed_by(ps.tumbling("1m", grace=0)).count(
        name="n", emission="on_close"
    )
    with ps.TopologyTestDriver(b.build(), partitions=1, auto_commit=False) as driver:
        driver.pipe_sequence([("in", Record("k", "g", i * 1000)) for i in range(311)])
        driver.commit()
        held = marks_in(driver)[-1]
        assert held.watermark_ms < 310_000 - 5_000 - 1 and not held.idle
        for _ in range(3):
            driver.advance_wall_time(10_000)
        driver.commit()
        let_go = marks_in(driver)[-1]
        assert (let_go.watermark_ms, let_go.idle) == (310_000 - 5_000 - 1, True)


def marks_in(driver: ps.TopologyTestDriver) -> list[WatermarkMark]:
    """The watermark records of the repartition topic."""
    return [mark for row in driver.read_raw(BETWEEN) if (mark := mark_of(row.headers)) is not None]
