"""Sessions on columns: records of one key that certainly meet in one open session are one piece, which joins the stored
sessions as a whole.

A piece holds records that are next to each other among those of their key, in the order of arrival. Each is within the
gap of the one before it, whose session, even if it had no other record, is still open when it comes. So no session closes
within a piece, and only a record that is a piece of its own may be late.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from penstock.topologies.operator_api.columns import Ints, Places


class SessionRules(NamedTuple):
    """Sessions with one gap, in milliseconds. A session is stored under its end, reaches to its end + ``behind``, closes
    when T is its end + ``closes_after``, and is kept until T passes its end + ``keep``. ``touching``: see
    ``SessionWindows``."""

    gap: int
    touching: bool
    behind: int
    closes_after: int
    keep: int

    @property
    def past_reach(self) -> int:
        """By how much T must have come past a session's reach for it to close."""
        return self.closes_after - self.behind


class Timeline:
    """An operator's time T along a batch. T moves at positions: at the records themselves, or between them, where it follows
    the watermark. ``levels[p]`` is T before position p and ``levels[p + 1]`` behind it; ``at`` are the positions of
    the records, of which each sees the moves at lower ones."""

    def __init__(self, levels: Ints, at: Ints, *, moved_by_records: bool) -> None:
        self.levels = levels
        self.at = at
        self.moved_by_records = moved_by_records
        self._behind: list[int] = levels[1:].tolist()

    @classmethod
    def of_records(cls, before_ms: int, times: Ints) -> Timeline:
        """T is the highest timestamp so far."""
        levels = np.empty(len(times) + 1, np.int64)
        levels[0] = before_ms
        levels[1:] = times
        return cls(np.maximum.accumulate(levels), np.arange(len(times)), moved_by_records=True)

    @classmethod
    def of_marks(cls, before_ms: int, marks: list[int], at: Ints) -> Timeline:
        """T follows the watermark, which was ``marks[p]`` behind the record at position p."""
        levels = np.array([before_ms - 1, *marks], np.int64) + 1
        return cls(np.maximum.accumulate(levels), at, moved_by_records=False)

    @property
    def end_ms(self) -> int:
        """T behind the last position."""
        return int(self.levels[-1])

    @property
    def positions(self) -> int:
        """How many there are."""
        return len(self._behind)

    def reached(self, time_ms: int) -> int:
        """The first position behind which T is at least ``time_ms``; ``positions`` without one."""
        return bisect_left(self._behind, time_ms)


class Pieces(NamedTuple):
    """The records of a batch by key, each key's in the order of arrival: ``rows``, with their ``times`` and ``positions``, T
    ``before`` each and T with it, ``now``. Piece n begins at ``starts[n]`` and ends before ``starts[n + 1]``; ``lows`` and
    ``highs`` have its earliest and latest timestamp. The pieces of key k begin at ``key_starts[k]``, and the timestamps of
    its records are from ``key_lows[k]`` to ``key_highs[k]``. ``keys`` has the number of the k-th key."""

    rows: Places
    times: list[int]
    positions: list[int]
    before: list[int]
    now: list[int]
    starts: list[int]
    lows: list[int]
    highs: list[int]
    keys: list[int]
    key_starts: list[int]
    key_lows: list[int]
    key_highs: list[int]


def pieces_of(numbers: Places, times: Ints, timeline: Timeline, rules: SessionRules) -> Pieces:
    """The pieces of records, of which ``numbers`` has the keys."""
    rows = np.argsort(numbers, kind="stable")
    keys, ts, at = numbers[rows], times[rows], timeline.at[rows]
    before = timeline.levels[at]
    now = timeline.levels[at + 1] if timeline.moved_by_records else before
    closes = ts + (rules.gap + rules.past_reach)
    apart = np.abs(ts[1:] - ts[:-1])
    near = apart <= rules.gap if rules.touching else (apart < rules.gap) | (apart == 0)
    still_open = before[1:] < closes[:-1]
    together = (keys[1:] == keys[:-1]) & near & still_open
    firsts = np.concatenate((np.zeros(1, np.intp), np.flatnonzero(~together) + 1))
    lows, highs, of_pieces = np.minimum.reduceat(ts, firsts), np.maximum.reduceat(ts, firsts), keys[firsts]
    key_firsts = np.concatenate((np.zeros(1, np.intp), np.flatnonzero(of_pieces[1:] != of_pieces[:-1]) + 1))
    return Pieces(
        rows,
        ts.tolist(),
        at.tolist(),
        before.tolist(),
        now.tolist(),
        [*firsts.tolist(), len(rows)],
        lows.tolist(),
        highs.tolist(),
        of_pieces[key_firsts].tolist(),
        [*key_firsts.tolist(), len(firsts)],
        np.minimum.reduceat(lows, key_firsts).tolist(),
        np.maximum.reduceat(highs, key_firsts).tolist(),
    )
