"""Which ends of windows are part of them: a record with the time of an end, for each kind of window that there is."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import value, window_end, window_start
from penstock.topologies.windows import Windows, calendar, custom, hopping, session, sliding, tumbling, unlimited

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def windows_with(windows: Windows, *times_ms: int) -> dict[tuple[int, int], str]:
    """The records that each window holds in the end, as their places in ``times_ms``; by the ends of its key."""
    builder = StreamsBuilder("ends", key=str, value=str)
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    merge: dict[str, Any] = {"merger": lambda key, left, right: left + right}
    how = merge if "session" in type(windows).__name__.lower() else {}
    grouped.aggregate(str, lambda key, value, held: held + value, value=str, **how).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("in", [Record("k", str(place), time_ms) for place, time_ms in enumerate(times_ms)])
        written = driver.read("out")
    last = {(record.key.start_ms, record.key.end_ms): record.value for record in written}
    return {ends: "".join(sorted(held)) for ends, held in last.items() if held is not None}


@pytest.mark.parametrize(
    ("windows", "size_ms"),
    [
        (tumbling(10, grace=0), 10),
        (hopping(10, 10, grace=0), 10),
        (calendar("day", grace=0), DAY_MS),
        (custom(lambda key, value, time_ms: [(time_ms // 10 * 10, time_ms // 10 * 10 + 10)], max_size=10, grace=0), 10),
    ],
    ids=["tumbling", "hopping", "calendar", "custom"],
)
def test_the_end_belongs_to_the_next_window(windows: Windows, size_ms: int) -> None:
    """``[start, end)``: what lies on the end is the first of the next window, and what lies 1 ms before it is in."""
    assert windows_with(windows, 0, size_ms - 1, size_ms) == {(0, size_ms): "01", (size_ms, 2 * size_ms): "2"}


def test_hopping_windows_that_overlap_end_before_their_end() -> None:
    assert windows_with(hopping(10, 5, grace=10), 5, 10) == {(0, 10): "0", (5, 15): "01", (10, 20): "1"}


def test_unlimited_windows_begin_with_their_start() -> None:
    """What lies on the start is in, what lies before is not."""
    held = windows_with(unlimited(5), 4, 5, 10**12)
    assert list(held.values()) == ["12"]
    assert [start for start, _ in held] == [5]


def test_sliding_windows_hold_their_end() -> None:
    """``[start, end]``, as long as the difference: two records that far apart share a window; 1 ms further they do
    not."""
    assert "01" in windows_with(sliding(10, grace=100), 20, 30).values()
    assert windows_with(sliding(10, grace=100), 20, 30)[20, 30] == "01"
    assert "01" not in windows_with(sliding(10, grace=100), 20, 31).values()


def test_sessions_end_with_their_last_record() -> None:
    """``[first, last]``: one record alone begins and ends it; a gap as long as the gap still joins, 1 ms more does
    not."""
    assert windows_with(session(10, grace=100), 20) == {(20, 20): "0"}
    assert windows_with(session(10, grace=100), 20, 30) == {(20, 30): "01"}
    assert windows_with(session(10, grace=100), 20, 31) == {(20, 20): "0", (31, 31): "1"}


def test_sessions_bounded_by_the_gap_end_before_their_end() -> None:
    """``[first, last + gap)``: the end lies a gap behind the last record."""
    assert windows_with(session(10, grace=100, bounds="gap"), 20) == {(20, 30): "0"}
    assert windows_with(session(10, grace=100, bounds="gap"), 20, 29) == {(20, 39): "01"}
    apart = windows_with(session(10, grace=100, bounds="gap", touching=False), 20, 30)
    assert apart == {(20, 30): "0", (30, 40): "1"}


@pytest.mark.parametrize(
    ("windows", "ends"),
    [
        (tumbling(10, grace=0), (20, 30)),
        (calendar("day", grace=0), (0, DAY_MS)),
        (sliding(10, grace=0), (14, 24)),
        (session(10, grace=0), (24, 24)),
        (session(10, grace=0, bounds="gap"), (24, 34)),
    ],
    ids=["tumbling", "calendar", "sliding", "session", "session by the gap"],
)
def test_keys_written_keys_and_columns_have_the_same_ends(windows: Windows, ends: tuple[int, int]) -> None:
    """Of a record at 24: what functions are given, what a reader of the topic decodes, and what expressions select."""
    builder = StreamsBuilder("ends", key=str, value=str)
    counts = builder.stream("in").group_by_key().windowed_by(windows).count().to_stream()
    counts.to("keys")
    counts.map_values(lambda key, n: f"{key.start_ms}-{key.end_ms}", value=str).to("functions")
    counts.select(start=window_start(), end=window_end(), n=value()).to("columns")
    with TopologyTestDriver(builder) as driver:
        driver.pipe("in", "k", "v", 24)
        (written,) = driver.read("keys")
        assert (written.key.key, written.key.start_ms, written.key.end_ms) == ("k", *ends)
        assert [record.value for record in driver.read("functions")] == [f"{ends[0]}-{ends[1]}"]
        assert [record.value for record in driver.read("columns")] == [{"start": ends[0], "end": ends[1], "n": 1}]
