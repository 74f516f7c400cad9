"""Processing time in a task: a few readings of the clock, each journaled, so that a replay sees the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.streams.task.task_watermarks import TaskWatermarks
from penstock.topologies.graph.lockstep_plan import Plan
from penstock.topologies.operator_api.operator import NO_TIME, Operator

Fire = Callable[[int, int], None]
"""Moves the clock from one reading to another: ``(before_ms, now_ms)``."""


class TaskClock:
    """The clock of one task. ``wall_ms``: the last reading. ``note`` journals a reading that is about to be made, and
    ``fire`` makes it; in a replay readings come through ``fire`` only."""

    def __init__(
        self,
        plan: Plan,
        operators: Sequence[Operator],
        watermarks: TaskWatermarks,
        wall_ms: int,
        resolution_ms: int,
        note: Fire,
        fire: Fire,
    ) -> None:
        self.wall_ms = wall_ms
        self._plan = plan
        self._operators = operators
        self._watermarks = watermarks
        self._resolution_ms = resolution_ms
        self._note = note
        self._fire = fire

    @property
    def asked(self) -> bool:
        """Whether anything in the task depends on the clock."""
        return self._plan.uses_wall_time or self._watermarks.idle_interval_ms() is not None

    def punctuate(self, now_ms: int) -> bool:
        """Pass the clock to wall-clock timers and idle sources; returns whether any was due."""
        if now_ms <= self.wall_ms or not self.asked:
            return False
        if self.wall_ms == NO_TIME and not self._plan.reads_wall_time:
            self.wall_ms = now_ms
            return False
        if not self._due(now_ms):
            return False
        before_ms = max(self.wall_ms, 0)
        self._note(before_ms, now_ms)
        self._fire(before_ms, now_ms)
        return True

    def _due(self, now_ms: int) -> bool:
        if self.wall_ms == NO_TIME:  # the first record causes the first reading, unless the clock is at 0
            return any(due is not None and due <= now_ms for due in (o.next_wall_ms() for o in self._operators))
        intervals = [i for o in self._operators for i in o.wall_intervals_ms()]
        if (idle_ms := self._watermarks.idle_interval_ms()) is not None:
            intervals.append(idle_ms)
        if any(now_ms // i != self.wall_ms // i for i in intervals):
            return True
        return any(due is not None and due <= now_ms for due in (o.next_wall_ms() for o in self._operators))

    def read(self, now_ms: int) -> None:
        """Read the clock before records that are stamped with processing time are taken."""
        now_ms -= now_ms % self._resolution_ms
        if now_ms > max(self.wall_ms, 0):
            self._note(self.wall_ms, now_ms)
            self._fire(self.wall_ms, now_ms)
