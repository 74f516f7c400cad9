"""Panes: what a window has gathered, and what is emitted of it when its trigger fires."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.state.log import Headers
from penstock.state.serdes.serde import Serde
from penstock.topologies.operator_api.pane_info import HEADER, PaneInfo, Timing, encode
from penstock.topologies.operators.aggregates.fold import Fold
from penstock.topologies.operators.windows.trigger_state import Emitted, WindowState
from penstock.topologies.triggers.base import Moment, Trigger


class OpenWindow:
    """A window being worked on: its state as it will be. ``gone``: the windows that were merged into it, by store key, end
    and state. ``new``: nothing is kept of it yet."""

    __slots__ = ("end", "gone", "key", "new", "start", "state", "store_key")

    def __init__(self, key: Any, store_key: bytes, start: int, end: int, state: WindowState, *, new: bool) -> None:
        self.key = key
        self.store_key = store_key
        self.start = start
        self.end = end
        self.state = state
        self.new = new
        self.gone: list[tuple[bytes, int, WindowState]] = []


class Pane(NamedTuple):
    """A pane to emit."""

    value: Any
    ts: int
    info: PaneInfo


class Panes:
    """The aggregates of windows, and their panes."""

    def __init__(
        self, fold: Fold, trigger: Trigger, accumulation: str, value_serde: Serde[Any], shown_serde: Serde[Any]
    ) -> None:
        self._fold = fold
        self._trigger = trigger
        self._discards = accumulation == "discarding" or trigger.purges
        self.retracts = accumulation == "accumulating_and_retracting"
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._write_shown, self._read_shown = shown_serde.serialize, shown_serde.deserialize

    def add(self, window: OpenWindow, value: Any, ts: int) -> None:
        """One record more."""
        state = window.state
        aggregate = None if state.aggregate is None else self._read(state.aggregate)
        aggregate = self._fold.add(0, window.key, value, ts, aggregate)
        state.aggregate = None if aggregate is None else self._write(aggregate)
        state.records += 1
        state.fresh += 1

    def merge(self, window: OpenWindow, part: WindowState) -> None:
        """The records of a window that is merged into this one, behind those that it has."""
        state = window.state
        if state.aggregate is None:
            state.aggregate = part.aggregate
        elif part.aggregate is not None:
            merger = self._fold.merger
            assert merger is not None
            both = merger(window.key, self._read(state.aggregate), self._read(part.aggregate))
            state.aggregate = None if both is None else self._write(both)
        state.records += part.records
        state.fresh += part.fresh

    def fire(self, window: OpenWindow, at: Moment, *, on_timer: bool, closing: bool) -> Pane | None:
        """Let the trigger fire; the pane to emit, or ``None`` for an empty one that is not due."""
        state, trigger = window.state, self._trigger
        early = not at.over
        finished = closing or trigger.on_fire(state.trigger, at, "")
        on_time = not early and on_timer and state.nonspeculative == 0
        wanted = state.records > 0 or (on_time and trigger.on_time_pane and self._fold.init is not None)
        pane = None
        if wanted:
            timing: Timing = "EARLY" if early else "ON_TIME" if on_time else "LATE"
            # an early pane behind others that were not: records have moved the end of the merged window forward
            nonspeculative = -1 if early and not state.nonspeculative else state.nonspeculative
            info = PaneInfo(state.index == 0, finished, timing, state.index, nonspeculative)
            pane = Pane(self._shown(state), self._timestamp(state, at, early), info)
            state.index += 1
            state.nonspeculative += nonspeculative >= 0
        state.fresh = 0
        if finished or self._discards:
            state.aggregate, state.records = None, 0
        if finished:
            state.finished, state.trigger = True, {}
        return pane

    def _shown(self, state: WindowState) -> Any:
        fold = self._fold
        if state.aggregate is not None:
            return fold.shown(self._read(state.aggregate))
        return fold.shown(fold.init()) if state.records == 0 and fold.init is not None else None

    def _timestamp(self, state: WindowState, at: Moment, early: bool) -> int:
        """The hold is kept for the pane on time, where one will come."""
        ts = at.last_ms if state.hold_ms is None else state.hold_ms
        if not (early and self._trigger.on_time_pane):
            state.hold_ms = None
        return max(ts, 0)

    def to_take_back(self, window: OpenWindow, pane: Pane, tombstones: bool) -> list[Emitted]:
        """The part of an emitted pane that must be remembered."""
        if not self.retracts:
            keep = tombstones and not self._discards and pane.value is not None
            return [Emitted(window.start, window.end, None, 0, b"")] if keep else []
        if window.state.finished:
            return []
        value = None if pane.value is None else self._write_shown(pane.value)
        return [Emitted(window.start, window.end, value, pane.ts, encode(pane.info))]

    def read(self, past: Emitted) -> Any:
        """The value that was emitted."""
        return None if past.value is None else self._read_shown(past.value)


def past_headers(past: Emitted) -> Headers:
    """The headers of a pane that was emitted."""
    return ((HEADER, past.pane),)
