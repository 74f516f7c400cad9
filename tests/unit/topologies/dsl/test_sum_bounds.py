"""Sums of int64 near the bounds: the result is judged, so no way of summing changes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import list_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.functions import col
from penstock.topologies.windows import hopping

MOST = 2**63 - 1


class Row(msgspec.Struct, frozen=True):
    n: int


def results(make: Callable[[Any], Any], rows: list[tuple[str, int, int]], size: int, **policies: Any) -> list[Any]:
    """What comes out of rows (key, n, timestamp), in batches of a size, and one commit behind the last."""
    builder = StreamsBuilder(key=str, value=Row)
    make(builder.stream("in")).to("out")
    options = TaskOptions(batch_max_records=size, policies=Policies(**policies))
    with TopologyTestDriver(builder.build(), options=options) as driver:
        driver.pipe_all("in", [Record(key, Row(n), ts) for key, n, ts in rows])
        return [(r.key, r.value["total"]) for r in driver.read("out")]


def windowed(**more: Any) -> Callable[[Any], Any]:
    """Overlapping windows."""
    return lambda stream: (
        stream.group_by_key()
        .windowed_by(hopping(20, 10, grace=0))
        .agg(total=col("n").sum(), **more, emission="on_close")
        .to_stream()
    )


def grouped(*, combine: bool) -> Callable[[Any], Any]:
    """One group of all keys."""
    return lambda stream: (
        stream.group_by(lambda k, v: "all")
        .agg(total=col("n").sum(), emission="per_commit", combine=combine)
        .to_stream()
    )


WAYS = {
    "panes": windowed(),
    "no panes": windowed(rows=list_("n")),
    "combined": grouped(combine=True),
    "records": grouped(combine=False),
}


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("ways", [("panes", "no panes"), ("combined", "records")])
def test_a_sum_may_leave_the_bounds_and_come_back(ways: tuple[str, str], size: int) -> None:
    """Whatever the policy, no record is left out."""
    rows = [("k", MOST, 11), ("k", 5, 12), ("k", -10, 13), ("z", 0, 100)]
    first, second = (results(WAYS[way], rows, size, processing="skip") for way in ways)
    assert [total for _, total in first] == [total for _, total in second]
    assert MOST - 5 in [total for _, total in first]


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("way", WAYS)
def test_a_result_out_of_bounds_stops_the_task(way: str, policy: str, size: int) -> None:
    """Whatever the policy: there is no record whose absence would mend it."""
    rows = [("k", MOST, 1), ("k", 5, 12), ("z", 0, 100)]
    with pytest.raises(ResultError, match=r"sum\(n\): int64 overflow: 9223372036854775812"):
        results(WAYS[way], rows, size, processing=policy)
