"""Windows forget: over ten times their horizon, with keys that come and go, the stores stay as large as they were."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import windows as w
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness

HORIZON_MS = 3_600_000
STEP_MS = 20_000
SHARED = {"merge": operator.add}
INVERSE = {"inverse": operator.sub}


def entries(driver: TopologyTestDriver) -> int:
    """How many entries the committed stores hold."""
    return sum(
        sum(1 for _ in task.backend.range(name, None, None)) for task in driver.tasks.values() for name in task.stores
    )


def spans(key: str, value: int, ts: int) -> list[tuple[int, int]]:
    """Custom windows of differing length."""
    return [(ts - 1000 * value, ts + 60_000 * value), (ts, ts + HORIZON_MS // 2)]


def minutes(key: str, value: int, ts: int) -> list[tuple[int, int]]:
    """Windows that overlap with those of the records around."""
    return [(ts, ts + 60_000)]


@pytest.mark.parametrize(
    ("windows", "emission", "options"),
    [
        (w.tumbling("30m", grace="30m"), "every_update", {}),
        (w.tumbling("30m", grace="30m"), "on_close", {}),
        (w.hopping("40m", "10m", grace="20m"), "per_commit", {}),
        (w.hopping("40m", "10m", grace="20m"), "on_close", {}),
        (w.hopping("40m", "10m", grace="20m"), "on_close", SHARED),
        (w.hopping("40m", "10m", grace="20m"), "on_close", INVERSE),
        (w.hopping("40m", "10m", grace="20m", before_epoch=True), "on_close", {}),
        (w.custom(spans, max_size="31m", grace="29m"), "on_close", {}),
        (w.custom(spans, max_size="31m", grace="29m"), "every_update", {}),
        (w.hopping("1h", "10m", time="processing"), "on_close", INVERSE),
        (w.custom(minutes, max_size="1m", grace="29m", merge=w.merge_overlapping), "on_close", {}),
    ],
    ids=lambda x: x.describe() if isinstance(x, w.Windows) else None,
)
@pytest.mark.parametrize("watermark", [None, bounded_out_of_orderness("1m")], ids=["stream time", "watermark"])
def test_state_is_flat_over_ten_horizons(
    windows: w.Windows, emission: Any, options: dict[str, Any], watermark: Any
) -> None:
    builder = StreamsBuilder("t", value=int)
    grouped = builder.stream("in", watermark=watermark).group_by_key().windowed_by(windows)
    grouped.reduce(operator.add, emission=emission, **options).to("out")
    sizes = []
    with TopologyTestDriver(builder) as driver:
        for horizon in range(12):
            first = horizon * HORIZON_MS
            some = [
                Record(f"k{horizon}-{i // 50}", i % 5 + 1, ts)
                for i, ts in enumerate(range(first, first + HORIZON_MS, STEP_MS))
            ]
            for part in range(0, len(some), 30):
                driver.pipe_all("in", some[part : part + 30])
                driver.advance_wall_time(30 * STEP_MS)
            sizes.append(entries(driver))
        emitted = len(driver.read("out"))
    assert emitted > 20
    # two horizons fill the stores: open windows, and those that are kept
    assert max(sizes[2:]) <= 1.25 * max(sizes[:3])
    assert max(sizes) < 1000
