"""Windows as values, one module a family: aligned to time, of the calendar, following the data. ``durations`` reads
lengths as users write them."""

from __future__ import annotations

from penstock.topologies.windows.aligned import (
    GlobalWindow,
    HoppingWindows,
    SpanWindows,
    TumblingWindows,
    UnlimitedWindows,
    global_window,
    hopping,
    tumbling,
    unlimited,
)
from penstock.topologies.windows.base import END_OF_TIME_MS, Bounds, Time, Windows
from penstock.topologies.windows.calendars import CalendarWindows, calendar
from penstock.topologies.windows.data_driven import (
    CustomWindows,
    SessionWindows,
    SlidingWindows,
    custom,
    merge_overlapping,
    session,
    sliding,
)
from penstock.topologies.windows.durations import duration_ms, offset_ms

__all__ = [
    "END_OF_TIME_MS",
    "Bounds",
    "CalendarWindows",
    "CustomWindows",
    "GlobalWindow",
    "HoppingWindows",
    "SessionWindows",
    "SlidingWindows",
    "SpanWindows",
    "Time",
    "TumblingWindows",
    "UnlimitedWindows",
    "Windows",
    "calendar",
    "custom",
    "duration_ms",
    "global_window",
    "hopping",
    "merge_overlapping",
    "offset_ms",
    "session",
    "sliding",
    "tumbling",
    "unlimited",
]
