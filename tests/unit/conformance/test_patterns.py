"""Patterns of cases become patterns of the DSL, and marks move event time and are gone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.watermark_strategies import END_OF_TIME_MS
from penstock.topologies.patterns.skip import skip_to_first
from tests.conformance.case_format import CaseError
from tests.conformance.marks import mark, read_stream
from tests.conformance.patterns import dsl_pattern
from tests.conformance.scenario import KEY, VALUE


def stage(name: str, contiguity: str = "followed_by", **more: Any) -> dict[str, Any]:
    return {"name": name, "contiguity": contiguity, **more}


def test_everything_that_a_stage_can_say() -> None:
    inner = [stage("x", "begin", where="e > 0"), stage("y", "next")]
    made = dsl_pattern(
        {
            "stages": [
                stage("a", "begin", times=[2, 5], greedy=True),
                stage("n", "not_followed_by", where="e == 9"),
                {"name": None, "contiguity": "followed_by_any", "group": inner, "times": [0, 2], "inner": "strict"},
                stage("b", times=[1, None], inner="combinations", until="e == 7"),
                stage("c", "next", optional=True),
            ],
            "within_ms": 10,
            "skip": {"strategy": "skip_to_first", "pattern": "b", "error_on_miss": True},
        }
    )
    a, n, group, b, c = made.stages
    assert (a.low, a.high, a.is_greedy) == (2, 5, True)
    assert n.negated and n.condition is not None
    assert (group.low, group.high, group.is_optional, group.inner) == (1, 2, True, "strict")
    assert group.group is not None and group.group.names() == ("x", "y")
    assert (b.low, b.high, b.inner) == (1, None, "combinations") and b.until is not None
    assert c.is_optional and c.contiguity == "next"
    assert made.within_ms == 10
    assert made.skip == skip_to_first("b").error_on_miss()


@pytest.mark.parametrize(
    "stages",
    [[], [stage("a", "next")], [stage("a", "begin"), stage("b", "beside")], [stage("a", "begin", inner="loose")]],
)
def test_what_the_format_does_not_have_is_refused(stages: list[dict[str, Any]]) -> None:
    with pytest.raises(CaseError):
        dsl_pattern({"stages": stages})


def test_an_unknown_skip_strategy_is_refused() -> None:
    with pytest.raises(CaseError, match="skip_past_last_event"):
        dsl_pattern({"stages": [stage("a", "begin")], "skip": {"strategy": "skip_all"}})


def test_marks_say_how_far_event_time_is_and_go_no_further() -> None:
    builder = StreamsBuilder(key=KEY, value=VALUE)
    read_stream(builder, "in", watermarks=True).to("out")
    driver = TopologyTestDriver(builder.build())
    with driver:
        (task,) = driver.tasks.values()
        driver.pipe("in", "k", {"a": 1}, 5)
        driver.pipe_sequence([("in", mark(1, "in", 3).record)])
        assert task.watermark_ms == 3
        driver.pipe_sequence([("in", mark(2, "in", "max").record), ("in", Record("k", 2, 6))])
        assert task.watermark_ms == END_OF_TIME_MS
        assert [r.value for r in driver.read("out")] == [{"a": 1}, 2]
