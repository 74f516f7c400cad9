"""Which records of a batch make and join which sessions: found by times alone, before any record is folded.

The outcome is what the records would do one after the other. A session that exists within the batch only is never
stored: its records belong to the one that it grows into.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from penstock.topologies.operators.columnar.sessions import Pieces, SessionRules, Timeline

NOWHERE = -1


class OpenSession:
    """A session that is stored (``number`` is ``NOWHERE``), or one of the batch: the sessions that it is made of,
    ``members``, by their ends, then its records. One of ``level`` n has members up to level n - 1.

    ``end``: the time that it is stored under. ``last``: the time of its last record. ``closes_at``: the position at which it
    closes; ``NOWHERE``: it had closed before the batch. ``changed_at``: the record, in the order of the pieces, that gave it
    its bounds, or that replaced a stored one. ``existed``: a stored session has the same bounds. ``aggregate``: as stored,
    or ``None`` until its records are folded.
    """

    __slots__ = (
        "aggregate",
        "changed_at",
        "closes_at",
        "end",
        "existed",
        "last",
        "level",
        "members",
        "number",
        "start",
    )

    def __init__(self, start: int, end: int, last: int, number: int, closes_at: int) -> None:
        self.start = start
        self.end = end
        self.last = last
        self.number = number
        self.closes_at = closes_at
        self.level = 0
        self.members: list[OpenSession] = []
        self.aggregate: Any = None
        self.changed_at = NOWHERE
        self.existed = False


class KeySessions:
    """The sessions of one key, ``open``, by their ends, which ``ends`` has too. ``gone``: stored ones that were replaced.
    ``made``, once it is settled: those of the batch that are left of it."""

    __slots__ = ("ends", "gone", "made", "open")

    def __init__(self, stored: list[OpenSession]) -> None:
        self.open = stored
        self.ends = [s.end for s in stored]
        self.gone: list[OpenSession] = []
        self.made: list[OpenSession] = []

    def add(self, session: OpenSession) -> None:
        """Add one at its place."""
        at = bisect_left(self.ends, session.end)
        self.open.insert(at, session)
        self.ends.insert(at, session.end)

    def remove(self, first: OpenSession, count: int) -> None:
        """Remove one, and those behind it."""
        at = self.open.index(first)
        del self.open[at : at + count], self.ends[at : at + count]

    def settle(self) -> None:
        """Take a session with the bounds of a stored one for that one, with another aggregate."""
        self.made = [s for s in self.open if s.number != NOWHERE]
        if not self.gone:
            return
        bounds = {(s.start, s.end): s for s in self.made}
        for s in self.gone:
            if (same := bounds.get((s.start, s.end))) is not None:
                same.existed = True
        self.gone = [s for s in self.gone if (s.start, s.end) not in bounds]


class SessionJoining:
    """The effect of a batch. ``keys``: the sessions of each key of the pieces; ``made``: all that it makes, those that grow
    into others included; ``closed``: those that close within the batch, with the place of their key in ``keys``, except
    for stored ones that are not replaced. ``joined`` and ``counts``: the records in the order of the pieces, as numbers
    of the session that they join, ``NOWHERE`` if they are late, and how many in a row do."""

    def __init__(
        self, pieces: Pieces, timeline: Timeline, rules: SessionRules, stored: list[list[OpenSession]]
    ) -> None:
        """``stored``: for each key of the pieces, by their ends, its sessions that records may meet."""
        self._pieces = pieces
        self._timeline = timeline
        self._rules = rules
        self.keys = list(map(KeySessions, stored))
        self.made: list[OpenSession] = []
        self.closed: list[tuple[int, OpenSession]] = []
        self.joined: list[int] = []
        self.counts: list[int] = []
        for key, sessions in enumerate(self.keys):
            self._join(key, sessions)

    def count_records(self, numbers: list[int] | None = None) -> None:
        """Set the aggregates of ``made``, which are counts of records. ``numbers``: what each record counts, in the order of
        the pieces; without them 1 each."""
        counts = [0] * len(self.made)
        first = 0
        for number, count in zip(self.joined, self.counts, strict=True):
            if number != NOWHERE:
                counts[number] += count if numbers is None else sum(numbers[first : first + count])
            first += count
        for session, count in zip(self.made, counts, strict=True):
            session.aggregate = count + sum(member.aggregate for member in session.members)

    def _join(self, key: int, sessions: KeySessions) -> None:
        pieces, positions = self._pieces, self._timeline.positions
        starts, lows, highs, times = pieces.starts, pieces.lows, pieces.highs, pieces.times
        for n in range(pieces.key_starts[key], pieces.key_starts[key + 1]):
            start, stop = starts[n], starts[n + 1]
            if not self._takes(key, sessions, lows[n], highs[n], start, stop):
                for i in range(start, stop):
                    self._takes(key, sessions, times[i], times[i], i, i + 1)
        sessions.settle()
        self.closed += [(key, s) for s in sessions.made if s.closes_at < positions]

    def _takes(self, key: int, sessions: KeySessions, low: int, high: int, start: int, stop: int) -> bool:
        """Let the records from ``start`` to before ``stop`` join as one piece. ``False``: they must come one by one, because
        a later one is the first to reach some session."""
        rules, pieces = self._rules, self._pieces
        found = self._reached(sessions, low, high, pieces.before[start]) if sessions.ends else []
        if stop - start > 1:
            if found:
                ts = pieces.times[start]
                if self._reached(sessions, ts, ts, pieces.before[start]) != found:
                    return False
        elif self._is_late(found, high, pieces.now[start]):
            self.joined.append(NOWHERE)
            self.counts.append(1)
            return True
        end = high + rules.gap - rules.behind
        session = found[0] if len(found) == 1 else None
        if session is None or session.number == NOWHERE or session.closes_at < pieces.positions[start]:
            session = self._replacing(key, sessions, found, start)
            self._grow(session, low, high, end, start, stop)
            sessions.add(session)
        elif low < session.start or end > session.end:
            sessions.remove(session, 1)
            self._grow(session, low, high, end, start, stop)
            sessions.add(session)
        self.joined.append(session.number)
        self.counts.append(stop - start)
        return True

    def _reached(self, sessions: KeySessions, low: int, high: int, before: int) -> list[OpenSession]:
        """The sessions that records from ``low`` to ``high`` reach, or that reach them, at T ``before``."""
        rules, open_, ends = self._rules, sessions.open, sessions.ends
        reach, behind, touching = high + rules.gap, rules.behind, rules.touching
        found = []
        for at in range(bisect_left(ends, max(low - behind, before - rules.keep)), len(ends)):
            s = open_[at]
            if s.start > reach:
                break
            touches_only = s.start == reach or ends[at] + behind == low
            if touching or not touches_only or (s.start <= high and low <= s.last):
                found.append(s)
        return found

    def _is_late(self, found: list[OpenSession], ts: int, now: int) -> bool:
        """Whether the session that a record would create has closed."""
        reach = ts + self._rules.gap
        for s in found:
            reach = max(reach, s.end + self._rules.behind)
        return reach + self._rules.past_reach <= now

    def _replacing(self, key: int, sessions: KeySessions, found: list[OpenSession], start: int) -> OpenSession:
        """A new session in the place of others, with the bounds that the record ``start`` gives it."""
        ts, position = self._pieces.times[start], self._pieces.positions[start]
        made = OpenSession(ts, ts + self._rules.gap - self._rules.behind, ts, len(self.made), NOWHERE)
        made.changed_at = start
        if found:
            made.members = found
            sessions.remove(found[0], len(found))
        for s in found:
            made.start = min(made.start, s.start)
            made.end = max(made.end, s.end)
            made.last = max(made.last, s.last)
            if NOWHERE < s.closes_at < position:
                self.closed.append((key, s))
            if s.number == NOWHERE:
                s.changed_at = start
                sessions.gone.append(s)
            else:
                made.level = max(made.level, s.level + 1)
        self.made.append(made)
        return made

    def _grow(self, session: OpenSession, low: int, high: int, end: int, start: int, stop: int) -> None:
        """Give a session the bounds of the records from ``start`` to before ``stop``."""
        if low < session.start:
            session.start = low
            session.changed_at = self._pieces.times.index(low, start, stop)
        if end > session.end:
            session.end = end
            session.changed_at = max(session.changed_at, self._pieces.times.index(high, start, stop))
        session.last = max(session.last, high)
        session.closes_at = self._timeline.reached(session.end + self._rules.closes_after)
