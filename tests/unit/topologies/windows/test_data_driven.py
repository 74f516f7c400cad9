"""Sessions, and windows that users make."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies import windows as w


def test_sessions_merge_by_overlap_and_touch_only_where_they_may() -> None:
    some = [(2, 12), (12, 22), (30, 40), (35, 50), (31, 32)]
    apart = w.session(10, grace=0, touching=False).merge(some)
    assert [window for window, _ in apart] == [(2, 12), (12, 22), (30, 50)]
    assert apart[2] == ((30, 50), [(30, 40), (31, 32), (35, 50)])
    assert w.session(10, grace=0).merge(some)[0] == ((2, 22), [(2, 12), (12, 22)])
    assert w.merge_overlapping([]) == []


def test_sessions_take_their_gap_from_the_record() -> None:
    by_value = w.session(lambda key, value: value, grace=0)
    assert by_value.windows_of("k", 5, 10) == [(10, 15)]
    for wrong in (-1, 2.5, True, None):
        with pytest.raises(ValueError, match="the gap function gave"):
            by_value.windows_of("k", wrong, 10)


def test_custom_windows_are_checked() -> None:
    windows = w.custom(lambda key, value, ts: value, max_size=10, grace=0)
    assert windows.windows_of("k", [(5, 9), (0, 10), (5, 9)], 5) == [(0, 10), (5, 9)]
    for value, message in (([(0, 11)], "longer than 10 ms"), ([(0, 5)], "ends before that"), ([(6, 6)], "start < end")):
        with pytest.raises(ValueError, match=message):
            windows.windows_of("k", value, 5)
    assert not windows.merging
    merging = w.custom(lambda key, value, ts: [(ts, ts + 5)], max_size=50, grace=0, merge=w.merge_overlapping)
    assert merging.merging
    assert merging.merge([(3, 8), (0, 5)]) == [((0, 8), [(0, 5), (3, 8)])]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(TopologyError, match="gap cannot be negative"):
        w.SessionWindows(-1)
    with pytest.raises(TopologyError, match="difference cannot be negative"):
        w.SlidingWindows(-1)
    no_function: Any = "fn"
    with pytest.raises(TopologyError, match="need functions"):
        w.custom(no_function, max_size=5, grace=0)
