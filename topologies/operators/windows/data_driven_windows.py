"""The base of aggregations over data-driven windows: sessions and sliding windows.

Such windows are kept in a segmented store, a key's windows next to each other. When they close is as in
``window_closing``; the operator's time T is ``stream_time_ms``. With ``on_close`` a second store holds a timer per
window, and each window is emitted once; those that close together are emitted in the order of the store (time,
suffix), then key bytes.

A record whose windows have all closed is late: dropped, counted, and sent to the port ``late`` if there is one. If a
user function raises for a record, nothing changes, not even T.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from penstock.state.log import Windowed
from penstock.state.stores.segmented_store import SegmentedState
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.entry_index import EntryIndex, EntryPlace
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.windows.window_aggregate import LATE_PORT
from penstock.topologies.operators.windows.window_closing import ClosingAggregateSpec

LONG = struct.Struct(">q")


class WindowUpdate(NamedTuple):
    """The change of one window by a record. ``new``: its aggregate, ``None`` deletes. ``existed``: whether the store
    holds it; ``old``: its aggregate before, if the edge carries old values. If one record deletes a window and
    creates it again, both changes are emitted, and the store gets the second."""

    place: EntryPlace
    start_ms: int
    end_ms: int
    new: Any
    timestamp_ms: int
    existed: bool
    old: Any


class DataDrivenAggregateOperator(RowOperator):
    """Subclasses implement ``changes`` and ``bounds``."""

    def __init__(self, ctx: OperatorContext, spec: ClosingAggregateSpec, keep_ms: int, closes_after_ms: int) -> None:
        """A window at place (time, …) closes when T reaches time + ``closes_after_ms``, and is kept until T passes time +
        ``keep_ms``."""
        super().__init__(ctx, spec)
        self.fold = spec.fold
        self.index = EntryIndex(SegmentedState(ctx.state(spec.store.name)))
        self._emission = spec.emission
        self._clock = spec.clock
        self._input_times = spec.input_times()
        self.input_times_ms = None if self._input_times is None else self._input_times.saved
        self._keep_ms = keep_ms
        self._closes_after_ms = closes_after_ms
        self._key_serde = spec.store.key_serde
        self._suffix_bytes = 8 if spec.store.kind == "session" else 0
        self._timers = TimerQueue(ctx.state(spec.stores[1].name)) if len(spec.stores) > 1 else None
        self._late_port = len(spec.out_ports) > 1
        self._changed: dict[tuple[bytes, int, int], tuple[Any, WindowUpdate, bool, Any]] = {}
        """``per_commit``, by key and window: the key, the last change, and whether and as what the window was emitted
        before."""

    # -- for subclasses ------------------------------------------------------------------------------------------

    def changes(
        self, port: int, key: Any, data: bytes, value: Any, ts: int, now_ms: int
    ) -> tuple[list[WindowUpdate], bool]:
        """The changes by a record, in order of emission, and whether any window accepted it: else it is late. It must
        not write. ``data``: the key's bytes; ``now_ms``: T including this record."""
        raise AssertionError(type(self).__name__)

    def bounds(self, place: EntryPlace, timestamp_ms: int) -> tuple[int, int]:
        """Start and end of a stored window."""
        raise AssertionError(type(self).__name__)

    def old_of(self, data: bytes, place: EntryPlace) -> Any:
        """A window's current aggregate, if the edge carries old values. Read separately from what user functions get,
        because they may change that."""
        return self.index.get(data, place)[0] if self._sends_olds else None

    # -- time ----------------------------------------------------------------------------------------------------

    def resumed(self) -> None:
        super().resumed()
        self._expire()

    def _expire(self) -> None:
        self.index.expire_before(self.stream_time_ms - self._keep_ms)

    def _move(self, now_ms: int) -> None:
        """T is ``now_ms``, or was further already: emit what closes, drop what is old."""
        if now_ms <= self.stream_time_ms:
            return
        self.stream_time_ms = now_ms
        until_ms = now_ms - self._closes_after_ms
        if self._timers is not None and until_ms >= 0:
            for time_ms, payload in self._timers.due(until_ms):
                self._emit_closed(time_ms, payload)
        self._expire()

    def _emit_closed(self, time_ms: int, payload: bytes) -> None:
        place, data = (time_ms, payload[: self._suffix_bytes]), payload[self._suffix_bytes :]
        aggregate, ts = self.index.get(data, place)
        window = Windowed(self._key_serde.deserialize(data), *self.bounds(place, ts))
        self.emit_row(window, self.fold.shown(aggregate), ts)

    def on_watermark(self, watermark_ms: int) -> None:
        self._move(watermark_ms + 1)

    def on_wall(self, now_ms: int) -> None:
        self._move(now_ms)

    def next_wall_ms(self) -> int | None:
        if self._timers is None or self._clock != "wall":
            return None
        first_ms = self._timers.next_ms
        return None if first_ms is None else first_ms + self._closes_after_ms

    # -- records -------------------------------------------------------------------------------------------------

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        at = self.wall_ms if self._clock == "wall" else ts
        before_ms = self.stream_time_ms if self._input_times is None else self._input_times.of(port)
        now_ms = max(before_ms, self.watermark_ms + 1 if self._clock == "watermark" else at)
        data = self._key_serde.serialize(key)
        changes, taken = self.changes(port, key, data, value, at, now_ms)
        if changes:
            self._apply(key, data, changes)
        if not taken:
            self.ctx.dropped("late")
            if self._late_port:
                self.emit_row(key, value, ts, port=LATE_PORT)
        if self._input_times is not None:
            self._input_times.show(port, now_ms)
        self._move(now_ms)

    def _apply(self, key: Any, data: bytes, changes: list[WindowUpdate]) -> None:
        """Write the changes, and emit them or note them for later. All are encoded before the first is written."""
        entry_of = self.index.store.entry_of
        entries = [(c.place, entry_of(c.new, c.timestamp_ms), c.timestamp_ms) for c in changes]
        if self._emission == "per_commit":
            for c in changes:
                self._note(key, data, c)
        elif self._emission == "every_update" and self.ctx.has_consumers:
            shown, result = self.fold.shown, self.fold.result
            for _, start_ms, end_ms, new, ts, _, old in changes:
                if result is not None:
                    new, old = shown(new), shown(old)
                self.emit_row(Windowed(key, start_ms, end_ms), new, ts, old=old)
        if len(entries) > 1:
            # if a window is deleted and created again, the store need not see the deletion
            entries = list({entry[0]: entry for entry in entries}.values())
        for place, entry, ts in entries:
            self.index.put(data, place, entry, ts)
        if self._timers is not None:
            existed = {c.place for c in changes if c.existed}
            for place, entry, _ in entries:
                self._set_timer(data, place, place in existed, entry is not None)

    def _set_timer(self, data: bytes, place: EntryPlace, existed: bool, exists: bool) -> None:
        """Set a timer for every window. The payload is suffix | key."""
        assert self._timers is not None
        if exists and not existed:
            self._timers.set(place[0], place[1] + data, new=True)
        elif existed and not exists:
            self._timers.delete(place[0], place[1] + data)

    # -- commits -------------------------------------------------------------------------------------------------

    def _note(self, key: Any, data: bytes, change: WindowUpdate) -> None:
        window = (data, change.start_ms, change.end_ms)
        before = self._changed.get(window)
        shown_before = (change.existed, change.old) if before is None else before[2:]
        self._changed[window] = (key, change, *shown_before)

    def flush(self) -> None:
        changed, self._changed = self._changed, {}
        self._order = 0
        for key, c, existed, old in changed.values():
            if c.new is not None or existed:
                window = Windowed(key, c.start_ms, c.end_ms)
                self.emit_row(window, self.fold.shown(c.new), c.timestamp_ms, old=self.fold.shown(old), headers=())
        self._send()
