"""Windows whose panes a trigger emits: Beam's what, where, when and how, and Flink's window operator.

*What*: a fold of the records of a key and window. *Where*: any windows, merging ones too, in event time (the watermark's)
or in processing time (the clock's). *When*: the trigger, asked after each record and at its timers. *How*: a pane shows
the records since the one before (``discarding``), all of the window's (``accumulating``), or all after taking back the
pane before (``accumulating_and_retracting``).

* A window takes records until the watermark has come to its last instant + ``allowed_lateness_ms``; then it is closed, and
  its state and timers are gone. ``closing`` says whether records that no pane has shown are emitted then, or are gone too.
* A record is late when all its windows are closed: counted (``late``) and sent to the port ``late``. Windows that merge:
  with ``late_by="merged"`` (Flink, Kafka Streams) the window counts that the record would be in, with ``"record"`` (Beam)
  that of the record alone.
* When the trigger is finished, the window takes no more records until it closes; they are counted (``finished``).
* The timestamp of a pane is the window's last instant, or the earliest or latest of the timestamps that went into it; of
  those that were behind the watermark when they came, none counts, so that nothing is emitted late.
* An empty pane is emitted at the end of the window only, by triggers that fire there.
* Windows that merge count their panes from 0 again. Where their panes replace each other, what the members emitted is
  deleted (``tombstones``) or taken back right before the merged window's next pane.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import NO_TIME, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.base.row_operator import RowOperator
from penstock.topologies.operators.base.store_timers import LAST_MS, TimerQueue
from penstock.topologies.operators.windows.trigger_state import (
    WindowState,
    key_and_window,
    key_prefix,
    span,
)
from penstock.topologies.operators.windows.triggered_pane import OpenWindow, Panes, past_headers
from penstock.topologies.triggers.base import Moment, Trigger, last_instant, merged
from penstock.topologies.windows import (
    END_OF_TIME_MS,
    Bounds,
    Windows,
)
from penstock.topologies.windows.base import check_end

Accumulation = Literal["discarding", "accumulating", "accumulating_and_retracting"]
Combiner = Literal["earliest", "latest", "end_of_window"]
Closing = Literal["fire_if_fresh", "fire_always", "discard"]
LateBy = Literal["merged", "record"]
LATE = 1
_NEVER_MS = -(1 << 62)
"""Below any watermark."""
_WALL, _FIRE, _CLOSE = b"\x00", b"\x01", b"\x02"
"""The purposes of timers; at one time all windows fire before any closes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriggeredWindowsSpec(OperatorSpec):
    """See the module. ``stores``: the windows, the event-time timers, the processing-time timers. ``value_serde``: of
    aggregates; ``shown_serde``: of what is emitted of them. ``allowed_lateness_ms``: ``None``: forever."""

    fold: Fold
    windows: Windows
    trigger: Trigger
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    shown_serde: Serde[Any]
    accumulation: Accumulation = "accumulating"
    allowed_lateness_ms: int | None = 0
    combiner: Combiner = "end_of_window"
    closing: Closing = "fire_if_fresh"
    late_by: LateBy = "merged"
    tombstones: bool = True
    out_ports: tuple[str, ...] = ("out", "late")
    order_sensitive: bool = True
    uses_watermark: bool = True

    @property
    def processing_time(self) -> bool:
        """Whether windows are in processing time."""
        return self.windows.time == "processing"

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _TriggeredWindowsOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Windows, trigger and accumulation."""
        lateness = self.allowed_lateness_ms
        return {
            "store": self.stores[0].name,
            "window": self.windows.describe(),
            "trigger": str(self.trigger),
            "accumulation": self.accumulation,
            "allowed_lateness": "unlimited" if lateness is None else f"{lateness} ms",
        }


class _TriggeredWindowsOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: TriggeredWindowsSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._events = TimerQueue(ctx.state(spec.stores[1].name))
        self._walls = TimerQueue(ctx.state(spec.stores[2].name))
        self._ends = self._walls if spec.processing_time else self._events
        """The timers of the time in which the windows are."""
        # at a reading of t more records of t may come, so that in processing time only what is before t is over
        self._behind_ms = 1 if spec.processing_time else 0
        self._panes = Panes(spec.fold, spec.trigger, spec.accumulation, spec.value_serde, spec.shown_serde)
        self._windows, self._trigger, self._fold = spec.windows, spec.trigger, spec.fold
        self._processing_time, self._combiner, self._closing = spec.processing_time, spec.combiner, spec.closing
        self._lateness_ms, self._late_by, self._tombstones = spec.allowed_lateness_ms, spec.late_by, spec.tombstones
        self._key_serde = spec.key_serde

    # -- records -------------------------------------------------------------------------------------------------

    def load(self, port: int, batch: Batch) -> None:
        windows = self._windows
        if self._processing_time or not windows.ordered:
            return
        with suppress(SerdeError):  # the row meets it again
            keys = self._key_serde.serialize_all(batch.keys)
            self._state.load(
                key_prefix(k) + span(*bounds)
                for k, ts in zip(keys, batch.timestamps, strict=True)
                if k is not None
                for bounds in windows.assign(ts)
                if bounds[1] <= END_OF_TIME_MS
            )

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        for what, reason in ((key, "null_key"), (value, "null_value")):
            if what is None:
                self.ctx.dropped(reason)
                return
        time_ms = self.wall_ms if self._processing_time else ts
        bounds = self._windows.windows_of(key, value, time_ms)
        for _, end_ms in bounds:
            check_end(end_ms, time_ms)
        if not bounds:
            self.ctx.dropped("no_window")
            return
        prefix = key_prefix(self._key_serde.serialize(key))
        now_ms = self._now()
        taken = (self._merge if self._windows.merging else self._find)(key, prefix, bounds, now_ms)
        if not taken:
            self.ctx.dropped("late")
            self.emit_row(key, value, ts, port=LATE)
            return
        alive = [w for w in taken if not w.state.finished]
        if not alive:
            self.ctx.dropped("finished")
        for window in alive:
            self._add(window, value, time_ms, now_ms)
        for window in taken:
            self._keep(window, now_ms)

    def _now(self) -> int:
        """How far the windows' time has come."""
        if self._processing_time:
            return self.wall_ms - 1
        return _NEVER_MS if self.watermark_ms == NO_TIME else self.watermark_ms

    def _find(self, key: Any, prefix: bytes, bounds: list[Bounds], now_ms: int) -> list[OpenWindow]:
        """The windows that still take records."""
        out = []
        for start, end in bounds:
            if not self._closed(end, now_ms):
                store_key = prefix + span(start, end)
                found = self._state.get(store_key)
                state = WindowState() if found is None else found[0]
                out.append(OpenWindow(key, store_key, start, end, state, new=found is None))
        return out

    def _closed(self, end_ms: int, now_ms: int) -> bool:
        return self._lateness_ms is not None and last_instant(end_ms) + self._lateness_ms <= now_ms

    def _add(self, window: OpenWindow, value: Any, time_ms: int, now_ms: int) -> None:
        """One record more, and the pane that it may bring."""
        state, panes = window.state, self._panes
        panes.add(window, value, time_ms)
        if self._combiner != "end_of_window" and (self._processing_time or time_ms > now_ms):
            pick = min if self._combiner == "earliest" else max
            state.hold_ms = time_ms if state.hold_ms is None else pick(state.hold_ms, time_ms)
        at = Moment(window.start, window.end, now_ms, self.wall_ms, now_ms)
        self._trigger.on_element(state.trigger, at, "", time_ms)
        if self._trigger.should_fire(state.trigger, at, ""):
            self._emit_pane(window, at, on_timer=False)

    # -- merging -------------------------------------------------------------------------------------------------

    def _merge(self, key: Any, prefix: bytes, bounds: list[Bounds], now_ms: int) -> list[OpenWindow]:
        """The windows that the record's have become, those first that others made of their own accord."""
        if self._late_by == "record":
            bounds = [b for b in bounds if not self._closed(b[1], now_ms)]
        there = dict(self._neighbours(prefix, bounds))
        grown: dict[Bounds, Bounds] = {}
        groups: dict[Bounds, list[Bounds]] = {}
        for made, members in self._windows.merge(sorted({*there, *bounds})):
            grown |= dict.fromkeys(members, made)
            groups[made] = members
        wanted = dict.fromkeys(grown.get(b, b) for b in bounds)
        open_ones = [w for w in wanted if not self._closed(w[1], now_ms)]
        if not open_ones:
            return []
        aside = [made for made, members in groups.items() if made not in wanted and members != [made]]
        kept = [self._join(key, prefix, w, groups.get(w, [w]), there) for w in aside]
        for window in kept:
            self._keep(window, now_ms)
        return [self._join(key, prefix, w, groups.get(w, [w]), there) for w in open_ones]

    def _neighbours(self, prefix: bytes, bounds: list[Bounds]) -> Iterable[tuple[Bounds, WindowState]]:
        """The key's windows that may merge with these: sessions, which lie apart, by their ends; others all."""
        if not bounds:
            return
        high, apart = prefix + b"\xff" * 17, self._windows.disjoint
        first = min(start for start, _ in bounds)
        if apart:
            high = prefix + span(max(end for _, end in bounds) + 1, 0)
        for store_key, state, _ in self._state.range(prefix, high, reverse=True):
            window = key_and_window(store_key)[1]
            if apart and window[1] < first:
                return
            yield window, state

    def _join(
        self, key: Any, prefix: bytes, made: Bounds, members: list[Bounds], there: dict[Bounds, WindowState]
    ) -> OpenWindow:
        """One window of several: their records, their trigger's state, and what has been emitted of them."""
        store_key = prefix + span(*made)
        own = there.get(made)
        parts = [(m, there[m]) for m in sorted({*members, made}) if m in there]
        if own is not None and len(parts) == 1:
            return OpenWindow(key, store_key, *made, own, new=False)
        window = OpenWindow(key, store_key, *made, WindowState(), new=own is None)
        state = window.state
        for _, part in parts:
            self._panes.merge(window, part)
            state.finished = state.finished or part.finished
            state.emitted = state.emitted + part.emitted
            if part.hold_ms is not None:
                pick = min if self._combiner == "earliest" else max
                state.hold_ms = part.hold_ms if state.hold_ms is None else pick(state.hold_ms, part.hold_ms)
        state.trigger = merged(part.trigger for _, part in parts)
        if own is not None:
            state.index, state.nonspeculative = own.index, own.nonspeculative
            state.event_ms, state.wall_ms = own.event_ms, own.wall_ms
        window.gone = [(prefix + span(*m), m[1], part) for m, part in parts if m != made]
        return window

    # -- panes and timers ----------------------------------------------------------------------------------------

    def _emit_pane(self, window: OpenWindow, at: Moment, *, on_timer: bool, closing: bool = False) -> None:
        """A pane."""
        pane = self._panes.fire(window, at, on_timer=on_timer, closing=closing)
        if pane is None:
            return
        retracts = self._panes.retracts
        for past in window.state.emitted:
            where = Windowed(window.key, past.start_ms, past.end_ms)
            if retracts:
                self.emit_row(where, self._panes.read(past), past.ts, headers=past_headers(past), retract=True)
            elif (past.start_ms, past.end_ms) != (window.start, window.end):
                self.emit_row(where, None, pane.ts, headers=pane.info.headers)
        where = Windowed(window.key, window.start, window.end)
        self.emit_row(where, pane.value, pane.ts, headers=pane.info.headers)
        window.state.emitted = self._panes.to_take_back(window, pane, self._windows.merging and self._tombstones)

    def _keep(self, window: OpenWindow, now_ms: int, wall_ms: int | None = None) -> None:
        """Write a window and its timers."""
        state = window.state
        at = Moment(window.start, window.end, now_ms, self.wall_ms if wall_ms is None else wall_ms, now_ms)
        live = not state.finished
        event_ms = self._trigger.event_timer_ms(state.trigger, at, "") if live else None
        due_ms = self._trigger.wall_timer_ms(state.trigger, at, "") if live else None
        state.event_ms = _moved(self._ends, _FIRE + window.store_key, state.event_ms, event_ms, self._behind_ms)
        state.wall_ms = _moved(self._walls, _WALL + window.store_key, state.wall_ms, due_ms)
        for store_key, end_ms, part in window.gone:
            self._drop(store_key, end_ms, part)
        if window.new and (close_ms := self._closing_time(window.end)) is not None:
            self._ends.set(close_ms + self._behind_ms, _CLOSE + window.store_key)
        self._state.put(window.store_key, state, max(window.start, 0))

    def _closing_time(self, end_ms: int) -> int | None:
        if self._lateness_ms is None:
            return None
        close_ms = last_instant(end_ms) + self._lateness_ms
        return close_ms if close_ms <= LAST_MS else None

    def _drop(self, store_key: bytes, end_ms: int, state: WindowState) -> None:
        """Forget a window and its timers."""
        _moved(self._ends, _FIRE + store_key, state.event_ms, None, self._behind_ms)
        _moved(self._walls, _WALL + store_key, state.wall_ms, None)
        if (close_ms := self._closing_time(end_ms)) is not None:
            self._ends.delete(close_ms + self._behind_ms, _CLOSE + store_key)
        self._state.put(store_key, None, max(end_ms, 0))

    def on_watermark(self, watermark_ms: int) -> None:
        if not self._processing_time:
            for time_ms, payload in self._events.in_turn(watermark_ms):
                self._timer(time_ms, payload, time_ms, self.wall_ms, watermark_ms)

    def on_wall(self, now_ms: int) -> None:
        for time_ms, payload in self._walls.in_turn(now_ms):
            reached_ms = time_ms - 1 if self._processing_time else self._now()
            self._timer(time_ms, payload, reached_ms, time_ms, now_ms - 1 if self._processing_time else reached_ms)

    def next_wall_ms(self) -> int | None:
        return self._walls.next_ms

    def _timer(self, time_ms: int, payload: bytes, watermark_ms: int, wall_ms: int, reached_ms: int) -> None:
        kind, store_key = payload[:1], payload[1:]
        found = self._state.get(store_key)
        if found is None:
            return
        state: WindowState = found[0]
        key_bytes, (start, end) = key_and_window(store_key)
        window = OpenWindow(self._key_serde.deserialize(key_bytes), store_key, start, end, state, new=False)
        at = Moment(start, end, watermark_ms, wall_ms, reached_ms)
        if kind == _CLOSE:
            fresh = self._closing == "fire_if_fresh" and state.fresh
            if not state.finished and (fresh or self._closing == "fire_always"):
                self._emit_pane(window, at, on_timer=True, closing=True)
            self._drop(store_key, end, state)
            return
        asked_ms, behind_ms = (state.event_ms, self._behind_ms) if kind == _FIRE else (state.wall_ms, 0)
        if asked_ms is None or max(asked_ms + behind_ms, 0) != time_ms:
            return  # another timer of the same instant has made it needless
        if kind == _FIRE:
            state.event_ms = None
        else:
            state.wall_ms = None
        if self._trigger.should_fire(state.trigger, at, ""):
            self._emit_pane(window, at, on_timer=kind == _FIRE or self._processing_time)
        self._keep(window, watermark_ms, wall_ms)


def _moved(queue: TimerQueue, payload: bytes, old_ms: int | None, new_ms: int | None, behind_ms: int = 0) -> int | None:
    """Replace a timer by another, each so far behind its time; returns the new time."""
    if old_ms != new_ms:
        if old_ms is not None:
            queue.delete(old_ms + behind_ms, payload)
        if new_ms is not None:
            queue.set(new_ms + behind_ms, payload)
    return new_ms
