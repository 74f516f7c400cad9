"""For how long the buffers of a join keep records."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.topologies.operators.joins.stream_stream_join import watermark_retention_ms

SECOND, HOUR = 1_000, 3_600_000


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "expected"),
    [
        (0, HOUR, (HOUR, HOUR // 128)),
        (HOUR, 0, (HOUR // 128, HOUR)),
        (HOUR, HOUR, (HOUR, HOUR)),
        (5, 3, (3, 5)),
        (0, 0, (0, 0)),
    ],
)
def test_retention_behind_the_watermark(before_ms: int, after_ms: int, expected: tuple[int, int]) -> None:
    """The left side waits for later partners, the right side for earlier ones."""
    assert watermark_retention_ms(before_ms, after_ms) == expected


@pytest.mark.parametrize(("watermark", "least", "most"), [(True, 1, 31), (False, 600, 600)])
def test_a_side_that_waits_for_nothing_is_soon_empty(watermark: bool, least: int, most: int) -> None:
    """Behind the watermark no left record can come for a right one. Behind stream time one can, if it is not late."""
    builder = ps.StreamsBuilder("t")
    marks = ps.bounded_out_of_orderness("1s") if watermark else None
    left, right = (builder.stream(topic, key=str, value=int, watermark=marks) for topic in ("left", "right"))
    joined = left.join(right, lambda a, b: a + b, before=0, after="1h", grace=0, name="pairs")
    joined.to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        for second in range(600):
            driver.pipe("left", "k", second, timestamp_ms=second * SECOND)
            driver.pipe("right", "k", second, timestamp_ms=second * SECOND)
        driver.commit()
        (task,) = driver.tasks.values()
        assert len(list(task.backend.range("pairs-left", None, None))) == 600
        assert least <= len(list(task.backend.range("pairs-right", None, None))) <= most
        assert len(driver.read("out")) == 600 * 601 // 2
