"""Windows that follow from the timestamp: which ones a timestamp has, and which are still open at a time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies import windows as w


def test_windows_around_a_timestamp() -> None:
    assert w.tumbling("10s", grace=0).assign(12_345) == [(10_000, 20_000)]
    assert w.tumbling(7, grace=0, offset=-2).assign(4) == [(-2, 5)]
    assert w.hopping(12, 5, grace=0).assign(21) == [(10, 22), (15, 27), (20, 32)]
    assert w.hopping(10, 10, grace=0).assign(10) == [(10, 20)]
    assert w.global_window().assign(0) == [(0, w.END_OF_TIME_MS)]
    assert w.unlimited(5).assign(5) == [(5, w.END_OF_TIME_MS)]
    assert w.unlimited(5).assign(4) == []


def test_hopping_windows_may_leave_gaps_and_begin_before_1970_only_when_asked() -> None:
    gaps = w.hopping(2, 5, grace=0)
    assert [gaps.assign(ts) for ts in (4, 5, 6, 7)] == [[], [(5, 7)], [(5, 7)], []]
    assert w.hopping(10, 4, grace=0).assign(3) == [(0, 10)]
    assert w.hopping(10, 4, grace=0, before_epoch=True).assign(3) == [(-4, 6), (0, 10)]
    assert w.hopping(10, 4, grace=0, offset="-1ms").assign(2) == []


@pytest.mark.parametrize(
    "windows",
    [
        w.tumbling(10, grace=3),
        w.tumbling(7, grace=0, offset=3),
        w.hopping(12, 5, grace=0),
        w.hopping(3, 7, grace=0, offset=-2),
        w.hopping(12, 5, grace=0, before_epoch=True),
    ],
    ids=str,
)
def test_the_first_open_window_is_the_lowest_that_ends_later(windows: w.SpanWindows) -> None:
    every = sorted({x for ts in range(120) for x in windows.assign(ts)})
    for t in range(60):
        first = min(start for start, end in every if end > t)
        assert windows.open_from(t) == first
        assert windows.end_of(first) == dict(every)[first]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: w.tumbling("10s"), "tumbling needs a grace.*grace=0"),
        (lambda: w.hopping("10s", "1s"), "hopping needs a grace"),
        (lambda: w.session("10s"), "session needs a grace"),
        (lambda: w.sliding(5), "sliding needs a grace"),
        (lambda: w.calendar("day"), "calendar needs a grace"),
        (lambda: w.tumbling(0, grace=0), "size must be above 0 ms, not 0"),
        (lambda: w.hopping(5, 0, grace=0), "advance must be above 0 ms"),
        (lambda: w.tumbling(5, grace=1, time="processing"), "no late records"),
        (lambda: w.TumblingWindows(5, -1), "grace cannot be negative"),
        (lambda: w.unlimited(-1), "before 1970"),
        (lambda: w.tumbling(5, grace="2 weeks"), "is not a duration"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_an_unknown_time_is_refused() -> None:
    wrong: Any = "wall"
    with pytest.raises(TopologyError, match="use 'event' or 'processing'"):
        w.tumbling(5, grace=0, time=wrong)


def test_windows_describe_themselves() -> None:
    assert w.tumbling("10s", grace="1m").describe() == "tumbling(size=10000 ms, grace=60000 ms)"
    assert w.hopping(4, 2, time="processing").describe() == "hopping(size=4 ms, advance=2 ms, time=processing)"
    assert w.global_window().describe() == "global()"
