"""Aggregates of a whole stream by windows, of which the first begins before 1970."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import count
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import Windows, hopping, tumbling


def driven(windows: Windows, times: list[int], size: int) -> tuple[list[Any], dict[str, int]]:
    """The last count of each window, and how many rows each store holds in the end."""
    builder = StreamsBuilder(key=str, value=int)
    table = builder.stream("in").aggregate_all(count(), windows, retention=40, name="all")
    table.to_stream(lambda w, n: str(w.start_ms), key=str).to("out")
    options = TaskOptions(batch_max_records=size)
    with TopologyTestDriver(builder.build(), options=options) as driver:
        driver.pipe_all("in", [Record("k", 1, ts) for ts in times])
        driver.restart()
        held = {name: len(list(s.range())) for task in driver.tasks.values() for name, s in task.stores.items()}
        return list({r.key: r.value for r in driver.read("out")}.items()), held


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (tumbling(10, grace=0, offset=9), [("-1", 2), ("9", 1)]),
        (hopping(10, 5, grace=0, before_epoch=True), [("-5", 1), ("0", 2), ("5", 2), ("10", 1)]),
    ],
)
def test_windows_that_began_before_1970_have_totals(windows: Windows, expected: list[Any], size: int) -> None:
    found, _ = driven(windows, [1, 5, 12], size)
    assert found == expected


@pytest.mark.parametrize("windows", [tumbling(10, grace=0, offset=9), hopping(10, 5, grace=0, before_epoch=True)])
@pytest.mark.parametrize("size", [1, 100])
def test_windows_that_began_before_1970_are_forgotten(windows: Windows, size: int) -> None:
    """As any other."""
    _, once = driven(windows, [1, 1_002], size)
    _, other = driven(windows, [12, 1_002], size)
    assert once == other
    assert set(driven(windows, [1_002], size)[1].items()) == set(once.items())
