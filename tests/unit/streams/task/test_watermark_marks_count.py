"""How many watermark records go through a repartition topic: bounded by event time, never by the number of records."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_watermarks import HEADER

RECORDS = 2_000
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
@pytest.mark.parametrize("rate", [1, 20, 100])
def test_marks_are_bounded_by_steps_of_event_time_and_the_interval_thins_them(partitions: int, rate: int) -> None:
    found = {batch: counted(rate, partitions, batch) for batch in (7, 1000)}
    assert len(set(found.values())) == 1
    marks, data = found[7]
    assert data == RECORDS
    seconds = RECORDS / partitions / rate
    # each task writes one to every partition, at most five times a second, and at most once a record
    assert marks <= partitions * partitions * min(seconds * 5 + 1, RECORDS / partitions)
    thinner, _ = counted(rate, partitions, 1000, interval="10s")
    assert thinner <= partitions * partitions * (seconds / 10 + 1)
    if rate == 100:
        assert thinner <= 0.03 * RECORDS
