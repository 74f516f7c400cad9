"""Windowed aggregation the naive way: one record at a time, dictionaries, windows found by looking at all of them."""

from __future__ import annotations

import dataclasses
import datetime
import random
from typing import Any
from zoneinfo import ZoneInfo

from penstock.topologies import windows as w

HOUR_MS = 3_600_000
BERLIN_MS = 1_774_700_000_000
"""The day before clocks are set forward, in March 2026."""


@dataclasses.dataclass(frozen=True)
class Put:
    """A record; one of value ``hide`` is filtered before the windows, but moves watermarks."""

    key: str | None
    value: str | None
    ts: int


@dataclasses.dataclass(frozen=True)
class Commit:
    """A commit; with ``restart`` the task starts anew, with ``restore`` from its changelog."""

    restart: bool = False
    restore: bool = False


@dataclasses.dataclass(frozen=True)
class Wait:
    """The clock goes on."""

    ms: int


Step = Put | Commit | Wait
Row = tuple[Any, ...]


@dataclasses.dataclass
class Trial:
    """One random window specification with its input."""

    windows: w.Windows
    emission: str
    delay_ms: int | None
    steps: list[Step]


def spread(key: str, value: str, ts: int) -> list[tuple[int, int]]:
    """Custom windows: two of different length around a record, none for some."""
    return [] if value == "g" else [(ts - ts % 7, ts + 5), (ts - 3, ts - 3 + 4 * (1 + ts % 3))]


def random_windows(rng: random.Random) -> w.Windows:
    """Any kind that does not merge."""
    kind = rng.choice(("tumbling", "offset", "hopping", "hopping", "gaps", "beam", "day", "unlimited", "custom"))
    grace = rng.choice((0, 0, 3, 20))
    processing = rng.random() < 0.2
    time: dict[str, Any] = {"time": "processing"} if processing else {"grace": grace}
    if kind == "tumbling":
        return w.tumbling(rng.choice((1, 5, 10)), **time)
    if kind == "offset":
        return w.tumbling(7, offset=rng.choice((3, -2)), **time)
    if kind == "hopping":
        return w.hopping(rng.choice((10, 12)), rng.choice((5, 4, 3)), **time)
    if kind == "gaps":
        return w.hopping(4, 6, **time)
    if kind == "beam":
        return w.hopping(9, 3, offset=1, before_epoch=True, **time)
    if kind == "day":
        return w.calendar("day", "Europe/Berlin", grace=grace * HOUR_MS)
    if kind == "unlimited":
        return w.unlimited(12)
    return w.custom(spread, max_size=15, **time)


def random_trial(rng: random.Random) -> Trial:
    """Windows, emission and input: times that wander forward with late records, jumps, nulls, commits, restarts."""
    windows = random_windows(rng)
    emission = rng.choice(("every_update", "per_commit", "on_close"))
    if isinstance(windows, w.UnlimitedWindows) and emission == "on_close":
        emission = "every_update"
    scale, base = (HOUR_MS, BERLIN_MS) if isinstance(windows, w.CalendarWindows) else (1, 0)
    steps: list[Step] = []
    now = rng.choice((0, 0, 50))
    for _ in range(rng.randint(5, 60)):
        chance = rng.random()
        if chance < 0.06:
            steps.append(Commit(restart=rng.random() < 0.5, restore=rng.random() < 0.5))
        elif chance < 0.15:
            steps.append(Wait(rng.choice((1, 3, 10, 40))))
        else:
            now += rng.choice((0, 0, 1, 1, 2, 3, 9, 60 if rng.random() < 0.2 else 0))
            ts = max(now - rng.choice((0, 0, 0, 1, 2, 7, 30)), 0)
            value = rng.choice(("a", "b", "c", "g", "hide", None if rng.random() < 0.4 else "d"))
            key = None if rng.random() < 0.03 else rng.choice(("x", "y", "zz"))
            steps.append(Put(key, value, base + ts * scale))
    return Trial(windows, emission, rng.choice((None, None, 0, 4)), steps)


