"""Aggregations per key and window, for windows with any start and end: users' windows, and hopping ones that may
begin before 1970.

The store is a segmented one, as for sessions: key | end | start. With ``on_close`` a second store holds a timer per
window. Late records, and functions that raise: as in ``window_aggregate``.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from penstock.state.log import Windowed
from penstock.state.serdes.window_keys import spanning_serde
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import TimerQueue
from penstock.topologies.operators.windows.window_aggregate import LATE_PORT
from penstock.topologies.operators.windows.window_closing import LAST_TIME_MS, ClosingAggregateSpec, closing_spec
from penstock.topologies.windows import Bounds, Windows
from penstock.topologies.windows.base import check_end

_START = struct.Struct(">q")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomWindowAggregateSpec(ClosingAggregateSpec):
    """``AggregateSpec`` per window with any start and end."""

    windows: Windows

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return CustomWindowAggregateOperator(ctx, self)

    @property
    def values_choose_windows(self) -> bool:
        return True  # the function gets them


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over such windows."""
    windows = request.windows
    assert windows is not None and windows.horizon_ms is not None
    store = StoreSpec(
        request.name,
        "session",
        request.key,
        request.value,
        retention_ms=request.retention_ms or windows.horizon_ms,
    )
    spec = closing_spec(CustomWindowAggregateSpec, request, store, one_by_one=True)
    return BuiltOperator(spec, spanning_serde(request.key))


class CustomWindowAggregateOperator(RowOperator):
    """``stream_time_ms`` is the time by which windows close, whichever that is."""

    def __init__(self, ctx: OperatorContext, spec: CustomWindowAggregateSpec) -> None:
        super().__init__(ctx, spec)
        self._fold = spec.fold
        self._windows = spec.windows
        self._clock = spec.clock
        self._emission = spec.emission
        self._late_port = len(spec.out_ports) > 1
        self._key_serde = spec.store.key_serde
        self._state = SegmentedState(ctx.state(spec.store.name))
        self._timers = TimerQueue(ctx.state(spec.stores[1].name)) if len(spec.stores) > 1 else None
        horizon_ms = spec.windows.horizon_ms or 0
        self._keep_ms = spec.windows.grace_ms + (spec.store.retention_ms or 0) - horizon_ms
        """How long a window is kept after its end."""
        self._changed: dict[tuple[bytes, Bounds], tuple[Any, Any, int, Any]] = {}
        """``per_commit``: key, aggregate, timestamp, and the aggregate that was emitted last."""

    def resumed(self) -> None:
        super().resumed()
        self._state.expire_before(self.stream_time_ms - self._keep_ms + 1)

    # -- time ----------------------------------------------------------------------------------------------------

    def _move(self, now_ms: int) -> None:
        """Time is ``now_ms``, or was further already: emit what closes, drop what is old."""
        if now_ms <= self.stream_time_ms:
            return
        self.stream_time_ms = now_ms
        try:
            self._emit_closed(now_ms)
        except Exception as exc:  # for no record that could be skipped
            self.ctx.failed(Batch([None], [None], [max(now_ms, 0)], [self._order]), 0, exc, may_skip=False)
        self._state.expire_before(now_ms - self._keep_ms + 1)

    def _emit_closed(self, now_ms: int) -> None:
        if self._timers is not None:
            due = self._timers.due(now_ms)
            for start, key, end in sorted(
                (_START.unpack_from(p)[0], p[16:], _START.unpack_from(p, 8)[0]) for _, p in due
            ):
                found = self._state.get(key, end, _START.pack(start))
                if found is not None:
                    named = Windowed(self._key_serde.deserialize(key), start, end)
                    self.emit_row(named, self._fold.shown(found[0]), found[1], headers=())

    def on_watermark(self, watermark_ms: int) -> None:
        self._move(min(watermark_ms + 1, LAST_TIME_MS))

    def on_wall(self, now_ms: int) -> None:
        self._move(now_ms)

    def next_wall_ms(self) -> int | None:
        return self._timers.next_ms if self._timers is not None and self._clock == "wall" else None

    # -- records -------------------------------------------------------------------------------------------------

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        at = self.wall_ms if self._clock == "wall" else ts
        windows = self._windows.windows_of(key, value, at)
        for _, end_ms in windows:
            check_end(end_ms, at)
        now_ms = max(self.stream_time_ms, self.watermark_ms + 1 if self._clock == "watermark" else at)
        now_ms = min(now_ms, LAST_TIME_MS)
        self.add(port, key, value, ts, at, windows, now_ms)
        self._move(now_ms)

    def add(self, port: int, key: Any, value: Any, record_ts: int, at: int, windows: list[Bounds], now_ms: int) -> None:
        """Process a record with time ``at`` in its windows; those that have closed at ``now_ms`` accept nothing."""
        opened = [w for w in windows if w[1] + self._windows.grace_ms > now_ms]
        if not opened:
            self.not_taken(key, value, record_ts, late=bool(windows))
            return
        data = self._key_serde.serialize(key)
        changes: list[tuple[Bounds, Any, int, Any]] = []
        for start, end in opened:
            found = self._state.get(data, end, _START.pack(start))
            acc, latest = found if found is not None else (None, at)
            new = self._fold.add(port, key, value, at, acc)
            # read again, as the adder may have changed the one it was given
            before = self._state.get(data, end, _START.pack(start)) if self._sends_olds else None
            changes.append(((start, end), new, max(at, latest), None if before is None else before[0]))
        if self._emission == "every_update" and self.ctx.has_consumers:
            for (start, end), new, ts, old in changes:
                self.emit_row(Windowed(key, start, end), self._fold.shown(new), ts, old=self._fold.shown(old))
        for window, new, ts, old in changes:
            self.keep(key, data, window, new, ts, old)

    def not_taken(self, key: Any, value: Any, ts: int, *, late: bool) -> None:
        """Report a record that no window took."""
        self.ctx.dropped("late" if late else "outside")
        if late and self._late_port:
            self.emit_row(key, value, ts, port=LATE_PORT)

    def keep(self, key: Any, data: bytes, window: Bounds, acc: Any, ts: int, old: Any) -> None:
        """Write a window's aggregate; ``None`` deletes it. ``old``: what was there."""
        start, end = window
        suffix = _START.pack(start)
        if self._timers is not None:
            change = self._timers.delete if acc is None else self._timers.set
            change(end + self._windows.grace_ms, suffix + _START.pack(end) + data)
        self._state.put(data, end, suffix, acc, ts)
        if self._emission == "per_commit":
            before = self._changed.get((data, window))
            self._changed[data, window] = (key, acc, ts, old if before is None else before[3])

    def flush(self) -> None:
        changed, self._changed = self._changed, {}
        self._order = 0
        for (_, (start, end)), (key, new, ts, old) in changed.items():
            if new is None and old is None:
                continue  # created and deleted since the last commit
            self.emit_row(Windowed(key, start, end), self._fold.shown(new), ts, old=self._fold.shown(old), headers=())
        self._send()
