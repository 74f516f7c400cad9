"""Queries on one topic share its source, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import JSON, Serde
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness


class Reading(msgspec.Struct):
    x: int


def _is(wanted: int, key: Any, value: Any) -> bool:
    return bool(value % 20 == wanted)


def test_topic_is_read_and_decoded_once_for_all_queries() -> None:
    decoded: list[bytes] = []

    def decode(data: bytes) -> Any:
        decoded.append(data)
        return JSON.deserialize(data)

    builder = StreamsBuilder(key=str, value=Serde("counted", JSON.serialize, decode))
    for i in range(20):
        builder.stream("in").filter(partial(_is, i)).to(f"out-{i}")
    topology = builder.build()
    (sub,) = topology.subtopologies
    assert sub.sources == ("in",)
    with TopologyTestDriver(topology) as driver:
        driver.pipe_all("in", [Record("a", n, n) for n in range(40)])
        assert len(decoded) == 40
        for i in range(20):
            assert [r.value for r in driver.read(f"out-{i}")] == [i, i + 20]


def test_types_that_mean_the_same_are_the_same() -> None:
    builder = StreamsBuilder(key=str)
    for i in range(3):
        builder.stream("in", value=Reading, watermark=bounded_out_of_orderness("5s")).to(f"out-{i}")
    assert builder.build().subtopologies[0].sources == ("in",)


def test_name_is_the_first_ones() -> None:
    builder = StreamsBuilder(key=str, value="json")
    builder.stream("in", name="clicks").to("a")
    builder.stream("in").to("b")
    builder.stream("in", name="clicks").to("c")
    assert builder.build().subtopologies[0].sources == ("clicks",)


@pytest.mark.parametrize(
    "again",
    [
        lambda b: b.stream("in", value=str),
        lambda b: b.stream("in", timestamp=lambda r: 0),
        lambda b: b.stream("in", priority=1),
        lambda b: b.stream("in", name="other"),
        lambda b: b.table("in", name="other"),
    ],
)
def test_other_ways_to_read_a_topic_are_refused(again: Callable[[StreamsBuilder], Any]) -> None:
    builder = StreamsBuilder(key=str, value="json")
    builder.stream("in").to("out")
    with pytest.raises(TopologyError, match="topic 'in' is already read by 'in'; read it once"):
        again(builder)
