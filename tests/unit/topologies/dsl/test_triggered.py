"""What the DSL refuses of triggers, and which edges panes make."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies import triggers as t
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.describe import as_text
from penstock.topologies.windows import session, sliding, tumbling

TEN = tumbling(10, grace=0)


def grouped() -> Any:
    return StreamsBuilder("t", key=str, value=int).stream("in").group_by_key()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: g.triggered(t.count(1)), "windowed_by"),
        (lambda g: g.windowed_by(sliding(5, grace=0)).triggered(t.count(1)), "sliding"),
        (lambda g: g.windowed_by(TEN).triggered("at the end"), "'at the end' is not a trigger"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1), accumulation="summing"), "accumulation='summing'"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1), closing="slam"), "closing='slam'"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1), late_by="me"), "late_by='me'"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1), timestamp_combiner="mid"), "timestamp_combiner='mid'"),
        (lambda g: g.windowed_by(TEN).triggered(t.purging(t.count(1)), accumulation="accumulating"), "purging"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1), allowed_lateness="long"), "'long' is not a duration"),
        (
            lambda g: g.windowed_by(tumbling(10, time="processing")).triggered(t.count(1), allowed_lateness=5),
            "processing time",
        ),
        (
            lambda g: g.windowed_by(session(5, grace=0)).triggered(t.count(1)).aggregate(int, max, value=int, name="x"),
            "'x'.*merger",
        ),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1)).aggregate(int, max, name="x"), "'x'.*serde"),
        (lambda g: g.windowed_by(TEN).triggered(t.count(1)).reduce(None, name="x"), "'x'.*function"),
    ],
)
def test_what_cannot_be_is_refused_by_the_call(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make(grouped())


def panes(accumulation: Any) -> Any:
    return grouped().windowed_by(TEN).triggered(t.count(1), accumulation=accumulation).count(name="counts")


def built(stream: Any) -> Any:
    return stream._flow.wiring.graph.build()


@pytest.mark.parametrize(
    ("accumulation", "how", "refused"),
    [
        ("discarding", {"append_only": True}, None),
        ("accumulating", {"append_only": True}, "upserts"),
        ("accumulating", {}, None),
        ("accumulating_and_retracting", {}, "retractions"),
        ("accumulating_and_retracting", {"append_only": True}, "retractions"),
        ("accumulating_and_retracting", {"retractions": True}, None),
    ],
)
def test_a_sink_that_cannot_take_the_panes_is_refused_by_name(accumulation: Any, how: Any, refused: Any) -> None:
    stream = panes(accumulation)
    stream.map_values(str, value=str).to("out", name="results", **how)
    if refused is None:
        built(stream)
        return
    with pytest.raises(TopologyError, match=f"'results'.*{refused}"):
        built(stream)


def test_retractions_into_a_table_operator_are_refused_by_name() -> None:
    stream = panes("accumulating_and_retracting")
    stream.group_by(lambda k, v: "all", key=str).reduce(max, name="highest")
    with pytest.raises(TopologyError, match=r"'highest'.*retractions"):
        built(stream)


def test_late_records_are_facts_whatever_the_panes_are() -> None:
    stream = panes("accumulating_and_retracting")
    stream.to("out", retractions=True)
    stream.late.to("late", append_only=True)
    assert stream.late is stream.late
    built(stream)


def test_describe_shows_windows_trigger_and_accumulation() -> None:
    stream = panes("discarding")
    stream.to("out")
    shown = as_text(built(stream))
    for word in ("tumbling", "RepeatedCount(n=1)", "discarding"):
        assert word in shown
