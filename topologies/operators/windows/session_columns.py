"""Sessions by columns: what the records of a batch do to their sessions is found at once, each session is computed and
written once, and what closes within the batch is emitted as of the position at which it closes.

Taken where only the last aggregate per session is visible, or that at its closing, and all records have the same gap. A
batch that has anything else is left to the rows before anything was changed.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from penstock.state.log import Headers, Windowed
from penstock.topologies.columnar.column_parts import Keyed, enough
from penstock.topologies.columnar.windowed_keys import stored_keys, windowed_column
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, Ints, Places
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.entry_index import EntryPlace
from penstock.topologies.operators.base.row_functions import without_nulls
from penstock.topologies.operators.columnar.grouping import Entries, entries_of
from penstock.topologies.operators.columnar.session_joining import NOWHERE, OpenSession, SessionJoining
from penstock.topologies.operators.columnar.sessions import Pieces, SessionRules, Timeline, pieces_of
from penstock.topologies.operators.windows.data_driven_windows import LONG, WindowUpdate
from penstock.topologies.operators.windows.packed_session_folds import packed_fold
from penstock.topologies.operators.windows.packed_sessions import ClosedSessions, PackedSessions
from penstock.topologies.operators.windows.session_folds import session_fold
from penstock.topologies.operators.windows.session_rows import SessionRowOperator
from penstock.topologies.operators.windows.window_aggregate import LATE_PORT
from penstock.topologies.operators.windows.window_closing import ClosingAggregateSpec
from penstock.topologies.windows import SessionWindows

_FAR = 1 << 61
"""Times from here on are left to the rows: their sums do not all fit 64 bits."""
_Timer = tuple[int, bytes]
_Write = tuple[bytes, OpenSession, Any]
"""A change of the store: key, session and entry, which is ``None`` for a deletion."""


class _Closing(NamedTuple):
    """The closings within a batch. ``due``: the timers up to ``until_ms``; ``withdrawn``: those of sessions that are
    replaced before they close, some of which may be due too; ``out``: what is emitted."""

    due: list[_Timer]
    until_ms: int
    withdrawn: list[_Timer]
    out: Batch | None


class SessionAggregateOperator(SessionRowOperator):
    """The running form: by columns where it can, else by rows."""

    def __init__(self, ctx: OperatorContext, spec: ClosingAggregateSpec, windows: SessionWindows) -> None:
        super().__init__(ctx, spec, windows)
        taken = spec.emission != "every_update" and not spec.sends_olds and windows.gap_fn is None
        taken = taken and windows.gap_ms + windows.grace_ms < _FAR
        self._session_fold = session_fold(spec.store, spec.fold) if taken and self._input_times is None else None
        self._rules = SessionRules(
            gap=windows.gap_ms,
            touching=windows.touching,
            behind=0 if windows.bounds == "gap" else windows.gap_ms,
            closes_after=self._closes_after_ms,
            keep=self._keep_ms,
        )
        self._packed_fold = None if self._timers is None else packed_fold(spec.store, spec.fold, self._session_fold)
        self._packed: PackedSessions | None = None
        if self._packed_fold is not None and self._timers is not None:
            self._packed = PackedSessions(self._packed_fold, self.index, self._timers, self._rules)
            if self._packed_fold.of_bytes:
                ctx.state(spec.store.name).keep_bytes()

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        if self._session_fold is None or batch.key_column is None or batch.olds is not None:
            return batch
        usable = without_nulls(self.ctx, without_nulls(self.ctx, batch, "key"), "value")
        assert isinstance(usable, ColumnBatch)
        return None if not len(usable) or self._take(usable) else usable

    def _take(self, batch: ColumnBatch) -> bool:
        """Take records. ``False``: nothing was done."""
        times = np.full(len(batch), self.wall_ms) if self._clock == "wall" else batch.times
        timeline = self._timeline(batch, times)
        found = entries_of(batch, self._key_serde)
        assert self._session_fold is not None
        if timeline is None or found is None:
            return False
        if self._packed is not None:
            return self._take_packed(self._packed, batch, times, timeline, found)
        pieces = pieces_of(found.groups.numbers, times, timeline, self._rules)
        names = list(map(found.store_keys.__getitem__, pieces.keys))
        joining = SessionJoining(pieces, timeline, self._rules, self._stored(names, pieces, timeline))
        if not self._session_fold.fold(batch, pieces.rows, joining):
            return False
        try:
            writes = self._writes(names, joining)
            closing = None if self._timers is None else self._closing(batch, timeline, names, joining)
        except Exception:  # raised again at its record
            return False
        if self._emission == "per_commit":
            self._note_all(found.by_key, names, pieces, joining)
        for data, session, entry in writes:
            self.index.places(data)
            self.index.put(data, (session.end, LONG.pack(session.start)), entry, session.last)
        if closing is not None:
            self._set_timers(closing, timeline, names, joining)
        late = np.repeat(np.array(joining.joined, np.intp) == NOWHERE, joining.counts)
        self._refuse(batch, np.sort(pieces.rows[late]))
        self._move_along(batch, timeline)
        if closing is not None and closing.out is not None:
            self.ctx.emit(closing.out)
        return True

    def _take_packed(
        self, packed: PackedSessions, batch: ColumnBatch, times: Ints, timeline: Timeline, found: Entries
    ) -> bool:
        assert self._packed_fold is not None
        given = self._packed_fold.given(batch)
        if given is None:
            return False
        try:
            taken = packed.take(found.store_keys, found.groups.numbers, times, timeline, *given)
        except Exception as exc:  # a result that fails; no record may be skipped for it
            self.ctx.failed(batch, len(batch) - 1, exc, may_skip=False)
            raise
        if taken is None:
            return False
        late, closed = taken
        out = self._results(batch, timeline, closed)
        self._refuse(batch, late)
        self._move_along(batch, timeline)
        if out is not None:
            self.ctx.emit(out)
        return True

    # -- time ----------------------------------------------------------------------------------------------------

    def _timeline(self, batch: ColumnBatch, times: Ints) -> Timeline | None:
        """T along the batch; ``None``: by rows, because a time is too far away."""
        if int(times.min()) < 0 or int(times.max()) >= _FAR or self.stream_time_ms >= _FAR:
            return None
        if self._clock != "watermark":
            return Timeline.of_records(self.stream_time_ms, times)
        before_ms = self.stream_time_ms
        if before_ms <= self.watermark_ms:
            if before_ms >= 0:
                return None  # the first record moves T, and sees what it was before
            before_ms = self.watermark_ms + 1  # without state, nothing shows the difference
        at = batch.orders // self.ctx.time.stride
        marks = self.ctx.time.watermark_by_place_ms[self._place : int(at[-1])]
        if max(marks, default=0) >= _FAR:
            return None
        return Timeline.of_marks(before_ms, marks, np.maximum(at - self._place, 0))

    def _move_along(self, batch: ColumnBatch, timeline: Timeline) -> None:
        """Set T to that at the end of the batch, whose closings are done."""
        self.stream_time_ms = timeline.end_ms
        if self._clock == "watermark":
            self.watermark_ms = max(self.watermark_ms, timeline.end_ms - 1)
            self._place += timeline.positions
        self._expire()

    # -- state ---------------------------------------------------------------------------------------------------

    def _stored(self, names: list[bytes], pieces: Pieces, timeline: Timeline) -> list[list[OpenSession]]:
        """The stored sessions that the records of each key may meet, read at once."""
        rules, index, before_ms = self._rules, self.index, int(timeline.levels[0])
        places = [
            _near(index.places(name), low - rules.behind, high + rules.gap)
            for name, low, high in zip(names, pieces.key_lows, pieces.key_highs, strict=True)
        ]
        index.load((name, place) for name, some in zip(names, places, strict=True) for place in some)
        found: list[list[OpenSession]] = []
        for name, some in zip(names, places, strict=True):
            sessions: list[OpenSession] = []
            for place in some:
                aggregate, last = index.get(name, place)
                closes = place[0] + rules.closes_after
                closes_at = NOWHERE if closes <= before_ms else timeline.reached(closes)
                session = OpenSession(LONG.unpack(place[1])[0], place[0], last, NOWHERE, closes_at)
                session.aggregate = aggregate
                sessions.append(session)
            found.append(sessions)
        return found

    def _writes(self, names: list[bytes], joining: SessionJoining) -> list[_Write]:
        """All changes of the store, encoded."""
        entry_of = self.index.store.entry_of
        writes: list[_Write] = []
        for name, sessions in zip(names, joining.keys, strict=True):
            writes += [(name, s, None) for s in sessions.gone]
            writes += [(name, s, entry_of(s.aggregate, s.last)) for s in sessions.made]
        return writes

    def _set_timers(self, closing: _Closing, timeline: Timeline, names: list[bytes], joining: SessionJoining) -> None:
        assert self._timers is not None
        self._timers.take(closing.due, closing.until_ms)
        due = set(closing.due)
        made = [
            LONG.pack(s.end) + LONG.pack(s.start) + name
            for name, sessions in zip(names, joining.keys, strict=True)
            for s in sessions.made
            if s.closes_at >= timeline.positions and not s.existed
        ]
        gone = [LONG.pack(time_ms) + payload for time_ms, payload in closing.withdrawn if (time_ms, payload) not in due]
        self._timers.change(gone, made)

    # -- results -------------------------------------------------------------------------------------------------

    def _closing(self, batch: ColumnBatch, timeline: Timeline, names: list[bytes], joining: SessionJoining) -> _Closing:
        """Find what closes, with ``on_close``."""
        assert self._timers is not None
        closed = {_timer_of(names[key], s): (s.aggregate, s.last) for key, s in joining.closed}
        withdrawn = [
            timer
            for name, sessions in zip(names, joining.keys, strict=True)
            for s in sessions.gone
            if s.closes_at != NOWHERE and (timer := _timer_of(name, s)) not in closed
        ]
        until_ms = timeline.end_ms - self._closes_after_ms
        due = self._timers.upcoming(until_ms) if until_ms >= 0 else []
        left = set(due).difference(closed, withdrawn)
        self.index.load((payload[8:], (time_ms, payload[:8])) for time_ms, payload in left)
        for time_ms, payload in left:
            closed[time_ms, payload] = self.index.get(payload[8:], (time_ms, payload[:8]))
        return _Closing(due, until_ms, withdrawn, self._closed_batch(batch, timeline, closed))

    def _closed_batch(
        self, batch: ColumnBatch, timeline: Timeline, closed: dict[_Timer, tuple[Any, int]]
    ) -> Batch | None:
        """The results of sessions that close."""
        rows = sorted((timeline.reached(time_ms + self._closes_after_ms), time_ms, data) for time_ms, data in closed)
        if not rows:
            return None
        positions, ends, payloads = zip(*rows, strict=True)
        aggregates, times = zip(*(closed[end, payload] for _, end, payload in rows), strict=True)
        starts = np.frombuffer(b"".join([payload[:8] for payload in payloads]), ">i8").astype(np.int64)
        names = BytesColumn.of([payload[8:] for payload in payloads])
        found = ClosedSessions(
            np.array(positions, np.int64),
            np.array(ends, np.int64),
            starts,
            np.array(times, np.int64),
            list(map(self.fold.shown, aggregates)),
            names,
        )
        return self._results(batch, timeline, found)

    def _results(self, batch: ColumnBatch, timeline: Timeline, closed: ClosedSessions) -> Batch | None:
        """The results of sessions that close, in the order in which they do."""
        rows = len(closed.positions)
        if not rows:
            return None
        headers: list[Headers] | None = None
        if not timeline.moved_by_records:
            orders = (self._place + closed.positions) * self.ctx.time.stride + 1 + self.ctx.index
        else:
            orders = batch.orders[closed.positions]
            if batch.headers is not None:
                headers = list(map(batch.headers.__getitem__, closed.positions.tolist()))
                headers = headers if any(headers) else None
        values = closed.values
        if enough(rows):
            names = stored_keys(closed.keys, self._key_serde)
            keys = windowed_column(names, closed.starts, closed.ends)
            return ColumnBatch(keys, values, closed.times, orders, headers)
        read = self._key_serde.deserialize
        names_and_ends = zip(closed.keys.to_list(), closed.starts.tolist(), closed.ends.tolist(), strict=True)
        listed = [Windowed(read(name), start, end) for name, start, end in names_and_ends]  # type: ignore[arg-type]  # no nulls here
        of_rows = values if isinstance(values, list) else values.to_list()
        return Batch(listed, of_rows, closed.times.tolist(), orders.tolist(), headers)

    def _note_all(self, by_key: Keyed, names: list[bytes], pieces: Pieces, joining: SessionJoining) -> None:
        """Note what changed, with ``per_commit``, in the order in which windows first changed."""
        keys, rows = by_key.keys, pieces.rows
        notes: list[tuple[int, Any, bytes, WindowUpdate]] = []
        for number, name, sessions in zip(pieces.keys, names, joining.keys, strict=True):
            for s in (*sessions.gone, *sessions.made):
                gone, place = s.number == NOWHERE, (s.end, LONG.pack(s.start))
                new = None if gone else s.aggregate
                change = WindowUpdate(place, s.start, s.end, new, s.last, gone or s.existed, None)
                notes.append((int(rows[s.changed_at]), keys[number], name, change))
        for _, key, name, change in sorted(notes, key=itemgetter(0)):
            self._note(key, name, change)

    def _refuse(self, batch: ColumnBatch, late: Places) -> None:
        """Count late records, and hand them on."""
        if not len(late):
            return
        self.ctx.dropped("late", len(late))
        if self._late_port:
            self.ctx.emit(batch.pick(late), LATE_PORT)


def _near(places: list[EntryPlace], low: int, high: int) -> list[EntryPlace]:
    """The places of sessions that end at ``low`` or later and start at ``high`` or earlier."""
    first = stop = bisect_left(places, (low, b""))
    while stop < len(places) and LONG.unpack(places[stop][1])[0] <= high:
        stop += 1
    return places[first:stop]


def _timer_of(name: bytes, session: OpenSession) -> _Timer:
    return session.end, LONG.pack(session.start) + name
