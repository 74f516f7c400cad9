"""Windows that follow the data: sliding ones, sessions, and those that users make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from penstock.state.errors import TopologyError
from penstock.topologies.windows.base import Bounds, Time, Windows, check_common, check_positive, grace_of
from penstock.topologies.windows.durations import Duration, duration_ms

GapFunction = Callable[[Any, Any], int]
AssignFunction = Callable[[Any, Any, int], Iterable[Bounds]]
MergeFunction = Callable[[Sequence[Bounds]], Iterable[tuple[Bounds, Sequence[Bounds]]]]
SessionBounds = Literal["records", "gap"]


@dataclasses.dataclass(frozen=True)
class SlidingWindows(Windows):
    """For each record the window that ends with it and the one that starts right behind it, ``difference_ms`` long, both
    ends inside: every set of records that lie within the difference (Kafka Streams)."""

    difference_ms: int
    grace_ms: int = 0

    def __post_init__(self) -> None:
        check_common(self.grace_ms, self.time)
        if self.difference_ms < 0:
            raise TopologyError(f"a sliding window's difference cannot be negative: {self.difference_ms} ms")

    @property
    def horizon_ms(self) -> int:
        """A record is in windows that reach a difference to both sides of it."""
        return 2 * self.difference_ms + self.grace_ms


@dataclasses.dataclass(frozen=True)
class SessionWindows(Windows):
    """Sessions: records of a key that are no further than a gap from each other, in order of time.

    ``gap_ms``, or ``gap_fn(key, value)`` in milliseconds for each record. ``bounds``: ``records``: a session is
    ``[first, last]``, both inside (Kafka Streams); ``gap``: ``[first, last + gap)`` (Beam, Flink). ``touching``: whether
    a distance of exactly the gap is within it (Kafka Streams, Flink; not Beam). With a function a record's own gap
    reaches forward from it.
    """

    gap_ms: int = 0
    grace_ms: int = 0
    gap_fn: GapFunction | None = None
    bounds: SessionBounds = "records"
    touching: bool = True
    time: Time = "event"
    disjoint = True

    def __post_init__(self) -> None:
        check_common(self.grace_ms, self.time)
        if self.gap_ms < 0:
            raise TopologyError(f"a session's gap cannot be negative: {self.gap_ms} ms")
        if self.bounds not in ("records", "gap"):
            raise TopologyError(f"bounds={self.bounds!r} of sessions is unknown; use 'records' or 'gap'")

    @property
    def merging(self) -> bool:
        """Sessions grow together."""
        return True

    @property
    def horizon_ms(self) -> int | None:
        """After its last record; unknown with gaps of records' own."""
        return None if self.gap_fn is not None else self.gap_ms + self.grace_ms

    def gap_of(self, key: Any, value: Any) -> int:
        """The gap behind a record. Raises ``ValueError`` for an invalid result of the gap function."""
        if self.gap_fn is None:
            return self.gap_ms
        gap = self.gap_fn(key, value)
        if not isinstance(gap, int) or isinstance(gap, bool) or gap < 0:
            raise ValueError(f"the gap function gave {gap!r:.100}; it must give milliseconds as an int, 0 or more")
        return gap

    def assign(self, ts: int) -> list[Bounds]:
        """The session of one record alone, ``[ts, ts + gap)``."""
        return [(ts, ts + self.gap_ms)]

    def windows_of(self, key: Any, value: Any, ts: int) -> list[Bounds]:
        """The session of one record alone, ``[ts, ts + gap)``."""
        return [(ts, ts + self.gap_of(key, value))]

    def merge(self, windows: Sequence[Bounds]) -> list[tuple[Bounds, list[Bounds]]]:
        """Half-open windows grown together: (window, members), by start."""
        return merge_overlapping(windows, touching=self.touching)


