"""Watermark strategies as values, and the repartition topics through which watermarks travel."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import (
    BoundedOutOfOrderness,
    Punctuated,
    bounded_out_of_orderness,
    carried_topics,
    punctuated,
)
from penstock.topologies.triggers import default_trigger
from penstock.topologies.windows import tumbling


def test_durations_become_milliseconds() -> None:
    made = bounded_out_of_orderness("5s", idle="1m", interval=7)
    assert made == BoundedOutOfOrderness(delay_ms=5_000, idle_ms=60_000, interval_ms=7)
    assert bounded_out_of_orderness(0).idle_ms is None


def test_a_punctuated_strategy_keeps_its_function() -> None:
    def fn(record: Any) -> int | None:
        return None

    assert punctuated(fn, idle="1s") == Punctuated(fn=fn, idle_ms=1_000)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bounded_out_of_orderness("5 parsecs"),
        lambda: bounded_out_of_orderness(5, idle=0),
        lambda: bounded_out_of_orderness(5, interval=0),
        lambda: punctuated("ts"),  # type: ignore[arg-type]  # what a user may do
        lambda: punctuated(lambda r: None, idle=0),
    ],
)
def test_what_is_no_strategy_is_refused(make: Any) -> None:
    with pytest.raises(TopologyError):
        make()


def _windowed(watermark: Any, *, triggered: bool = True) -> Any:
    builder = StreamsBuilder(key=str, value=int)
    stream = builder.stream("in", watermark=watermark)
    grouped = stream.group_by(lambda k, v: k, name="regroup")
    if triggered:
        grouped.windowed_by(tumbling(10, grace=0)).triggered(default_trigger()).count().to("out", value=int)
    else:
        grouped.count().to("out", value=int)
    return builder.build()


def test_watermarks_travel_where_one_is_made_and_one_is_wanted() -> None:
    assert carried_topics(_windowed(bounded_out_of_orderness(5))) == {"regroup-repartition"}


def test_watermarks_do_not_travel_without_a_strategy_or_without_a_reader() -> None:
    assert carried_topics(_windowed(None)) == frozenset()
    assert carried_topics(_windowed(bounded_out_of_orderness(5), triggered=False)) == frozenset()
