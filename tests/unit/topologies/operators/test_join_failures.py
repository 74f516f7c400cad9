"""Joiners that raise: the record that they fail for is skipped, and no other."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions

SKIP = Policies(processing="skip")


def fails_for_bad(left: str | None, right: str | None) -> list[str | None]:
    """The pair; a pair with the left value ``bad`` cannot be joined."""
    if left == "bad":
        raise ValueError("bad")
    return [left, right]


def driven(topology: ps.Topology, records: list[tuple[str, ps.Record]], size: int) -> list[Any]:
    """The results under the policy ``skip``, in the order of arrival."""
    options = TaskOptions(policies=SKIP, batch_max_records=size)
    with ps.TopologyTestDriver(topology, arrival_order=True, options=options) as driver:
        driver.pipe_sequence(records)
        return [(r.value, r.timestamp_ms) for r in driver.read("out")]


def left(value: str, ts: int) -> tuple[str, ps.Record]:
    return "left", ps.Record("k", value, ts)


def right(value: str, ts: int) -> tuple[str, ps.Record]:
    return "right", ps.Record("k", value, ts)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_records_that_waited_for_partners_are_not_lost_with_one_that_fails(size: int) -> None:
    builder = ps.StreamsBuilder("app", key=str, value=str)
    other = builder.stream("right")
    builder.stream("left").left_join(other, fails_for_bad, within=10, grace=0, value=list).to("out")
    records = [left("a", 0), left("bad", 1), left("b", 2), left("c", 50), right("x", 50)]
    assert driven(builder.build(), records, size) == [
        (["a", None], 0),
        (["b", None], 2),
        (["c", "x"], 50),
    ]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_records_that_were_due_are_not_lost_with_the_one_that_made_them_so(size: int) -> None:
    builder = ps.StreamsBuilder("app", key=str, value=str)
    other = builder.stream("right")
    builder.stream("left").left_join(other, fails_for_bad, within=10, grace=0, value=list).to("out")
    # the last one meets a partner and cannot be joined with it
    records = [left("a", 0), right("x", 45), left("bad", 50), left("b", 51)]
    assert driven(builder.build(), records, size) == [(["a", None], 0), (["b", "x"], 51)]


@pytest.mark.parametrize("size", [1, 2, 100])
def test_an_as_of_join_goes_on_behind_a_record_that_fails(size: int) -> None:
    builder = ps.StreamsBuilder("app", key=str, value=str)
    other = builder.stream("right")
    stream = builder.stream("left")
    stream.join_as_of(other, fails_for_bad, tolerance=10, grace=5, left=True, value=list).to("out")
    records = [left("a", 0), left("bad", 1), left("b", 2), right("x", 3), left("c", 4), right("y", 50), right("z", 90)]
    assert driven(builder.build(), records, size) == [
        (["a", None], 0),
        (["b", None], 2),
        (["c", "x"], 4),
    ]
