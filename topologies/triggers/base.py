"""The state machine of a trigger: one for each key and window. Its whole state is a few named integers.

The operator drives it, one record or timer at a time:

* ``on_element`` after a record has arrived in the window; then ``should_fire``.
* Windows that merge combine their states with ``merged``; the record that made them merge follows as an element.
* ``should_fire`` returns whether a pane is due now; it changes nothing. If so, the operator emits the pane and calls
  ``on_fire``, which returns whether the trigger is finished: it will never fire again, and the window accepts no more
  records.
* ``event_timer_ms`` and ``wall_timer_ms`` return when to call ``should_fire`` again without a record. They follow
  from the state, so there are no timers to lose, merge or cancel. A timer that is due is evaluated at its own time,
  however far event time has jumped.
* ``clear`` resets the machine (``repeatedly`` does so after each firing).

States are plain dicts of integers, to be kept in a store. A nested trigger's names begin with its path (``0.``,
``early.``). The last letter of a name determines how the integer is merged (``merged``). The semantics are those of
Apache Beam's trigger machines with a bundle of one element.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from penstock.topologies.windows import END_OF_TIME_MS

TriggerState = dict[str, int]


class Moment(NamedTuple):
    """A window, ``[start_ms, end_ms)``, and the current time. ``watermark_ms``: no record up to it is expected; for
    windows in processing time, the clock less 1. ``reached_ms``: how far the watermark has really advanced, while an
    earlier timer is handled."""

    start_ms: int
    end_ms: int
    watermark_ms: int
    wall_ms: int
    reached_ms: int

    @property
    def last_ms(self) -> int:
        """The window's last millisecond."""
        return last_instant(self.end_ms)

    @property
    def over(self) -> bool:
        """Whether the watermark has passed it."""
        return self.watermark_ms >= last_instant(self.end_ms)


def last_instant(end_ms: int) -> int:
    """The last millisecond of a window with this end; for a window without an end, the end of time."""
    return end_ms - 1 if end_ms < END_OF_TIME_MS else END_OF_TIME_MS


@dataclasses.dataclass(frozen=True)
class Trigger:
    """When the panes of a window are emitted. The module describes the calls. ``at`` is the moment of the call,
    ``path`` the place of the trigger within the outermost one."""

    def on_element(self, state: TriggerState, at: Moment, path: str, ts: int) -> None:
        """Handle the arrival of a record with this timestamp."""

    def should_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        """Whether a pane is due."""
        raise AssertionError(f"{type(self).__name__} does not say when it fires")

    def on_fire(self, state: TriggerState, at: Moment, path: str) -> bool:
        """Handle the emission of a pane; returns whether the trigger is finished."""
        return True

    def clear(self, state: TriggerState, path: str) -> None:
        """Reset."""

    def event_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        """The next event time at which to call ``should_fire``."""
        return None

    def wall_timer_ms(self, state: TriggerState, at: Moment, path: str) -> int | None:
        """The next processing time at which to call ``should_fire``."""
        return None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers that it consists of."""
        return ()

    @property
    def on_time_pane(self) -> bool:
        """Whether it fires at the end of the window, so that a pane is emitted even without records."""
        return any(p.on_time_pane for p in self.parts)

    @property
    def uses_wall_time(self) -> bool:
        """Whether it reads the clock."""
        return any(p.uses_wall_time for p in self.parts)

    @property
    def purges(self) -> bool:
        """Whether each firing empties the window."""
        return False


def forget(state: TriggerState, *names: str) -> None:
    """Remove integers."""
    for name in names:
        state.pop(name, None)


_SUM, _EARLIEST, _HIGHEST = "#", "<", ">"
SUFFIXES = (_SUM, _EARLIEST, _HIGHEST)
"""The last letter of a name: merged windows take the sum, the lowest or the highest."""


def merged(states: Iterable[TriggerState]) -> TriggerState:
    """The state of a window that was merged from others."""
    out: TriggerState = {}
    for state in states:
        for name, value in state.items():
            if name not in out:
                out[name] = value
            elif name[-1] == _SUM:
                out[name] += value
            else:
                out[name] = (min if name[-1] == _EARLIEST else max)(out[name], value)
    return out


def earliest(times: Iterable[int | None]) -> int | None:
    """The lowest of the given times."""
    return min((t for t in times if t is not None), default=None)
