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
        name="n", emission="on_close", combine=False
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
        name="n", emission="on_close", combine=False
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


def test_few_records_between_two_topics_do_not_make_the_watermark_slower() -> None:
    """The counts of a minute, a few records, go through a second topic: as many marks as through the first, and they are
    there as soon."""
    b = ps.StreamsBuilder("hops", value=str)
    stream = b.stream("in", watermark=ps.bounded_out_of_orderness("5s"))
    minutes = stream.group_by(lambda key, value: value).windowed_by(ps.tumbling("1m", grace=0))
    counts = minutes.count(name="n", emission="on_close", combine=True).to_stream()
    again = counts.group_by(lambda key, count: "all", key=str, name="again")
    again.windowed_by(ps.tumbling("1m", grace=0)).count(name="m", emission="on_close", combine=False).to_stream().to(
        "out"
    )
    found = {}
    for batch in (7, 1000):
        options = TaskOptions(batch_max_records=batch)
        with ps.TopologyTestDriver(b.build(), partitions=2, options=options, auto_commit=False) as driver:
            driver.pipe_sequence([("in", Record(f"k{i % 97}", f"g{i % 5}", i * 10)) for i in range(RECORDS)])
            driver.commit()
            first, second = marks_in(driver, "test-n-partials-repartition"), marks_in(driver, "test-again-repartition")
            found[batch] = (first, second, driver.read_raw("out"))
    assert found[7] == found[1000]
    first, second, rows = found[7]
    assert len(second) <= len(first) <= RECORDS * 0.05 + 400
    assert max(m.watermark_ms for m in second) == min(
        max(m.watermark_ms for m in first if m.writer == w) for w in (0, 1)
    )
    assert len(rows) == (RECORDS * 10 - 5_000) // 60_000


def marks_in(driver: ps.TopologyTestDriver, topic: str = BETWEEN) -> list[WatermarkMark]:
    """The watermark records of the repartition topic."""
    return [mark for row in driver.read_raw(topic) if (mark := mark_of(row.headers)) is not None]
