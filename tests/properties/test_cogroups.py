"""Windowed cogroups against a naive interpreter: each input is late by its own stream time only."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.streams.task.task_options import TaskOptions

BATCH_SIZES = (1, 2, 7, 10_000)
TOPICS = ("a", "b", "c")


class Row(NamedTuple):
    topic: str
    key: str | None
    value: str | None
    ts: int


rows = st.lists(
    st.builds(
        Row,
        st.sampled_from(TOPICS),
        st.sampled_from(["k", "l", "l", None]),
        st.sampled_from(["x", "y", "z", None]),
        st.integers(0, 80),
    ),
    max_size=40,
)
retentions = st.sampled_from([None, 0, 7, 30])
"""Beyond the windows' size and grace."""


def cogroup(windows: Any, retention: int | None) -> ps.Topology:
    """Texts of what three topics bring."""
    builder = ps.StreamsBuilder("cogroups", value=str)
    streams = [builder.stream(topic).group_by_key() for topic in TOPICS]
    both = streams[0].cogroup(lambda key, value, text: f"{text}a{value}")
    both = both.cogroup(streams[1], lambda key, value, text: f"{text}b{value}")
    both = both.cogroup(streams[2], lambda key, value, text: f"{text}c{value}")
    kept = None if retention is None else windows.horizon_ms + retention
    table = both.windowed_by(windows, retention=kept).aggregate(str, value=str, merger=lambda key, a, b: a + b)
    table.to_stream(lambda w, text: f"{w.key}@{w.start_ms}-{w.end_ms}", key=str).to("out")
    return builder.build()


def interpreted(windows: Any, retention: int | None, some: list[Row]) -> list[tuple[str, str, int]]:
    """Everything kept for ever; what an input may lie behind the others is ``retention``."""
    out: list[tuple[str, str, int]] = []
    times = dict.fromkeys(TOPICS, -1)
    texts: dict[tuple[str, int], tuple[str, int]] = {}
    for row in some:
        if row.key is None or row.value is None:
            continue
        times[row.topic] = max(times[row.topic], row.ts)
        now = times[row.topic]
        if retention is not None:
            now = max(now, max(times.values()) - retention)
        for start, end in windows.assign(row.ts):
            if end + windows.grace_ms > now:
                text, latest = texts.get((row.key, start), ("", -1))
                texts[row.key, start] = text, latest = f"{text}{row.topic}{row.value}", max(latest, row.ts)
                out.append((f"{row.key}@{start}-{end}", text, latest))
    return out


def driven(topology: ps.Topology, some: list[Row], batch_size: int, restart_at: int | None = None) -> list[Any]:
    """The real topology, in the order of arrival."""
    options = TaskOptions(batch_max_records=batch_size)
    with ps.TopologyTestDriver(topology, arrival_order=True, options=options) as driver:
        for part in (some[:restart_at], some[restart_at:]) if restart_at is not None else (some,):
            driver.pipe_sequence([(r.topic, ps.Record(r.key, r.value, r.ts)) for r in part])
            if restart_at is not None:
                driver.restart()
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([ps.tumbling(10, grace=0), ps.tumbling(10, grace=6), ps.hopping(12, 5, grace=3)]),
    retentions,
    rows,
    st.data(),
)
def test_the_same_as_interpreted(windows: Any, retention: int | None, some: list[Row], data: st.DataObject) -> None:
    """At every batch size, and when the task starts again in the middle."""
    topology, expected = cogroup(windows, retention), interpreted(windows, retention, some)
    for size in BATCH_SIZES:
        assert driven(topology, some, size) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(topology, some, 3, at) == expected


@settings(deadline=None, max_examples=80)
@given(st.sampled_from([ps.session(5, grace=3), ps.sliding(6, grace=2)]), retentions, rows, st.data())
def test_windows_that_follow_the_data_at_every_batch_size(
    windows: Any, retention: int | None, some: list[Row], data: st.DataObject
) -> None:
    """And when the task starts again in the middle."""
    topology = cogroup(windows, retention)
    expected = driven(topology, some, 1)
    for size in BATCH_SIZES[1:]:
        assert driven(topology, some, size) == expected, size
    at = data.draw(st.integers(0, len(some)), "restart at")
    assert driven(topology, some, 3, at) == expected


def test_a_record_is_late_by_the_time_of_its_own_stream() -> None:
    """As in Kafka Streams, where each stream of a cogroup has its own: the second counts, though the first is ahead of its
    window's end."""
    builder = ps.StreamsBuilder("times", value=str)
    first, second = (builder.stream(topic).group_by_key() for topic in ("a", "b"))
    both = first.cogroup(lambda key, value, n: n + 1).cogroup(second, lambda key, value, n: n + 1)
    counts = both.windowed_by(ps.tumbling("10s", grace=0)).aggregate(int, value=int)
    counts.to_stream(lambda window, n: window.start_ms, key=int).to("out")
    with ps.TopologyTestDriver(builder.build(), arrival_order=True) as driver:
        driver.pipe("a", "k", "x", 10_000)
        driver.pipe("b", "k", "y", 9_000)
        assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == [(10_000, 1, 10_000), (0, 1, 9_000)]
        assert not driver.dropped_records


@pytest.mark.parametrize("windows", [ps.tumbling(10, grace=0), ps.session(4, grace=0), ps.sliding(4, grace=0)])
@pytest.mark.parametrize(("retention", "taken"), [(None, True), (0, False)])
def test_a_lagging_stream_loses_nothing(windows: Any, retention: int | None, taken: bool) -> None:
    """Also when its first records come after another stream has closed their windows; unless nothing is kept for it."""
    some = [Row("a", "k", "x", 100), Row("b", "k", "y", 9), Row("b", "k", "z", 3)]
    alone = [r for r in some if r.topic == "b"]
    of_b = driven(cogroup(windows, None), alone, 1)
    assert driven(cogroup(windows, retention), some, 1)[1:] == (of_b if taken else [])


def test_a_stream_is_pulled_along_a_day_behind() -> None:
    day_ms = 86_400_000
    some = [Row("a", "k", "x", day_ms + 10), Row("b", "k", "y", 9), Row("a", "k", "x", day_ms + 11)]
    some.append(Row("b", "k", "z", 9))
    found = driven(cogroup(ps.tumbling(10, grace=0), None), some, 1)
    assert [text for _, text, ts in found if ts < day_ms] == []
    some[0] = Row("a", "k", "x", day_ms + 9)
    found = driven(cogroup(ps.tumbling(10, grace=0), None), some, 1)
    assert [text for _, text, ts in found if ts < day_ms] == ["by"]


def test_results_that_are_emitted_on_close_are_final() -> None:
    """All inputs share one time."""
    builder = ps.StreamsBuilder("closing", value=str)
    first, second = (builder.stream(topic).group_by_key() for topic in ("a", "b"))
    both = first.cogroup(lambda key, value, text: text + value).cogroup(second, lambda key, value, text: text + value)
    table = both.windowed_by(ps.tumbling(10, grace=0)).aggregate(str, value=str, emission="on_close")
    table.to_stream(lambda w, text: w.start_ms, key=int).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe("b", "k", "y", 8)
        driver.pipe("a", "k", "x", 10)
        driver.pipe("b", "k", "z", 9)
        assert [(r.key, r.value) for r in driver.read("out")] == [(0, "y")]
        assert sum(driver.dropped_records.values()) == 1
