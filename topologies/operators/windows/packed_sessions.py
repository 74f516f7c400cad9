"""Sessions that the compiled part keeps: the records of a batch join their sessions there, in their order, without a Python
object per record or session. What has changed is put into the stores at the commit, or before anything else reads or writes
them.

The sessions of a key are here or in the operator's index, and go from one to the other with who needs them. Of keys that
are nowhere, the stores have the sessions and their timers. A session has a timer for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from penstock.topologies.operator_api.columns import BytesColumn, Column, Ints, Places
from penstock.topologies.operators.base.entry_index import EntryIndex, EntryPlace
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.columnar.sessions import SessionRules, Timeline
from penstock.topologies.operators.windows.packed_session_folds import PackedFold

_PENDING_MAX = 1 << 16
"""With more changes than this the stores get them at once, and see that they need a commit."""
_KEYS_PER_INDEXED = 4
"""The keys that are kept for each that the index may hold: one takes a quarter of the memory."""
_BYTES_MAX = 1 << 26
"""With more bytes of distinct values than this, sessions go back to the stores."""


class ClosedSessions(NamedTuple):
    """Sessions that close, by position, end, start and key. ``positions``: those at which they do; ``times``: of their last
    records; ``values``: what is emitted."""

    positions: Ints
    ends: Ints
    starts: Ints
    times: Ints
    values: Column | list[Any]
    keys: BytesColumn


class PackedSessions:
    """See the module."""

    def __init__(self, fold: PackedFold, index: EntryIndex, timers: TimerQueue, rules: SessionRules) -> None:
        self._fold = fold
        self._kept = fold.sessions(rules, index.store.segment_ms)
        self._index = index
        self._timers = timers
        self._rules = rules
        index.elsewhere = self._release

    def take(
        self, names: list[bytes], numbers: Places, times: Ints, timeline: Timeline, given: Any
    ) -> tuple[Places, ClosedSessions] | None:
        """Take records by the numbers of their keys; ``given``: what the fold gives of them. Returns the places of those
        that are late, and what closes. ``None``: nothing was done, because there are numbers that only rows know."""
        self._defer(None)
        try:
            self._make_room()
            if not self._hold(names, timeline):
                return None
            taken = self._kept.take(
                names, numbers, times, timeline.at, timeline.levels, timeline.moved_by_records, given
            )
        finally:
            if self._kept.pending > _PENDING_MAX:
                self.settle()
            elif self._kept.pending:
                self._defer(self.settle)
                self._timers.look_from(self._open_from(int(timeline.levels[0])))
        if taken is None:
            return None
        late, *bounds, shown, keys, offsets = taken
        positions, ends, starts, times = (np.frombuffer(part, np.int64) for part in bounds)
        values = self._fold.shown([np.frombuffer(part, np.int64) for part in shown])
        names_closed = BytesColumn(keys, np.frombuffer(offsets, np.int64))
        return np.frombuffer(late, np.intp), ClosedSessions(positions, ends, starts, times, values, names_closed)

    def _defer(self, settle: Callable[[], None] | None) -> None:
        self._index.store.defer(settle)
        self._timers.defer(settle)

    def _open_from(self, now_ms: int) -> int:
        """The lowest end of a session that is open at T ``now_ms``."""
        return max(now_ms - self._rules.closes_after + 1, 0)

    def settle(self) -> None:
        """Put into the stores what has changed."""
        self._defer(None)
        gone, gone_times, new, new_entries, known, known_entries, timers_gone, timers_set = self._kept.changes(
            self._index.floor_ms
        )
        entries = self._fold.entries
        self._index.store.change(gone, gone_times, entries(new, new_entries), entries(known, known_entries))
        self._timers.change(timers_gone, timers_set)

    # -- keys ----------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        kept, index = self._kept, self._index
        most = _KEYS_PER_INDEXED * index.keys_max
        if len(kept) < most and kept.used_bytes < _BYTES_MAX:
            return
        self.settle()
        latest_ms = kept.shrink(index.floor_ms, most // 2)
        while kept.used_bytes >= _BYTES_MAX and len(kept):
            ended_ms = kept.shrink(index.floor_ms, len(kept) // 2)
            latest_ms = max((ms for ms in (latest_ms, ended_ms) if ms is not None), default=None)
        if latest_ms is not None:
            index.nowhere(latest_ms)

    def _hold(self, names: list[bytes], timeline: Timeline) -> bool:
        """Take over the keys of a batch, and those with sessions that close within it. ``False``: Python must read what is
        stored of one."""
        kept, index = self._kept, self._index
        wanted = dict.fromkeys(names[place] for place in kept.missing(names))
        from_ms = self._open_from(int(timeline.levels[0]))
        until_ms = min(timeline.end_ms - self._rules.closes_after, index.latest_ms)
        if from_ms <= until_ms:
            closing = [payload[8:] for _, payload in self._timers.between(from_ms, until_ms)]
            wanted |= dict.fromkeys(closing[place] for place in kept.missing(closing))
        places = {name: index.give_up(name) for name in wanted}
        stored = iter(self._fold.stored(index, [(name, place) for name, some in places.items() for place in some]))
        refused = False
        for name, some in places.items():
            if not kept.hold(name, [next(stored) for _ in some]):
                index.take_back(name, some)
                refused = True
        return not refused

    def _release(self, name: bytes) -> list[EntryPlace] | None:
        """Give a key back to the index."""
        if self._kept.pending:
            self.settle()
        return self._kept.release(name)
