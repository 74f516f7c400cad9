"""Triggers composed of others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from penstock.state.errors import TopologyError
from penstock.topologies.triggers.base import Moment, Trigger, TriggerState, earliest, forget


@dataclasses.dataclass(frozen=True)
class Repeatedly(Trigger):
    """Restarts its trigger whenever that finishes. Never finishes."""

    trigger: Trigger

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        self.trigger.on_element(state, at, path, ts)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return self.trigger.should_fire(state, at, path)

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        if self.trigger.on_fire(state, at, path):
            self.trigger.clear(state, path)
        return False

    def clear(self, state: TriggerState, path: str) -> None:
        self.trigger.clear(state, path)

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return self.trigger.event_timer_ms(state, at, path)

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return self.trigger.wall_timer_ms(state, at, path)


@dataclasses.dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires when the watermark passes the end of the window; before that whenever ``early`` fires, after it whenever
    ``late`` fires. Finishes at the end of the window without ``late``, else never."""

    early: Repeatedly | None
    late: Repeatedly | None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return tuple(p for p in (self.early, self.late) if p is not None)

    @property
    def on_time_pane(self) -> bool:
        return True

    def _active(self, state: TriggerState, path: str) -> tuple[Repeatedly | None, str, bool]:
        """The active part, its path, and whether the pane on time has been emitted."""
        if self.late is not None and path + "late>" in state:
            return self.late, path + "late.", True
        return self.early, path + "early.", False

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        part, inside, late = self._active(state, path)
        if not late:
            state[path + "armed>"] = 1
        if part is not None:
            part.on_element(state, at, inside, ts)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        part, inside, late = self._active(state, path)
        if not late and at.over:
            return True
        return part is not None and part.should_fire(state, at, inside)

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        part, inside, late = self._active(state, path)
        if not late and at.over:
            if self.early is not None:
                self.early.clear(state, path + "early.")  # it is not called again
            if self.late is None:
                return True
            state[path + "late>"] = 1
            return False
        if part is not None:
            part.on_fire(state, at, inside)
        return False

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "late>")
        if self.early is not None:
            self.early.clear(state, path + "early.")
        if self.late is not None:
            self.late.clear(state, path + "late.")

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        part, inside, late = self._active(state, path)
        end_ms = at.last_ms if not late and not at.over and path + "armed>" in state else None
        return earliest((end_ms, part.event_timer_ms(state, at, inside) if part is not None else None))

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        part, inside, _ = self._active(state, path)
        return part.wall_timer_ms(state, at, inside) if part is not None else None


