"""Windows whose bounds follow from the timestamp: tumbling, hopping, unlimited, and the global one.

Windows that start before 1970 exist only for tumbling windows with an offset (a record must have a window), and for
hopping windows that ask for them (``before_epoch``), as Beam and Flink have them; Kafka Streams has none.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from penstock.state.errors import TopologyError
from penstock.topologies.windows.base import (
    ALL_TIME,
    END_OF_TIME_MS,
    NO_WINDOW_MS,
    Bounds,
    Time,
    Windows,
    WindowSpan,
    check_common,
    check_positive,
    grace_of,
)
from penstock.topologies.windows.durations import Duration, duration_ms, offset_ms

_Ints = NDArray[np.int64]


class SpanWindows(Windows):
    """Windows without overlap that cover time, and hopping ones: both can be ordered by start, and then their ends are
    ordered too."""

    ordered = True
    offset_ms: int = 0

    @property
    def step_ms(self) -> int | None:
        """How far the starts of two windows in succession are apart; ``None`` where that differs."""
        return None

    @property
    def overlapping(self) -> bool:
        """Whether a timestamp may have several windows."""
        return self.step_ms is not None and self.length_ms is not None and self.step_ms < self.length_ms

    @property
    def slot_ms(self) -> int:
        """How long slots are: timestamps of one slot have the same windows, and slots follow each other from ``offset_ms``
        on. 0: there are no slots of one length."""
        return 0 if self.step_ms is None or self.length_ms is None else math.gcd(self.step_ms, self.length_ms)

    @property
    def epoch_aligned(self) -> bool:
        """Whether each timestamp has one window, which starts at a multiple of ``length_ms``."""
        return self.step_ms is not None and self.step_ms == self.length_ms and self.offset_ms == 0

    def starts_of(self, times: _Ints) -> _Ints | None:
        """The start of each timestamp's one window, ``NO_WINDOW_MS`` without one. ``None``: that is not to be had of these
        as a column, or there may be several."""
        return None

    def same_windows(self, ts: int) -> WindowSpan:
        """The timestamps around one that have the same windows."""
        bounds, slot = self.assign(ts), self.slot_ms
        closes_ms = min(bounds[0][1] + self.grace_ms, END_OF_TIME_MS) if bounds else END_OF_TIME_MS
        if slot:
            low = ts - (ts - self.offset_ms) % slot
            return WindowSpan(low, low + slot, closes_ms)
        low, high = bounds[0] if bounds else (ALL_TIME.low, self.open_from(ts))
        return WindowSpan(low, high, closes_ms)

    def open_from(self, t: int) -> int:
        """The lowest start of a window whose end is above ``t``."""
        raise AssertionError(type(self).__name__)

    def end_of(self, start: int) -> int:
        """The end of the window that starts then."""
        raise AssertionError(type(self).__name__)


@dataclasses.dataclass(frozen=True)
class TumblingWindows(SpanWindows):
    """Windows ``[offset + n * size, offset + (n + 1) * size)``, aligned to the epoch.

    A record updates its window while ``window end > stream time - grace``, stream time being the highest timestamp that
    the operator has seen, this record's included (Kafka Streams, TimeWindows). Later ones are late.
    """

    size_ms: int
    grace_ms: int = 0
    offset_ms: int = 0
    time: Time = "event"

    def __post_init__(self) -> None:
        check_positive("size", self.size_ms)
        check_common(self.grace_ms, self.time)

    @property
    def length_ms(self) -> int:
        """The size."""
        return self.size_ms

    @property
    def step_ms(self) -> int:
        """The size."""
        return self.size_ms

    def starts_of(self, times: _Ints) -> _Ints:
        """Each timestamp has a window."""
        return times - (times - self.offset_ms) % self.size_ms

    def assign(self, ts: int) -> list[Bounds]:
        """The one window of a timestamp."""
        start = ts - (ts - self.offset_ms) % self.size_ms
        return [(start, start + self.size_ms)]

    def open_from(self, t: int) -> int:
        """The window around ``t`` is the first whose end is above it."""
        return t - (t - self.offset_ms) % self.size_ms

    def end_of(self, start: int) -> int:
        """Start + size."""
        return start + self.size_ms


@dataclasses.dataclass(frozen=True)
class HoppingWindows(SpanWindows):
    """Windows of ``size_ms`` that start every ``advance_ms``, at ``offset + n * advance``: a record has several when they
    overlap, and may have none when they leave gaps. Windows that start before 1970 are left out (Kafka Streams), unless
    ``before_epoch``."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0
    offset_ms: int = 0
    time: Time = "event"
    before_epoch: bool = False

    def __post_init__(self) -> None:
        check_positive("size", self.size_ms)
        check_positive("advance", self.advance_ms)
        check_common(self.grace_ms, self.time)

    @property
    def length_ms(self) -> int:
        """The size."""
        return self.size_ms

    @property
    def step_ms(self) -> int:
        """The advance."""
        return self.advance_ms

    def starts_of(self, times: _Ints) -> _Ints | None:
        """Where windows do not overlap, and end within 63 bits."""
        if self.overlapping or int(times.max(initial=0)) >= -NO_WINDOW_MS:
            return None
        into = (times - self.offset_ms) % self.advance_ms
        inside = (into < self.size_ms) & (self.before_epoch | (times >= into))
        return np.where(inside, times - into, NO_WINDOW_MS)

    def assign(self, ts: int) -> list[Bounds]:
        """All windows that hold a timestamp."""
        last = ts - (ts - self.offset_ms) % self.advance_ms
        count = (self.size_ms - (ts - last) - 1) // self.advance_ms + 1
        first = last - (count - 1) * self.advance_ms
        if first < 0 and not self.before_epoch:
            first = self.offset_ms % self.advance_ms
        return [(start, start + self.size_ms) for start in range(first, last + 1, self.advance_ms)]

    def open_from(self, t: int) -> int:
        """The lowest start above ``t - size``."""
        least = t - self.size_ms + 1
        if not self.before_epoch:
            least = max(least, 0)
        return least + (self.offset_ms - least) % self.advance_ms

    def end_of(self, start: int) -> int:
        """Start + size."""
        return start + self.size_ms


