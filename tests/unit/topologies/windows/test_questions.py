"""What windows say of themselves follows from the windows that they give single timestamps."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.topologies import windows as w

ORDERED = [
    w.tumbling(10, grace=3),
    w.tumbling(10, grace=0, offset=-3),
    w.hopping(10, 4, grace=2),
    w.hopping(10, 10, grace=0, offset=7),
    w.hopping(10, 10, grace=0),
    w.hopping(4, 10, grace=1, offset=3),
    w.hopping(4, 10, grace=1, offset=3, before_epoch=True),
    w.hopping(12, 8, grace=0, before_epoch=True),
    w.calendar("day", "Europe/Berlin", grace=5),
    w.unlimited(50),
    w.global_window(),
]
rng = random.Random(7)
TIMES = [*range(120), *(rng.randrange(1 << 40) for _ in range(200))]


@pytest.mark.parametrize("windows", ORDERED, ids=lambda windows: str(windows.describe()))
def test_of_ordered_windows(windows: w.SpanWindows) -> None:
    assert windows.ordered
    assert windows.endless == (windows.assign(64)[0][1] == w.END_OF_TIME_MS)
    assert windows.overlapping == (max(len(windows.assign(ts)) for ts in TIMES) > 1)
    assert windows.epoch_aligned == all(windows.assign(ts) == [(ts // 10 * 10, ts // 10 * 10 + 10)] for ts in TIMES)
    for ts in TIMES:
        span = windows.same_windows(ts)
        bounds = windows.assign(ts)
        assert span.low <= ts < span.high
        for other in (max(span.low, 0), span.high - 1):
            assert windows.assign(other) == bounds
        closes_ms = bounds[0][1] + windows.grace_ms if bounds else w.END_OF_TIME_MS
        assert span.closes_ms == min(closes_ms, w.END_OF_TIME_MS)
        assert all(end >= span.high for _, end in bounds)


@pytest.mark.parametrize("windows", ORDERED, ids=lambda windows: str(windows.describe()))
def test_starts_of_columns(windows: w.SpanWindows) -> None:
    starts = windows.starts_of(np.array(TIMES, np.int64))
    if starts is None:
        assert windows.overlapping or windows.step_ms is None
        return
    one_by_one = [windows.assign(ts) for ts in TIMES]
    assert starts.tolist() == [bounds[0][0] if bounds else w.NO_WINDOW_MS for bounds in one_by_one]
    kept = starts[starts != w.NO_WINDOW_MS]
    assert windows.step_ms is not None
    assert not ((kept - kept.min()) % windows.step_ms).any()


def test_windows_too_late_for_columns() -> None:
    late = np.array([1 << 62], np.int64)
    assert w.hopping(4, 10, grace=0).starts_of(late) is None


def test_of_windows_that_follow_the_data() -> None:
    sessions, sliding = w.session(10, grace=0), w.sliding(10, grace=0)
    custom = w.custom(lambda key, value, ts: [(ts, ts + 1)], max_size=1, grace=0)
    assert not any(x.ordered or x.endless for x in (sessions, sliding, custom, w.count_tumbling(3)))
    assert sessions.merging
    assert sessions.disjoint
    assert not (sliding.merging or custom.merging or custom.disjoint)
    with pytest.raises(AssertionError, match="do not merge"):
        sliding.merge([])