@dataclasses.dataclass(frozen=True)
class _Several(Trigger):
    triggers: tuple[Trigger, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.triggers

    def _paths(self, path: str) -> Iterator[tuple[Trigger, str]]:
        return ((t, f"{path}{i}.") for i, t in enumerate(self.triggers))

    def clear(self, state: TriggerState, path: str) -> None:
        for trigger, inside in self._paths(path):
            trigger.clear(state, inside)


@dataclasses.dataclass(frozen=True)
class _Parallel(_Several):
    """All parts see every record. A firing fires those that are due; ``combine`` decides from them whether it is
    finished."""

    @property
    def combine(self) -> Callable[[list[bool]], bool]:
        """How the parts' answers are combined."""
        raise AssertionError("a subclass says")

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        for trigger, inside in self._paths(path):
            trigger.on_element(state, at, inside, ts)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return self.combine([t.should_fire(state, at, inside) for t, inside in self._paths(path)])

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        due = [(t, inside) for t, inside in self._paths(path) if t.should_fire(state, at, inside)]
        return self.combine([t.on_fire(state, at, inside) for t, inside in due])

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return earliest(t.event_timer_ms(state, at, inside) for t, inside in self._paths(path))

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        return earliest(t.wall_timer_ms(state, at, inside) for t, inside in self._paths(path))


@dataclasses.dataclass(frozen=True)
class AfterAny(_Parallel):
    """Fires when any of its triggers does, and finishes when one that fired is finished."""

    @property
    def combine(self) -> Callable[[list[bool]], bool]:
        return any


@dataclasses.dataclass(frozen=True)
class AfterAll(_Parallel):
    """Fires when all of its triggers would, and finishes when all are finished."""

    @property
    def combine(self) -> Callable[[list[bool]], bool]:
        return all


@dataclasses.dataclass(frozen=True)
class AfterEach(_Several):
    """One trigger after the other: the next one sees records when the one before has finished. When windows merge,
    the furthest one counts."""

    def _current(self, state: TriggerState, path: str) -> tuple[Trigger, str] | None:
        at = state.get(path + "at>", 0)
        return (self.triggers[at], f"{path}{at}.") if at < len(self.triggers) else None

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        if (current := self._current(state, path)) is not None:
            current[0].on_element(state, at, current[1], ts)

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        current = self._current(state, path)
        return current is not None and current[0].should_fire(state, at, current[1])

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        current = self._current(state, path)
        if current is not None and current[0].on_fire(state, at, current[1]):
            state[path + "at>"] = state.get(path + "at>", 0) + 1
        return state.get(path + "at>", 0) >= len(self.triggers)

    def clear(self, state: TriggerState, path: str) -> None:
        forget(state, path + "at>")
        super().clear(state, path)

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        current = self._current(state, path)
        return None if current is None else current[0].event_timer_ms(state, at, current[1])

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        current = self._current(state, path)
        return None if current is None else current[0].wall_timer_ms(state, at, current[1])


@dataclasses.dataclass(frozen=True)
class OrFinally(AfterAny):
    """Fires when the main trigger or the final one does, and finishes when either of them does."""


@dataclasses.dataclass(frozen=True)
class Purging(Repeatedly):
    """Fires as its trigger does; each firing empties the window."""

    @property
    def purges(self) -> bool:
        return True

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        return self.trigger.on_fire(state, at, path)


def repeatedly(trigger: Trigger) -> Trigger:
    """Again and again."""
    return Repeatedly(_checked(trigger, "repeatedly"))


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> Trigger:
    """When the watermark passes the end of the window, with speculative panes before and corrections after it."""
    return AfterWatermark(
        None if early is None else Repeatedly(_checked(early, "after_watermark(early=…)")),
        None if late is None else Repeatedly(_checked(late, "after_watermark(late=…)")),
    )


def after_any(*triggers: Trigger) -> Trigger:
    """When any of them fires (Beam's AfterAny, AfterFirst)."""
    return AfterAny(_several(triggers, "after_any"))


def after_all(*triggers: Trigger) -> Trigger:
    """When all of them would fire."""
    return AfterAll(_several(triggers, "after_all"))


def after_each(*triggers: Trigger) -> Trigger:
    """One after the other (Beam's AfterEach, inOrder)."""
    return AfterEach(_several(triggers, "after_each"))


def or_finally(trigger: Trigger, until: Trigger) -> Trigger:
    """The first of them, until the second fires."""
    return OrFinally((_checked(trigger, "or_finally"), _checked(until, "or_finally")))


def purging(trigger: Trigger) -> Trigger:
    """Each firing empties the window (Flink). It must be the outermost trigger."""
    return Purging(_checked(trigger, "purging"))


def _several(triggers: tuple[Trigger, ...], what: str) -> tuple[Trigger, ...]:
    if not triggers:
        raise TopologyError(f"{what}() has no triggers; give it at least one")
    return tuple(_checked(t, what) for t in triggers)


def _checked(trigger: Trigger, what: str) -> Trigger:
    if not isinstance(trigger, Trigger):
        raise TopologyError(f"{what} was given {trigger!r:.100}; give it a trigger, like after_count(100)")
    if trigger.purges:
        raise TopologyError(f"{what}: purging(…) empties the whole window; put it outermost: purging({what}(…))")
    return trigger
