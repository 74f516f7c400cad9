"""Sessions on a small batch, for the check of compiled kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.state import native
from penstock.state.serdes.serde import INT
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.encoding import BAGS, FLAT, joined
from penstock.topologies.operator_api.columns import BytesColumn, Ints, Places
from penstock.topologies.operators.columnar.session_joining import NOWHERE, OpenSession, SessionJoining
from penstock.topologies.operators.columnar.sessions import SessionRules, Timeline, pieces_of

_SERDE: Final = joined((INT, FLAT, FLAT, FLAT, FLAT, BAGS))
_VALUES: Final = [b"", b"a", b"a value of some length" * 20]
_NUMBERS: Final = [5, -1, 300, 70_000, -33, -129, -40_000, 1 << 40, -(1 << 40), 0]


def sessions_joined() -> Any:
    """Sessions of counted records, of which one comes too late. A key has two stored sessions, which meet in the batch."""
    rules = SessionRules(gap=10, touching=False, behind=0, closes_after=5, keep=30)
    names = [b"a", b"", b"b"]
    stored = {b"a": [(80, 98, 88, 2), (104, 114, 104, 3)], b"": [(90, 100, 90, 1)], b"b": []}
    numbers = np.array([0, 1, 2, 0, 0, 2, 1, 2, 0, 2] * 3)
    times = 95 + np.arange(len(numbers)) * 7 % 11 + 12 * (np.arange(len(numbers)) // 8)
    times[-1] = 100
    timeline = Timeline.of_records(104, times)
    compiled = native.compiled()
    if compiled is None:
        return _joined_sessions(rules, names, stored, numbers, times, timeline)
    counts = compiled.SessionCounts(*rules, 20)
    for name, some in stored.items():
        counts.hold(name, [(start, end, (count, last)) for start, end, last, count in some])
    taken = counts.take(names, numbers, times, timeline.at, timeline.levels, True, 1 + numbers)
    late, *columns, shown, closing, ends = taken
    closing_keys = BytesColumn(closing, np.frombuffer(ends, np.int64)).to_list()
    listed = [np.frombuffer(column, np.int64).tolist() for column in (*columns, *shown)]
    closed = list(zip(*listed, closing_keys, strict=True))
    gone, gone_times, new, new_entries, known, known_entries, *timers = counts.changes(0)
    puts = [*zip(new, new_entries, strict=True), *zip(known, known_entries, strict=True)]
    late_rows = np.frombuffer(late, np.intp).tolist()
    return late_rows, closed, sorted(zip(gone, gone_times, strict=True)), sorted(puts), [*map(sorted, timers)]


def _joined_sessions(
    rules: SessionRules,
    names: list[bytes],
    stored: dict[bytes, list[tuple[int, int, int, int]]],
    numbers: Places,
    times: Ints,
    timeline: Timeline,
) -> Any:
    pieces = pieces_of(numbers, times, timeline, rules)
    before: list[list[OpenSession]] = []
    for name in (names[key] for key in pieces.keys):
        before.append([])
        for start, end, last, count in stored[name]:
            closes_at = timeline.reached(end + rules.closes_after) if end + rules.closes_after > 104 else NOWHERE
            before[-1].append(session := OpenSession(start, end, last, NOWHERE, closes_at))
            session.aggregate = count
    joining = SessionJoining(pieces, timeline, rules, before)
    joining.count_records((1 + numbers)[pieces.rows].tolist())
    closed, gone, puts = [*joining.closed], [], []
    timers_gone: list[bytes] = []
    timers_set: list[bytes] = []
    for at, sessions in enumerate(joining.keys):
        name = names[pieces.keys[at]]
        left = [s for s in sessions.open if s.number == NOWHERE and NOWHERE < s.closes_at < timeline.positions]
        closed += [(at, s) for s in left]
        gone += [(_entry_key(name, s), s.last) for s in sessions.gone]
        timers_gone += [_timer_key(name, s) for s in (*sessions.gone, *left) if s.closes_at != NOWHERE]
        puts += [(_entry_key(name, s), (s.aggregate, s.last)) for s in sessions.made]
        timers_set += [_timer_key(name, s) for s in sessions.made if s.closes_at >= timeline.positions]
    ended = sorted((s.closes_at, s.end, s.start, s.last, s.aggregate, names[pieces.keys[at]]) for at, s in closed)
    late = np.sort(pieces.rows[np.repeat(np.array(joining.joined) == NOWHERE, joining.counts)]).tolist()
    return late, ended, sorted(gone), sorted(puts), [sorted(timers_gone), sorted(timers_set)]


def _entry_key(name: bytes, session: OpenSession) -> bytes:
    return b"".join((_long(session.end // 20), name, _long(session.end), _long(session.start)))


def _timer_key(name: bytes, session: OpenSession) -> bytes:
    return b"".join((_long(session.end), _long(session.start), name))


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big")


def sessions_of_parts() -> Any:
    """Entries and numbers of sessions with every aggregate, of one that is stored and of a new one."""
    rules = SessionRules(gap=1_000, touching=False, behind=0, closes_after=0, keep=1_000)
    stored: Any = (7, (2, 9), (2, 0.5), (-7,), (), Bag([(_VALUES[1], 3), (b"other", 1)]))
    entry = _long(40) + _SERDE.serialize(stored)
    rows = len(_NUMBERS)
    numbers, nulls = np.arange(rows) % 2, np.arange(rows) % 3 == 1
    values = np.array(_NUMBERS, np.int64)
    codes = np.where(nulls, -1, np.arange(rows) % 3)
    compiled = native.compiled()
    if compiled is None:
        made = [
            _added(acc, numbers == key, nulls, codes)
            for key, acc in enumerate((stored, (0, (0, 0), (0, 0.0), (), (), Bag())))
        ]
        return [_long(60 + rows - 2 + key) + _SERDE.serialize(acc) for key, acc in enumerate(made)], list(
            map(_shown, made)
        )
    sessions = compiled.SessionParts(*rules, 1 << 40, b"nsrlgd")
    sessions.hold(b"a", [(10, 1_040, entry)])
    sessions.hold(b"b", [])
    flags, distinct = nulls.view(np.uint8), BytesColumn.of(list(_VALUES))
    columns = [
        (None, flags, None),
        (values, None, None),
        ((values / 8).view(np.int64), flags, None),
        (values, flags, None),
        (values, flags, None),
        (codes, None, (distinct.data, distinct.offsets)),
    ]
    timeline = Timeline.of_marks(50, [50] * rows + [5_000], np.arange(rows))
    times = 60 + np.arange(rows)
    taken = sessions.take([b"a", b"b"], numbers, times, timeline.at, timeline.levels, False, columns)
    shown = np.array([np.frombuffer(column, np.int64) for column in taken[5]]).T.tolist()
    return sessions.changes(0)[3], shown


def _added(acc: Any, mine: Any, nulls: Any, codes: Any) -> Any:
    """The accumulators with the records that are marked."""
    count, (many, total), (more, real), low, high, bag = acc
    for row in np.flatnonzero(mine).tolist():
        number = _NUMBERS[row]
        many, total = many + 1, total + number
        if not nulls[row]:
            count, more, real = count + 1, more + 1, real + number / 8
            low, high = (min(number, *low),) if low else (number,), (max(number, *high),) if high else (number,)
            bag = bag.moved(_VALUES[codes[row]], 1)
    return count, (many, total), (more, real), low, high, bag


def _shown(acc: Any) -> list[int]:
    count, (many, total), (more, real), low, high, bag = acc
    bits = int(np.array(real).view(np.int64))
    return [count, many, total, more, bits, len(low), *(low or (0,)), len(high), *(high or (0,)), len(bag)]