@dataclasses.dataclass(frozen=True)
class CustomWindows(Windows):
    """Windows that a function of the record makes: ``fn(key, value, ts)`` gives ``(start, end)`` pairs, none longer than
    ``max_size_ms``. It must be a pure function, and a window must end behind the record.

    ``merge_fn(windows)``: windows of one key that grow together: it is given all that there are, by start, and gives
    ``(merged window, members)`` for those that change; ``merge_overlapping`` is one.
    """

    fn: AssignFunction
    max_size_ms: int
    grace_ms: int = 0
    merge_fn: MergeFunction | None = None
    time: Time = "event"

    def __post_init__(self) -> None:
        check_common(self.grace_ms, self.time)
        check_positive("greatest size", self.max_size_ms)
        for fn in (self.fn, self.merge_fn):
            if fn is not None and not callable(fn):
                raise TopologyError(f"custom windows need functions, not {fn!r:.100}")

    @property
    def merging(self) -> bool:
        """Whether there is a function that merges."""
        return self.merge_fn is not None

    @property
    def horizon_ms(self) -> int:
        """The longest window + grace."""
        return self.max_size_ms + self.grace_ms

    def windows_of(self, key: Any, value: Any, ts: int) -> list[Bounds]:
        """The windows that the function returns, ascending, each once. Raises ``ValueError`` for an invalid window."""
        made = sorted({(start, end) for start, end in self.fn(key, value, ts)})
        for start, end in made:
            if not (isinstance(start, int) and isinstance(end, int) and start < end):
                raise ValueError(f"the window function gave ({start!r}, {end!r}); it must give ints with start < end")
            if end - start > self.max_size_ms:
                raise ValueError(
                    f"the window function gave ({start}, {end}), which is longer than {self.max_size_ms} ms; "
                    "raise max_size, which decides how long state is kept"
                )
            if end <= ts:
                raise ValueError(
                    f"the window function gave ({start}, {end}) for a record of {ts}, which ends before that"
                )
        return made

    def merge(self, windows: Sequence[Bounds]) -> list[tuple[Bounds, list[Bounds]]]:
        """Windows grown together: (window, members) of those that change."""
        assert self.merge_fn is not None
        return [((w[0], w[1]), [(m[0], m[1]) for m in members]) for w, members in self.merge_fn(sorted(set(windows)))]


def merge_overlapping(windows: Iterable[Bounds], *, touching: bool = False) -> list[tuple[Bounds, list[Bounds]]]:
    """Half-open windows with those they overlap as one: (window, members), by start. ``touching``: also where one begins
    at the other's end."""
    groups: list[tuple[Bounds, list[Bounds]]] = []
    for window in sorted(windows):
        if groups:
            (start, end), members = groups[-1]
            if window[0] < end or (touching and window[0] == end):
                groups[-1] = ((start, max(end, window[1])), [*members, window])
                continue
        groups.append((window, [window]))
    return groups


def sliding(difference: Duration, *, grace: Duration | None = None) -> SlidingWindows:
    """Sliding windows; ``grace`` must be named."""
    return SlidingWindows(duration_ms(difference), grace_of(grace, "event", "sliding"))


def session(
    gap: Duration | GapFunction,
    *,
    grace: Duration | None = None,
    bounds: SessionBounds = "records",
    touching: bool = True,
    time: Time = "event",
) -> SessionWindows:
    """Sessions; ``gap`` is a duration or a function ``(key, value)`` that gives milliseconds; ``grace`` must be named in
    event time."""
    grace_ms = grace_of(grace, time, "session")
    if callable(gap):
        return SessionWindows(0, grace_ms, gap, bounds, touching, time)
    return SessionWindows(duration_ms(gap), grace_ms, None, bounds, touching, time)


def custom(
    fn: AssignFunction,
    *,
    max_size: Duration,
    grace: Duration | None = None,
    merge: MergeFunction | None = None,
    time: Time = "event",
) -> CustomWindows:
    """Windows that ``fn(key, value, ts)`` makes; ``grace`` must be named in event time."""
    return CustomWindows(fn, duration_ms(max_size), grace_of(grace, time, "custom"), merge, time)
