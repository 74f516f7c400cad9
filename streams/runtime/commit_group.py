"""A unit: one producer and the tasks whose work it commits together, and what is done when a commit goes wrong.

``AbortableError`` and ``ProducerRetiredError`` abort and go on from the committed offsets, at most ``ABORTS_MAX`` times in
a row; ``RetriableError`` of a commit is tried again (exactly-once: after an abort), for as long as it takes. So is an abort
that the log does not answer, and nothing else is done by that producer meanwhile. ``silence`` tells of both.

A task whose stores are found damaged is reopened after such an abort: its stores are quarantined and restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError
from penstock.state.log import TaskId
from penstock.streams.events.facts import (
    AbortDelayed,
    CommitAborted,
    CommitDelayed,
    Committed,
    Fact,
    TaskReopened,
    Waiting,
)
from penstock.streams.events.measurements import RecordsVisible
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.runtime.commit_protocol import RESTARTABLE, Committer
from penstock.streams.task.task import Task

ABORTS_MAX = 3
QUIET_S = 10.0
"""So long after a commit that was not answered there may be nothing to commit, before the log counts as answering again."""


class Clock(Protocol):
    """Time from outside."""

    def now_ms(self) -> int:
        """Wall clock."""

    def monotonic_s(self) -> float:
        """For intervals."""


class CommitGroup:
    """See the module. ``reopen`` is given each task whose stores lack a commit that did take place, or are damaged.
    ``broken``: an abort waits to be done, and nothing may be processed or committed."""

    def __init__(
        self, committer: Committer, clock: Clock, reopen: Callable[[Task], None], events: EventSink = NO_EVENTS
    ) -> None:
        self.committer = committer
        committer.on_committed = self._committed
        self.tasks: dict[TaskId, Task] = {}
        self._clock = clock
        self._reopen = reopen
        self._events = events
        self._begun_s = 0.0
        self._aborts = 0
        self._broken = False
        self._unanswered: dict[str, RetriableError] = {}
        self._unanswered_s = 0.0
        committer.owned = lambda: list(self.tasks.values())

    @property
    def broken(self) -> bool:
        """See the class."""
        return self._broken

    @property
    def silence(self) -> RetriableError | None:
        """Why the last commit or abort could not be done and is tried again; ``None``: the log answers."""
        return next(iter(self._unanswered.values()), None)

    @property
    def delay(self) -> Fact | None:
        """What to report of ``silence``; ``None``: the abort that it led to was reported."""
        if (cause := self._unanswered.get("abort")) is not None:
            return AbortDelayed(cause)
        if (cause := self._unanswered.get("commit")) is not None:
            return None if self.committer.guarantee == "exactly_once" else CommitDelayed(cause)
        if (cause := self._unanswered.get("ownership")) is not None:
            return Waiting("asking the group", cause, 0.0)
        return None

    def commit(self) -> None:
        """Commit, or repair what prevents it."""
        if self.broken:
            return
        at_least_once = self.committer.guarantee == "at_least_once"
        if at_least_once and any(t.uncommitted_records for t in self.tasks.values()) and not self.owns():
            return
        try:
            committed = self.commit_now()
            if committed or self._clock.monotonic_s() - self._unanswered_s > QUIET_S:
                self._unanswered.pop("commit", None)
        except RESTARTABLE as exc:
            self.abort(exc)
        except RetriableError as exc:
            if self.committer.guarantee == "exactly_once":
                self.abort(exc)
            else:
                self._note(exc)
        self.reopen_stale()

    def commit_now(self) -> bool:
        """Commit; returns whether there was anything to commit, and raises whatever keeps it from that."""
        now_ms, self._begun_s = self._clock.now_ms(), self._clock.monotonic_s()
        if self.committer.guarantee == "at_most_once":
            busy = [task for task in self.tasks.values() if task.uncommitted_records]
            records = sum(task.uncommitted_records for task in busy)
            self.committer.finish_ahead(list(self.tasks.values()), now_ms)
            self._aborts = 0
            if busy:
                self._report(busy, records)
            return True
        for task in self._damaged():  # the error may have been kept by a function of the user's
            raise StateCorruptedError(f"task {task.id}: {task.backend.damaged}")
        if not self.committer.commit(list(self.tasks.values()), now_ms):
            return False
        self._aborts = 0
        return True

    def owns(self) -> bool:
        """Whether something may be sent; ``False`` while the log does not answer. Raises
        ``TaskMigratedError``: see ``Committer.check_ownership``."""
        if self.committer.guarantee != "at_least_once" or not self.tasks:
            return True
        try:
            self.committer.check_ownership()
        except RetriableError as exc:
            self._unanswered["ownership"] = exc
            return False
        self._unanswered.pop("ownership", None)
        return True

    def prove(self, young_ms: int) -> None:
        """See ``Committer.prove``. While the log does not answer, what was proved last stands."""
        if self.broken:
            return
        try:
            self.committer.prove(list(self.tasks.values()), self._clock.now_ms(), young_ms)
            self._aborts = 0
        except RESTARTABLE as exc:
            self.abort(exc)
        except RetriableError as exc:
            if self.committer.guarantee == "exactly_once":
                self.abort(exc)

    def _committed(self, tasks: Sequence[Task]) -> None:
        """The log has a commit."""
        self._report(tasks, sum(task.uncommitted_records for task in tasks))

    def _report(self, tasks: Sequence[Task], records: int) -> None:
        seconds = self._clock.monotonic_s() - self._begun_s
        self._events.emit(Committed(tuple(task.id for task in tasks), records, seconds))
        now_ms = self._clock.now_ms()
        for task in tasks:
            if task.stream_time_ms >= 0:
                self._events.measure(RecordsVisible(task.id, max(now_ms - task.stream_time_ms, 0) / 1000))

    def reopen_stale(self) -> None:
        """Reopen the tasks whose stores lack a commit that took place. Raises what prevents it."""
        for task in self.committer.take_stale():
            if self.tasks.get(task.id) is task:
                self._reopen_task(task, "its stores lack a commit that took place")

    def abort(self, cause: PenstockError) -> None:
        """Everything of this producer since the last commit is undone and done again. Raises the cause when that is no
        cure."""
        if isinstance(cause, StateCorruptedError) and not self._damaged():
            raise cause  # of what the log holds
        still_silent = isinstance(cause, RetriableError) and "commit" in self._unanswered
        if isinstance(cause, RetriableError):
            self._note(cause)
        else:
            self._aborts += 1
        if self._aborts > ABORTS_MAX or self.committer.guarantee == "at_most_once":
            raise cause
        if not still_silent:  # else the wait is reported
            self._events.emit(CommitAborted(cause))
        self.roll_back()

    def _note(self, silence: RetriableError) -> None:
        self._unanswered["commit"], self._unanswered_s = silence, self._clock.monotonic_s()

    def roll_back(self) -> None:
        """Abort, whatever was the reason."""
        self._broken = True
        self.recover()

    def recover(self) -> None:
        """Do the abort that waits, now or, while the log does not answer, at the next turn."""
        if not self._broken:
            return
        damaged = self._damaged()
        try:
            behind = self.committer.abort([t for t in self.tasks.values() if t not in damaged], damaged)
        except RetriableError as exc:
            self._unanswered["abort"] = exc
            return
        except StateCorruptedError:
            if len(self._damaged()) == len(damaged):
                raise
            return
        self._broken = False
        self._unanswered.pop("abort", None)
        for task in behind:
            self._reopen_task(task, "its stores lack a commit that took place")
        for task in damaged:
            self._reopen_task(task, f"its stores are damaged: {task.backend.damaged}")

    def _reopen_task(self, task: Task, reason: str) -> None:
        self._events.emit(TaskReopened(task.id, reason))
        self._reopen(task)

    def _damaged(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.backend.damaged is not None]
