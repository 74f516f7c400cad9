"""Which records may be combined: those whose timestamps have the same windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.topologies.windows import (
    END_OF_TIME_MS,
    CalendarWindows,
    HoppingWindows,
    SpanWindows,
    TumblingWindows,
    UnlimitedWindows,
)

NEVER_MS: Final = END_OF_TIME_MS
_BEGIN_MS: Final = -NEVER_MS


class WindowSpan(NamedTuple):
    """The timestamps ``low <= ts < high`` have the same windows, the first of which closes at ``closes_ms`` (grace
    included); the window itself ends at ``high`` or later."""

    low: int
    high: int
    closes_ms: int


def spans_of(windows: SpanWindows | None) -> Callable[[int], WindowSpan]:
    """The function that finds the span of a timestamp."""
    if isinstance(windows, (TumblingWindows, HoppingWindows)):
        return _aligned(windows)
    if isinstance(windows, CalendarWindows):
        return _calendar(windows)
    if isinstance(windows, UnlimitedWindows):
        begin = windows.start_ms
        return lambda ts: (
            WindowSpan(begin, NEVER_MS, NEVER_MS) if ts >= begin else WindowSpan(_BEGIN_MS, begin, NEVER_MS)
        )
    return lambda ts: WindowSpan(_BEGIN_MS, NEVER_MS, NEVER_MS)


def _aligned(windows: TumblingWindows | HoppingWindows) -> Callable[[int], WindowSpan]:
    width = windows.size_ms
    if isinstance(windows, HoppingWindows):
        width = math.gcd(width, windows.advance_ms)
    offset, grace, assign = windows.offset_ms, windows.grace_ms, windows.assign

    def span(ts: int) -> WindowSpan:
        low = ts - (ts - offset) % width
        bounds = assign(ts)
        return WindowSpan(low, low + width, bounds[0][1] + grace if bounds else NEVER_MS)

    return span


def _calendar(windows: CalendarWindows) -> Callable[[int], WindowSpan]:
    def span(ts: int) -> WindowSpan:
        low, high = windows.assign(ts)[0]
        return WindowSpan(low, high, min(high + windows.grace_ms, NEVER_MS))

    return span