def all_windows(windows: w.Windows, key: str, value: str, ts: int) -> list[tuple[int, int]]:
    """The windows of a record, among all that there are near it."""
    if isinstance(windows, w.CustomWindows):
        return sorted(set(spread(key, value, ts)))
    if isinstance(windows, w.UnlimitedWindows):
        return [(windows.start_ms, w.END_OF_TIME_MS)] if ts >= windows.start_ms else []
    if isinstance(windows, w.CalendarWindows):
        zone = ZoneInfo(windows.zone)
        day = datetime.datetime.fromtimestamp(ts / 1000, zone).date()
        ends = [datetime.datetime.combine(d, datetime.time(), zone) for d in (day, day + datetime.timedelta(days=1))]
        return [(round(ends[0].timestamp()) * 1000, round(ends[1].timestamp()) * 1000)]
    assert isinstance(windows, w.TumblingWindows | w.HoppingWindows)
    step = windows.advance_ms if isinstance(windows, w.HoppingWindows) else windows.size_ms
    first = ts - ts % step - 10 * step * (windows.size_ms // step + 1)
    starts = (s for s in range(first, ts + 1) if (s - windows.offset_ms) % step == 0)
    some = [(s, s + windows.size_ms) for s in starts if s <= ts < s + windows.size_ms]
    if isinstance(windows, w.HoppingWindows) and not windows.before_epoch:
        return [x for x in some if x[0] >= 0]
    return some


@dataclasses.dataclass
class Found:
    """What came out: results, late records, and how many were late or in no window."""

    rows: list[Row]
    late: list[Row]
    outside: int = 0


class Oracle:
    """Runs a trial. ``rows``: (key, start, end, value, timestamp, old value)."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._time = -1
        self._highest = -1
        self._wall = 0
        self._state: dict[tuple[int, int, str], tuple[str, int]] = {}
        self._open: set[tuple[int, int, str]] = set()
        self._changed: dict[tuple[int, int, str], str | None] = {}
        self._gone: dict[tuple[int, int, str], int] = {}
        self.found = Found([], [])

    def run(self) -> Found:
        """All steps, and a commit at the end."""
        for step in self._trial.steps:
            if isinstance(step, Put):
                self._put(step)
            elif isinstance(step, Commit):
                self._commit()
            else:
                self._wall += step.ms
                if self._trial.windows.time == "processing":
                    self._pass(self._wall)
        self._commit()
        return self.found

    def _put(self, record: Put) -> None:
        trial = self._trial
        processing = trial.windows.time == "processing"
        self._highest = max(self._highest, record.ts)
        if record.value != "hide" and record.key is not None and record.value is not None:
            at = self._wall if processing else record.ts
            if processing or trial.delay_ms is None:
                self._time = max(self._time, at)
            self._take(record.key, record.value, at, record.ts)
        if trial.delay_ms is not None and not processing:
            self._time = max(self._time, self._highest - trial.delay_ms)
        self._pass(self._time)

    def _take(self, key: str, value: str, at: int, ts: int) -> None:
        some = all_windows(self._trial.windows, key, value, at)
        grace = self._trial.windows.grace_ms
        opened = [x for x in some if x[1] + grace > self._time]
        if some and not opened:
            self.found.late.append((key, value, ts))
        if not some:
            self.found.outside += 1
        for start, end in opened:
            at_key = (start, end, key)
            old, latest = self._state.get(at_key, (None, -1))
            new = value if old is None else f"{old}+{value}"
            self._state[at_key] = (new, max(latest, at))
            self._open.add(at_key)
            self._changed.setdefault(at_key, old)
            if self._trial.emission == "every_update":
                self.found.rows.append((key, start, end, new, max(latest, at), old))

    def _pass(self, now: int) -> None:
        """Time is ``now``."""
        self._time = max(self._time, now)
        done = sorted(x for x in self._open if x[1] + self._trial.windows.grace_ms <= self._time)
        for start, end, key in sorted(done, key=lambda x: (x[0], x[2].encode(), x[1])):
            self._open.discard((start, end, key))
            if self._trial.emission == "on_close":
                self.found.rows.append((key, start, end, *self._state[start, end, key], None))

    def _commit(self) -> None:
        if self._trial.emission == "per_commit":
            for (start, end, key), old in self._changed.items():
                row = self._state.get((start, end, key), (None, self._gone.get((start, end, key), -1)))
                if row[0] is not None or old is not None:
                    self.found.rows.append((key, start, end, *row, old))
        self._changed.clear()


class MergingOracle(Oracle):
    """Windows ``[ts, ts + gap)`` that become one where they overlap, or touch if they may."""

    def __init__(self, trial: Trial, gap: int, *, touching: bool) -> None:
        super().__init__(trial)
        self._gap = gap
        self._touching = touching

    def _take(self, key: str, value: str, at: int, ts: int) -> None:
        start, end = at, at + self._gap
        members: list[tuple[int, int, str]] = []
        reach = 1 if self._touching else 0
        while True:
            more = [
                x
                for x in self._open
                if x[2] == key and x not in members and x[0] < end + reach and start < x[1] + reach
            ]
            if not more:
                break
            members += more
            start, end = min(start, *(x[0] for x in more)), max(end, *(x[1] for x in more))
        if end + self._trial.windows.grace_ms <= self._time:
            self.found.late.append((key, value, ts))
            return
        members.sort(key=lambda x: (x[1], x[0]))
        merged = (start, end, key)
        rows = [self._state.pop(x) for x in members]
        before = dict(zip(members, (row[0] for row in rows), strict=True))
        latest = max(at, *(row[1] for row in rows)) if rows else at
        for member, (old, gone_ms) in zip(members, rows, strict=True):
            self._open.discard(member)
            if member != merged:
                self._gone[member] = gone_ms
                self._changed.setdefault(member, old)
                if self._trial.emission == "every_update":
                    self.found.rows.append((key, member[0], member[1], None, gone_ms, old))
        new = "+".join([*(row[0] for row in rows), value])
        self._state[merged] = (new, latest)
        self._open.add(merged)
        self._changed.setdefault(merged, before.get(merged))
        if self._trial.emission == "every_update":
            self.found.rows.append((key, start, end, new, latest, before.get(merged)))
