"""Triggers on time or on the number of records."""

from __future__ import annotations

import dataclasses

from penstock.state.errors import TopologyError
from penstock.topologies.triggers.base import Moment, Trigger, TriggerState, forget
from penstock.topologies.windows import Duration, duration_ms

_MOST_FIRINGS = 1_000


@dataclasses.dataclass(frozen=True)
class AtWindowEnd(Trigger):
    """Fires when the watermark passes the end of the window, and from then on at every record. Never finishes."""

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        state[path + "armed>"] = 1

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return at.over

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return False

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return at.last_ms if path + "armed>" in state and not at.over else None

    @property
    def on_time_pane(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires and finishes when ``n`` records have arrived."""

    n: int

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        name = path + "count#"
        state[name] = state.get(name, 0) + 1

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return state.get(path + "count#", 0) >= self.n

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "count#")


@dataclasses.dataclass(frozen=True)
class RepeatedCount(AfterCount):
    """Fires at every ``n``-th record. Never finishes."""

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        self.clear(state, path)
        return False


@dataclasses.dataclass(frozen=True)
class AfterProcessingTime(Trigger):
    """Fires and finishes ``delay_ms`` of processing time after the first record. When windows merge, the earlier
    first record counts."""

    delay_ms: int

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        state.setdefault(path + "due<", at.wall_ms + self.delay_ms)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        due_ms = state.get(path + "due<")
        return due_ms is not None and at.wall_ms >= due_ms

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "due<")

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        due_ms = state.get(path + "due<")
        return due_ms if due_ms is not None and due_ms > at.wall_ms else None

    @property
    def uses_wall_time(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class ProcessingTime(Trigger):
    """Fires when processing time passes the end of the window, and from then on at every record. Never finishes."""

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        state[path + "armed>"] = 1

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return path + "armed>" in state and at.wall_ms >= at.end_ms

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        self.clear(state, path)
        return False

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "armed>")

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return at.end_ms if path + "armed>" in state and at.wall_ms < at.end_ms else None

    @property
    def uses_wall_time(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class ContinuousEventTime(Trigger):
    """Fires when the watermark passes a multiple of ``interval_ms`` after the first record, at each further multiple,
    and at the end of the window and later records as ``AtWindowEnd``. Never finishes. A watermark that jumps over
    more than 1,000 intervals fires once and continues from where it landed."""

    interval_ms: int

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        if not at.over:
            state.setdefault(path + "next<", ts - ts % self.interval_ms + self.interval_ms)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        next_ms = state.get(path + "next<")
        return at.over or (next_ms is not None and at.watermark_ms >= next_ms)

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        name, interval = path + "next<", self.interval_ms
        if name in state and at.watermark_ms >= state[name]:
            state[name] += interval
            if at.reached_ms - state[name] > _MOST_FIRINGS * interval:
                state[name] = at.reached_ms - at.reached_ms % interval + interval
        return False

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "next<")

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        if at.over:
            return None
        next_ms = state.get(path + "next<", at.last_ms)
        return next_ms if at.watermark_ms < next_ms < at.last_ms else at.last_ms


@dataclasses.dataclass(frozen=True)
class Never(Trigger):
    """Never fires: the content of a window is emitted when it closes, if at all."""

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return False


def default_trigger() -> Trigger:
    """At the end of the window, then at every late record: the default trigger."""
    return AtWindowEnd()


def event_time() -> Trigger:
    """``after_processing_time`` under Flink's name."""
    return AtWindowEnd()


def processing_time() -> Trigger:
    """When the clock passes the end of the window (Flink)."""
    return ProcessingTime()


def after_count(n: int) -> Trigger:
    """Once, when ``n`` records have arrived."""
    return AfterCount(_positive(n, "after_count"))


def count(n: int) -> Trigger:
    """At every ``n``-th record (Flink)."""
    return RepeatedCount(_positive(n, "count"))


def after_processing_time(delay: Duration = 0) -> Trigger:
    """Once, after this much wall-clock time since the first record."""
    return AfterProcessingTime(duration_ms(delay))


def continuous_event_time(interval: Duration) -> Trigger:
    """At every multiple of an interval of event time, and at the end of the window (Flink)."""
    return ContinuousEventTime(_positive(duration_ms(interval), "continuous_event_time"))


def never() -> Trigger:
    """Never; a pane is emitted only when the window closes."""
    return Never()


def _positive(n: int, what: str) -> int:
    if type(n) is not int or n < 1:
        raise TopologyError(f"{what}({n!r:.100}): give a whole number of at least 1")
    return n
