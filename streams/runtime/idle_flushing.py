"""Flushes idle stores to disk, so that after a crash of the machine little of the changelog must be read again: one
task at a time, because records wait while a large store is written. Before that it proves that this worker still owns
the task, and looks for foreign writes to its changelogs.

A task that has caught up is flushed with its next commit. Until then its records have waited anyway, and its stores may have
taken in a whole table; later, a stream that keeps up would wait for them to be written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.state.errors import EnvironmentFault, IncompatibleError, RetriableError, StateCorruptedError, UserError
from penstock.state.log import TaskId
from penstock.streams.runtime.commit_group import CommitGroup
from penstock.streams.task.task import Task

FLUSH_APART_MAX_S = 1.0
"""The time between the flushes of two tasks, or less if an interval has many of them."""


class IdleFlushing:
    """See the module. Each task has its turn once per ``interval_ms``."""

    def __init__(
        self, groups: Sequence[CommitGroup], interval_ms: int, monotonic_s: Callable[[], float], now_s: float
    ) -> None:
        self._groups = groups
        self._interval_ms = interval_ms
        self._monotonic_s = monotonic_s
        self._begun_s = self._flushed_s = now_s
        self._waiting: list[tuple[CommitGroup, TaskId]] = []
        self._apart_s = 0.0
        self._caught_up: list[TaskId] = []

    def caught_up(self, tasks: Sequence[TaskId]) -> None:
        """Flush these with their next commit."""
        self._caught_up += tasks

    def turn(self, now_s: float) -> None:
        """Flush the next task if it is due."""
        if self._caught_up and (found := self._committed()) is not None:
            self._flush(*found)
            self._flushed_s = self._monotonic_s()
            return
        interval_s = self._interval_ms / 1000
        if not self._waiting and now_s - self._begun_s >= interval_s:
            self._begun_s = now_s
            self._waiting = [(g, t.id) for g in self._groups for t in g.tasks.values() if t.stores]
            self._apart_s = min(FLUSH_APART_MAX_S, interval_s / 2 / max(len(self._waiting), 1))
        elif now_s - self._flushed_s < self._apart_s:
            return
        if self._waiting:
            self._flush(*self._waiting.pop(0))
            self._flushed_s = self._monotonic_s()

    def _committed(self) -> tuple[CommitGroup, TaskId] | None:
        """Take a task that has caught up and of which everything is committed."""
        for task_id in list(self._caught_up):
            group = next((group for group in self._groups if task_id in group.tasks), None)
            if group is None or not group.tasks[task_id].stores:
                self._caught_up.remove(task_id)
            elif not group.tasks[task_id].uncommitted_records:
                self._caught_up.remove(task_id)
                return group, task_id
        return None

    def _flush(self, group: CommitGroup, task_id: TaskId) -> None:
        group.prove(self._interval_ms)
        if (task := group.tasks.get(task_id)) is None or group.broken:
            return
        try:
            group.committer.refresh(task)
            task.backend.flush()
            task.measure_caches()
        except StateCorruptedError as exc:
            group.abort(exc)
        else:
            _look(group, task, self._monotonic_s())


def _look(group: CommitGroup, task: Task, now_s: float) -> None:
    """If nobody answers now, it is asked again in the next round."""
    try:
        group.committer.look_for_foreign_writes(task, now_s)
    except IncompatibleError:
        raise
    except (RetriableError, EnvironmentFault, UserError):
        pass  # a broker that has just come back may not know all topics