@dataclasses.dataclass(frozen=True)
class UnlimitedWindows(SpanWindows):
    """One window that starts at ``start_ms`` and never ends; records before it are in none (Kafka Streams). It is never
    dropped: the state grows with the keys."""

    start_ms: int = 0
    endless = True

    def __post_init__(self) -> None:
        if self.start_ms < 0:
            raise TopologyError(f"an unlimited window cannot start before 1970: {self.start_ms} ms")

    def assign(self, ts: int) -> list[Bounds]:
        """The window, or none."""
        return [(self.start_ms, END_OF_TIME_MS)] if ts >= self.start_ms else []

    def open_from(self, t: int) -> int:
        """It never closes."""
        return self.start_ms

    def end_of(self, start: int) -> int:
        """None that will come."""
        return END_OF_TIME_MS


@dataclasses.dataclass(frozen=True)
class GlobalWindow(SpanWindows):
    """One window for everything (Beam, Flink): for triggers, and for aggregates that run on. Never dropped."""

    endless = True

    def same_windows(self, ts: int) -> WindowSpan:
        """All."""
        return ALL_TIME

    def assign(self, ts: int) -> list[Bounds]:
        """The window."""
        return [(0, END_OF_TIME_MS)]

    def open_from(self, t: int) -> int:
        """It never closes."""
        return 0

    def end_of(self, start: int) -> int:
        """None that will come."""
        return END_OF_TIME_MS


def tumbling(
    size: Duration, *, grace: Duration | None = None, offset: Duration = 0, time: Time = "event"
) -> TumblingWindows:
    """Tumbling windows; ``grace`` must be named in event time."""
    return TumblingWindows(duration_ms(size), grace_of(grace, time, "tumbling"), offset_ms(offset), time)


def hopping(
    size: Duration,
    advance: Duration,
    *,
    grace: Duration | None = None,
    offset: Duration = 0,
    time: Time = "event",
    before_epoch: bool = False,
) -> HoppingWindows:
    """Hopping windows; ``grace`` must be named in event time."""
    return HoppingWindows(
        duration_ms(size),
        duration_ms(advance),
        grace_of(grace, time, "hopping"),
        offset_ms(offset),
        time,
        before_epoch,
    )


def unlimited(start_ms: int = 0) -> UnlimitedWindows:
    """One window without end from ``start_ms`` (milliseconds since 1970) on."""
    return UnlimitedWindows(start_ms)


def global_window() -> GlobalWindow:
    """One window for everything."""
    return GlobalWindow()
