"""Windows as values, one module a family: aligned to time, of the calendar, following the data, by
policies (``evicting``). ``durations`` reads
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
from penstock.topologies.windows.base import ALL_TIME, END_OF_TIME_MS, NO_WINDOW_MS, Bounds, Time, Windows, WindowSpan
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
from penstock.topologies.windows.durations import Duration, duration_ms, offset_ms
from penstock.topologies.windows.evicting import (
    EvictingWindows,
    count_sliding,
    count_tumbling,
    delta_tumbling,
    evicting,
    punctuated_by,
)

__all__ = [
    "ALL_TIME",
    "END_OF_TIME_MS",
    "Bounds",
    "CalendarWindows",
    "CustomWindows",
    "Duration",
    "EvictingWindows",
    "GlobalWindow",
    "HoppingWindows",
    "NO_WINDOW_MS",
    "SessionWindows",
    "SlidingWindows",
    "SpanWindows",
    "Time",
    "TumblingWindows",
    "UnlimitedWindows",
    "WindowSpan",
    "Windows",
    "calendar",
    "count_sliding",
    "count_tumbling",
    "custom",
    "delta_tumbling",
    "duration_ms",
    "evicting",
    "global_window",
    "hopping",
    "merge_overlapping",
    "offset_ms",
    "punctuated_by",
    "session",
    "sliding",
    "tumbling",
    "unlimited",
]
