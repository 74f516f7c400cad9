"""Sessions record by record: the reference for the columns."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.entry_index import EntryPlace
from penstock.topologies.operators.windows.data_driven_windows import LONG, DataDrivenAggregateOperator, WindowUpdate
from penstock.topologies.operators.windows.window_closing import ClosingAggregateSpec
from penstock.topologies.windows import SessionWindows
from penstock.topologies.windows.base import check_end


class _Session(NamedTuple):
    """A stored session."""

    place: EntryPlace
    start_ms: int
    last_ms: int
    reach_ms: int
    aggregate: Any


class SessionRowOperator(DataDrivenAggregateOperator):
    """See the module."""

    def __init__(self, ctx: OperatorContext, spec: ClosingAggregateSpec, windows: SessionWindows) -> None:
        retention_ms = spec.store.retention_ms or 0
        self._windows = windows
        self._gap_ms = windows.gap_ms
        self._by_reach = windows.gap_fn is not None or windows.bounds == "gap"
        """Whether stored under the reach."""
        self._half_open = windows.bounds == "gap"
        self._gap_max_ms = retention_ms - windows.grace_ms
        past_reach_ms = windows.grace_ms + (0 if self._half_open else 1)
        behind_ms = 0 if self._by_reach else windows.gap_ms
        kept_ms = retention_ms if windows.gap_fn is not None else retention_ms - windows.gap_ms
        super().__init__(ctx, spec, kept_ms + behind_ms, past_reach_ms + behind_ms)
        self._past_reach_ms = past_reach_ms

    # -- stored sessions -----------------------------------------------------------------------------------------

    def bounds(self, place: EntryPlace, timestamp_ms: int) -> tuple[int, int]:
        return LONG.unpack(place[1])[0], place[0] if self._half_open else timestamp_ms

    def _reached(self, data: bytes, ts: int, reach_ms: int) -> list[_Session]:
        """The sessions that a record reaches, or that reach it, by end. As those of a key do not meet, they are ordered
        by start too."""
        places = self.index.places(data)
        found: list[_Session] = []
        for at in range(bisect_left(places, (ts if self._by_reach else ts - self._gap_ms, b"")), len(places)):
            place = places[at]
            start_ms = LONG.unpack(place[1])[0]
            if start_ms > reach_ms:
                break
            aggregate, last_ms = self.index.get(data, place)
            end_ms = place[0] if self._by_reach else last_ms + self._gap_ms
            touches_only = start_ms == reach_ms or end_ms == ts
            if self._windows.touching or not touches_only or start_ms <= ts <= last_ms:
                found.append(_Session(place, start_ms, last_ms, end_ms, aggregate))
        return found

    def _gap_of(self, key: Any, value: Any) -> int:
        gap = self._windows.gap_of(key, value)
        if gap > self._gap_max_ms:
            raise ValueError(
                f"the gap function gave {gap} ms, but sessions are kept for {self._gap_max_ms} ms + grace; "
                "give windowed_by(…) a longer retention"
            )
        return gap

    # -- records -------------------------------------------------------------------------------------------------

    def changes(
        self, port: int, key: Any, data: bytes, value: Any, ts: int, now_ms: int
    ) -> tuple[list[WindowUpdate], bool]:
        reach_ms = ts + (self._gap_ms if self._windows.gap_fn is None else self._gap_of(key, value))
        sessions = self._reached(data, ts, reach_ms)
        start_ms, last_ms = ts, ts
        whole_ms = reach_ms
        for s in sessions:
            start_ms = min(start_ms, s.start_ms)
            last_ms = max(last_ms, s.last_ms)
            whole_ms = max(whole_ms, s.reach_ms)
        if whole_ms + self._past_reach_ms <= now_ms:
            return [], False
        if self._by_reach:
            check_end(whole_ms, ts)
        place = (whole_ms if self._by_reach else last_ms, LONG.pack(start_ms))
        existed, old = False, None
        if len(sessions) == 1 and sessions[0].place == place and start_ms == last_ms:
            existed, old = True, self.old_of(data, place)
        out: list[WindowUpdate] = []
        for s in [] if existed else sessions:
            end_ms = s.reach_ms if self._half_open else s.last_ms
            out.append(WindowUpdate(s.place, s.start_ms, end_ms, None, s.last_ms, True, self.old_of(data, s.place)))
        new = self.fold.add(port, key, value, ts, self._merged(key, sessions))
        end_ms = whole_ms if self._half_open else last_ms
        out.append(WindowUpdate(place, start_ms, end_ms, new, last_ms, existed, old))
        return out, True

    def _merged(self, key: Any, sessions: list[_Session]) -> Any:
        """One aggregate of all sessions; ``None`` without any."""
        merger, init = self.fold.merger, self.fold.init
        assert merger is not None
        if not sessions:
            return None
        merged = None if init is None else init()
        for s in sessions:
            merged = s.aggregate if merged is None else merger(key, merged, s.aggregate)
        return merged
