"""The base of all kinds of windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

from penstock.state.errors import TopologyError
from penstock.topologies.windows.durations import Duration, duration_ms

END_OF_TIME_MS = (1 << 63) - 1
"""The end of a window that has none."""
Time = Literal["event", "processing"]
Bounds = tuple[int, int]
"""Start and end of a window in milliseconds; the end is outside."""
NO_WINDOW_MS = -(1 << 62)
"""In place of a start: the timestamp has no window."""


class WindowSpan(NamedTuple):
    """The timestamps ``low <= ts < high`` have the same windows, the first of which closes at ``closes_ms`` (grace
    included); the window itself ends at ``high`` or later."""

    low: int
    high: int
    closes_ms: int


ALL_TIME = WindowSpan(-END_OF_TIME_MS, END_OF_TIME_MS, END_OF_TIME_MS)
"""One span for all timestamps, which never closes."""


class Windows:
    """How a stream is cut into windows: the base of frozen dataclasses, which are values.

    A window takes records until event time has come to its end + ``grace_ms``; later ones are late. With
    ``time="processing"`` a record's time is the journaled reading of the clock at its entry, and there is no grace.

    Operators ask windows what they are, and never for their class. ``ordered``: a record's windows follow from its timestamp
    alone, and are ordered by start and by end alike (``SpanWindows``). ``merging``: windows of one key grow together, so
    that a record's window depends on the records around it. ``disjoint``: those of one key are apart from each other after
    merging. ``endless``: there is one window, and it has no end.
    """

    grace_ms: int = 0
    time: Time = "event"
    ordered = False
    endless = False
    disjoint = False

    @property
    def merging(self) -> bool:
        """See the class."""
        return False

    @property
    def length_ms(self) -> int | None:
        """The length of every window; ``None`` where they differ, or have no end."""
        return None

    @property
    def horizon_ms(self) -> int | None:
        """How long after its start a window may still change, at most; ``None``: forever."""
        return None if self.length_ms is None else self.length_ms + self.grace_ms

    def assign(self, ts: int) -> list[Bounds]:
        """The windows of a timestamp, ascending by start. Not for windows that depend on more than the timestamp."""
        raise AssertionError(f"{type(self).__name__} cannot tell windows from a timestamp alone")

    def windows_of(self, key: Any, value: Any, ts: int) -> list[Bounds]:
        """The windows of a record (of merging kinds: before merging)."""
        return self.assign(ts)

    def merge(self, windows: Sequence[Bounds]) -> list[tuple[Bounds, list[Bounds]]]:
        """Grow windows of one key together: (window, members), by start. For ``merging`` kinds."""
        raise AssertionError(f"{type(self).__name__} do not merge")

    def describe(self) -> str:
        """The windows as ``describe`` prints them."""
        kind = type(self).__name__.removesuffix("Windows").removesuffix("Window").lower()
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(cast("Any", self)))
        return f"{kind}({', '.join(_shown(n, v) for n, v in fields if v not in (None, 0, 'event'))})"


def _shown(name: str, value: Any) -> str:
    if name.endswith("_ms"):
        return f"{name.removesuffix('_ms')}={value} ms"
    return f"{name}={getattr(value, '__name__', value)}"


def check_end(end_ms: int, ts: int) -> None:
    """Raises ``ValueError`` for the end of a window of a record that is behind the end of time: it cannot be stored."""
    if end_ms > END_OF_TIME_MS:
        raise ValueError(
            f"timestamp {ts} is too close to the end of time: its window would end at {end_ms}, and {END_OF_TIME_MS} is "
            "the last millisecond; timestamps are milliseconds since 1970; correct the record's timestamp"
        )


def check_positive(what: str, ms: int) -> None:
    """Raises ``TopologyError`` for a length below 1 ms."""
    if ms <= 0:
        raise TopologyError(f"a window's {what} must be above 0 ms, not {ms}")


def check_common(grace_ms: int, time: Time) -> None:
    """Raises ``TopologyError`` for a negative grace, an unknown time, and a grace in processing time."""
    if grace_ms < 0:
        raise TopologyError(f"a window's grace cannot be negative: {grace_ms} ms")
    if time not in ("event", "processing"):
        raise TopologyError(f"time={time!r} of a window is unknown; use 'event' or 'processing'")
    if time == "processing" and grace_ms:
        raise TopologyError(
            f"a window in processing time has no late records, so its grace of {grace_ms} ms would only delay it; "
            "leave grace out"
        )


def grace_of(grace: Duration | None, time: Time, call: str) -> int:
    """The grace that a user gave; in event time it has no default, because every choice loses either late records or
    memory."""
    if grace is not None:
        return duration_ms(grace)
    if time == "event":
        raise TopologyError(
            f"{call} needs a grace: how long after its end a window takes late records; "
            "name it: grace='1m', or grace=0 to drop every late record"
        )
    return 0
