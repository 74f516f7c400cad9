"""Counts per session that the compiled part keeps: the records of a batch join their sessions there, in their order, without
a Python object per record or session. What has changed is put into the stores at the commit, or before anything else
reads or writes them.

The sessions of a key are here or in the operator's index, and go from one to the other with who needs them. Of keys that
are nowhere, the stores have the sessions and their timers. A session has a timer for as long as it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.state.stores.segmented_store import ViewEntries
from penstock.topologies.operator_api.columns import BytesColumn, Ints, Places
from penstock.topologies.operators.base.entry_index import EntryIndex, EntryPlace
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.columnar.sessions import SessionRules, Timeline
from penstock.topologies.operators.windows.data_driven_windows import LONG

if TYPE_CHECKING:
    from penstock_native import SessionCounts

_PENDING_MAX = 1 << 16
"""With more changes than this the stores get them at once, and see that they need a commit."""


class ClosedSessions(NamedTuple):
    """Sessions that close, by position, end, start and key. ``positions``: those at which they do; ``times``: of their last
    records."""

    positions: Ints
    ends: Ints
    starts: Ints
    times: Ints
    aggregates: Ints | list[Any]
    keys: BytesColumn

    @classmethod
    def of(cls, found: Sequence[bytes]) -> ClosedSessions:
        """Those that ``SessionCounts.take`` returns."""
        *numbers, keys, offsets = found
        positions, ends, starts, times, counts = (np.frombuffer(part, np.int64) for part in numbers)
        return cls(positions, ends, starts, times, counts, BytesColumn(keys, np.frombuffer(offsets, np.int64)))


class PackedSessions:
    """See the module."""

    def __init__(self, counts: SessionCounts, index: EntryIndex, timers: TimerQueue, rules: SessionRules) -> None:
        """``counts``: empty, with these rules."""
        self._counts = counts
        self._index = index
        self._timers = timers
        self._rules = rules
        index.elsewhere = self._release

    def take(
        self, names: list[bytes], numbers: Places, times: Ints, timeline: Timeline, counts: Ints | None = None
    ) -> tuple[Places, ClosedSessions]:
        """Take records by the numbers of their keys, and ``counts``, what each counts, without them 1. Returns the places of
        those that are late, and what closes."""
        self._defer(None)
        try:
            self._make_room()
            self._hold(names, timeline)
            late, *closed = self._counts.take(
                names, numbers, times, counts, timeline.at, timeline.levels, timeline.moved_by_records
            )
        finally:
            if self._counts.pending > _PENDING_MAX:
                self.settle()
            elif self._counts.pending:
                self._defer(self.settle)
                self._timers.look_from(self._open_from(int(timeline.levels[0])))
        return np.frombuffer(late, np.intp), ClosedSessions.of(closed)

    def _defer(self, settle: Callable[[], None] | None) -> None:
        self._index.store.defer(settle)
        self._timers.defer(settle)

    def _open_from(self, now_ms: int) -> int:
        """The lowest end of a session that is open at T ``now_ms``."""
        return max(now_ms - self._rules.closes_after + 1, 0)

    def settle(self) -> None:
        """Put into the stores what has changed."""
        self._defer(None)
        gone, gone_times, new, new_entries, known, known_entries, timers_gone, timers_set = self._counts.changes(
            self._index.floor_ms
        )
        self._index.store.change(gone, gone_times, _entries(new, new_entries), _entries(known, known_entries))
        self._timers.change(timers_gone, timers_set)

    # -- keys ----------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        counts, index = self._counts, self._index
        if len(counts) < index.keys_max:
            return
        self.settle()
        if counts.shrink(index.floor_ms, index.keys_max // 2):
            index.nowhere(counts.latest_ms)

    def _hold(self, names: list[bytes], timeline: Timeline) -> None:
        """Take over the keys of a batch, and those with sessions that close within it."""
        counts, index = self._counts, self._index
        wanted = dict.fromkeys(names[place] for place in counts.missing(names))
        from_ms = self._open_from(int(timeline.levels[0]))
        until_ms = min(timeline.end_ms - self._rules.closes_after, index.latest_ms)
        if from_ms <= until_ms:
            closing = [payload[8:] for _, payload in self._timers.between(from_ms, until_ms)]
            wanted |= dict.fromkeys(closing[place] for place in counts.missing(closing))
        places = {name: index.give_up(name) for name in wanted}
        index.load((name, place) for name, some in places.items() for place in some)
        for name, some in places.items():
            counts.hold(name, [self._stored(name, place) for place in some])

    def _stored(self, name: bytes, place: EntryPlace) -> tuple[int, int, int, int]:
        count, last_ms = self._index.get(name, place)
        return LONG.unpack(place[1])[0], place[0], last_ms, count

    def _release(self, name: bytes) -> list[EntryPlace] | None:
        """Give a key back to the index."""
        if self._counts.pending:
            self.settle()
        return self._counts.release(name)


def _entries(keys: list[bytes], entries: list[tuple[int, int]]) -> ViewEntries:
    return ViewEntries(keys, entries, [last_ms for _, last_ms in entries])
