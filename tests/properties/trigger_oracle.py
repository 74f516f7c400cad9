"""A naive operator for windows with triggers: plain objects, one record at a time, time moved millisecond by millisecond.

Triggers are tuples: ``("count", n)``, ``("end",)``, ``("after", early, late)``, ``("wall", delay)``, ``("wall_end",)``,
``("every", interval)``, ``("repeat", t)``, ``("any", t…)``, ``("all", t…)``, ``("each", t…)``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from typing import Any

Trigger = tuple[Any, ...]


@dataclasses.dataclass
class Now:
    """What time it is, for one window."""

    end: int
    event: int
    wall: int

    @property
    def over(self) -> bool:
        return self.event >= self.end - 1


class Node:
    """A trigger at work in one window."""

    def __init__(self, spec: Trigger) -> None:
        self.kind = spec[0]
        self.args = spec[1:]
        nested = [s for s in self.args if isinstance(s, tuple)]
        if self.kind == "after":
            nested = [("repeat", s) if s else ("never",) for s in self.args]
        self.kids = [Node(s) for s in nested]
        self.armed = False
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.due: int | None = None
        self.late = False
        self.place = 0
        if self.kind == "wall_end":
            self.armed = False
        for kid in self.kids:
            kid.reset()

    def active(self) -> list[Node]:
        if self.kind == "after":
            return [self.kids[1 if self.is_late else 0]]
        if self.kind == "each":
            return self.kids[self.place : self.place + 1]
        return self.kids

    @property
    def is_late(self) -> bool:
        return self.late and self.args[1] is not None

    def element(self, now: Now, ts: int) -> None:
        if self.kind == "count":
            self.seen += 1
        elif self.kind == "wall" and self.due is None:
            self.due = now.wall + self.args[0]
        elif self.kind == "every" and self.due is None and not now.over:
            self.due = (ts // self.args[0] + 1) * self.args[0]
        if not (self.kind == "after" and self.is_late):
            self.armed = True
        for kid in self.active():
            kid.element(now, ts)

    def ready(self, now: Now) -> bool:
        kids = [k.ready(now) for k in self.active()]
        if self.kind == "count":
            return bool(self.seen >= self.args[0])
        if self.kind == "wall":
            return self.due is not None and now.wall >= self.due
        if self.kind == "wall_end":
            return self.armed and now.wall >= now.end
        if self.kind == "every":
            return now.over or (self.due is not None and now.event >= self.due)
        if self.kind == "end":
            return now.over
        if self.kind == "never":
            return False
        if self.kind == "after":
            return (now.over and not self.is_late) or kids[0]
        return all(kids) if self.kind == "all" else any(kids)

    def fire(self, now: Now) -> bool:
        """Returns whether it is finished."""
        if self.kind in ("count", "wall"):
            return True
        if self.kind == "wall_end":
            self.armed = False
        if self.kind == "every" and self.due is not None and now.event >= self.due:
            self.due += self.args[0]
        if self.kind in ("end", "wall_end", "every"):
            return False
        if self.kind == "after":
            if now.over and not self.is_late:
                self.late = True
                return self.args[1] is None
            self.active()[0].fire(now)
            return False
        if self.kind == "repeat":
            if self.kids[0].fire(now):
                self.kids[0].reset()
            return False
        if self.kind == "each":
            if self.active() and self.active()[0].fire(now):
                self.place += 1
            return self.place == len(self.kids)
        results = [k.fire(now) for k in self.kids if k.ready(now)]
        return all(results) if self.kind == "all" else any(results)

    def absorb(self, other: Node) -> None:
        """Another window is merged into this one's."""
        self.seen += other.seen
        dues = [d for d in (self.due, other.due) if d is not None]
        self.due = min(dues, default=None)
        self.late |= other.late
        self.armed |= other.armed
        self.place = max(self.place, other.place)
        for mine, theirs in zip(self.kids, other.kids, strict=True):
            mine.absorb(theirs)

    def event_timer(self, now: Now) -> bool:
        """Whether it wants to be asked at this very event time."""
        last = now.event == now.end - 1 and self.armed
        if self.kind == "end" or (self.kind == "after" and not self.is_late):
            own = last
        elif self.kind == "every":
            own = now.event == now.end - 1 or (not now.event > now.end - 1 and self.due == now.event)
        else:
            own = False
        return own or any(k.event_timer(now) for k in self.active())

    def wall_timer(self, now: Now) -> bool:
        """Whether it wants to be asked at this very time of the clock."""
        own = (self.kind == "wall" and self.due == now.wall) or (
            self.kind == "wall_end" and self.armed and now.wall == now.end
        )
        return own or any(k.wall_timer(now) for k in self.active())

    def has_end(self) -> bool:
        return self.kind in ("end", "after") or any(k.has_end() for k in self.kids)


@dataclasses.dataclass
class Window:
    """A window of one key."""

    key: str
    start: int
    end: int
    trigger: Node
    values: list[Any] = dataclasses.field(default_factory=list)
    fresh: int = 0
    holds: list[int] = dataclasses.field(default_factory=list)
    finished: bool = False
    index: int = 0
    later: int = 0
    emitted: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)

    @property
    def order(self) -> tuple[str, int, int]:
        return (self.key, self.start, self.end)


@dataclasses.dataclass(frozen=True)
class How:
    """``windows``: ``("hop", size, advance)``, ``("session", gap, touching)``. ``processing``: by the clock."""

    windows: tuple[Any, ...]
    trigger: Trigger
    accumulation: str
    lateness: int
    combiner: str
    closing: str
    late_by: str
    processing: bool = False


class Oracle:
    """See the module. ``out``: rows ``(key, start, end, values, ts, retraction, timing, first, last, index, later)``."""

    def __init__(self, how: How, delay: int) -> None:
        self.how = how
        self.delay = delay
        self.event = -1
        self.wall = 0
        self.windows: list[Window] = []
        self.out: list[tuple[Any, ...]] = []
        self.late: list[tuple[str, Any, int]] = []
        self.dropped: Counter[str] = Counter()

    @property
    def time(self) -> int:
        return self.wall - 1 if self.how.processing else (self.event if self.event >= 0 else -(10**9))

    def closed(self, end: int) -> bool:
        return end - 1 + self.how.lateness <= self.time

    def record(self, key: str, value: Any, ts: int) -> None:
        self._record(key, value, self.wall if self.how.processing else ts, ts)
        target = ts - self.delay - 1
        while self.event < target:
            self.event += 1
            if not self.how.processing:
                self._tick(self.event, [])

    def clock(self, to: int) -> None:
        while self.wall < to:
            self.wall += 1
            asked = []
            for window in sorted(self.windows, key=lambda w: w.order):
                now = Now(window.end, self.time, self.wall)
                if not window.finished and window.trigger.wall_timer(now):
                    asked.append(window)
                    self._ask(window, now, on_timer=self.how.processing)
            if self.how.processing:
                self._tick(self.wall - 1, asked)

    def _tick(self, time: int, asked: list[Window]) -> None:
        """``asked``: those that were asked at this very instant already."""
        for window in sorted(self.windows, key=lambda w: w.order):
            now = Now(window.end, time, self.wall)
            if window not in asked and not window.finished and window.trigger.event_timer(now):
                self._ask(window, now, on_timer=True)
        for window in sorted(self.windows, key=lambda w: w.order):
            if window.end - 1 + self.how.lateness == time:
                wanted = self.how.closing == "fire_always" or (self.how.closing == "fire_if_fresh" and window.fresh)
                if wanted and not window.finished:
                    self._pane(window, Now(window.end, time, self.wall), on_timer=True, finished=True)
                self.windows.remove(window)

    def _ask(self, window: Window, now: Now, *, on_timer: bool) -> None:
        if window.trigger.ready(now):
            self._pane(window, now, on_timer=on_timer, finished=window.trigger.fire(now))

    def _record(self, key: str, value: Any, time: int, ts: int) -> None:
        taken = [w for w in self._places(key, time) if not self.closed(w.end)]
        if not taken:
            self.dropped["late"] += 1
            self.late.append((key, value, ts))
            return
        alive = [w for w in taken if not w.finished]
        self.dropped["finished"] += not alive
        for window in alive:
            window.values.append(value)
            window.fresh += 1
            if self.how.processing or time > self.time:
                window.holds.append(time)
            now = Now(window.end, self.time, self.wall)
            window.trigger.element(now, time)
            self._ask(window, now, on_timer=False)

    def _places(self, key: str, time: int) -> list[Window]:
        kind, size, extra = self.how.windows
        if kind == "session":
            return self._session(key, time, size, extra)
        bounds = [(s, s + size) for s in range((time - size) // extra * extra, time + 1, extra) if s <= time < s + size]
        return [self._find(key, *b) for b in bounds if not self.closed(b[1])]

    def _find(self, key: str, start: int, end: int) -> Window:
        for window in self.windows:
            if window.order == (key, start, end):
                return window
        window = Window(key, start, end, Node(self.how.trigger))
        self.windows.append(window)
        return window

    def _session(self, key: str, time: int, gap: int, touching: bool) -> list[Window]:
        start, end = time, time + gap
        if self.how.late_by == "record" and self.closed(end):
            return []
        parts: list[Window] = []
        grown = True
        while grown:
            grown = False
            for window in self.windows:
                meets = window.start < end and start < window.end
                if touching:
                    meets = window.start <= end and start <= window.end
                if window.key == key and meets and window not in parts:
                    parts.append(window)
                    start, end, grown = min(start, window.start), max(end, window.end), True
        if self.closed(end):
            return []
        parts.sort(key=lambda w: w.order)
        if len(parts) == 1 and (parts[0].start, parts[0].end) == (start, end):
            return parts
        whole = Window(key, start, end, Node(self.how.trigger))
        for part in parts:
            self.windows.remove(part)
            whole.values += part.values
            whole.fresh += part.fresh
            whole.holds += part.holds
            whole.finished |= part.finished
            whole.emitted += part.emitted
            if (part.start, part.end) == (start, end):
                whole.index, whole.later = part.index, part.later
        if parts:
            whole.trigger = copy.deepcopy(parts[0].trigger)
            for part in parts[1:]:
                whole.trigger.absorb(part.trigger)
        self.windows.append(whole)
        return [whole]

    def _pane(self, window: Window, now: Now, *, on_timer: bool, finished: bool) -> None:
        how, node = self.how, window.trigger
        on_time = now.over and on_timer and window.later == 0
        if window.values or (on_time and node.has_end()):
            later = window.later if now.over or window.later else -1
            timing = "EARLY" if not now.over else "ON_TIME" if on_time else "LATE"
            info = (timing, window.index == 0, finished, window.index, later)
            ts = now.end - 1
            if window.holds and how.combiner != "end_of_window":
                ts = (min if how.combiner == "earliest" else max)(window.holds)
            if now.over or not node.has_end():
                window.holds = []
            for start, end, *past in window.emitted:
                if how.accumulation == "accumulating_and_retracting":
                    self.out.append((window.key, start, end, past[0], past[1], True, *past[2]))
                elif (start, end) != (window.start, window.end):
                    self.out.append((window.key, start, end, None, ts, False, *info))
            values = list(window.values)
            self.out.append((window.key, window.start, window.end, values, ts, False, *info))
            window.emitted = []
            if how.accumulation == "accumulating_and_retracting" and not finished:
                window.emitted = [(window.start, window.end, values, ts, info)]
            elif how.accumulation == "accumulating" and how.windows[0] == "session":
                window.emitted = [(window.start, window.end)]
            window.index += 1
            window.later += later >= 0
        window.fresh = 0
        if finished or how.accumulation == "discarding":
            window.values = []
        window.finished = window.finished or finished
