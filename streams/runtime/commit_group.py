"""A commit group: one producer and the tasks whose work it commits together, and what to do if a commit fails.

After ``AbortableError`` and ``ProducerRetiredError`` it aborts and continues from the committed offsets, at most
``ABORTS_MAX`` times in a row. After ``RetriableError`` a commit is retried (under exactly-once after an abort), for
as long as it takes. So is an abort that the log does not answer, and that producer does nothing else meanwhile.
``silence`` shows both.

If a task's stores turn out to be damaged, the task is reopened after such an abort: its stores are quarantined and
restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError
from penstock.state.failpoints import failpoint
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
from penstock.streams.runtime.abandoned_transactions import released
from penstock.streams.runtime.commit_protocol import RESTARTABLE, Committer
from penstock.streams.runtime.sink_writers import SinkUnansweredError, SinkWriters
from penstock.streams.task.task import Task

ABORTS_MAX = 3
QUIET_S = 10.0
"""After a commit that was not answered there may be nothing to commit; after this time the log counts as answering
again."""


class Clock(Protocol):
    """Time from outside."""

    def now_ms(self) -> int:
        """Wall clock."""

    def monotonic_s(self) -> float:
        """For intervals."""


class CommitGroup:
    """See the module. ``reopen`` is called with each task whose stores are damaged or lack a commit that took place.
    ``broken``: an abort is pending, and nothing may be processed or committed."""

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
        self.sinks = committer.sinks = SinkWriters(clock.monotonic_s, events)

    @property
    def broken(self) -> bool:
        """See the class."""
        return self._broken

    @property
    def silence(self) -> RetriableError | None:
        """Why the last commit or abort failed and is retried; ``None``: the log answers."""
        return next(iter(self._unanswered.values()), None)

    @property
    def delay(self) -> Fact | None:
        """The fact that reports ``silence``; ``None``: the abort that it led to was reported."""
        if (cause := self._unanswered.get("abort")) is not None:
            return AbortDelayed(cause)
        if (cause := self._unanswered.get("commit")) is not None:
            return None if self.committer.guarantee == "exactly_once" else CommitDelayed(cause)
        if (cause := self._unanswered.get("ownership")) is not None:
            return Waiting("asking the group", cause, 0.0)
        return None

    def add(self, task: Task) -> None:
        """A task runs."""
        self.tasks[task.id] = task
        self.sinks.add(task)
        self.committer.forget_proof()

    def remove(self, task_id: TaskId) -> None:
        """It does not run any longer, if it did."""
        self.tasks.pop(task_id, None)
        self.sinks.drop(task_id)

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
            if self.committer.guarantee == "exactly_once" or isinstance(exc, SinkUnansweredError):
                self.abort(exc)
            else:
                self._note(exc)
        self.reopen_stale()

    def commit_now(self) -> bool:
        """Commit; returns whether there was anything to commit. Raises the error that prevents it."""
        now_ms, self._begun_s = self._clock.now_ms(), self._clock.monotonic_s()
        if self.committer.guarantee == "at_most_once":
            busy = [task for task in self.tasks.values() if task.uncommitted_records]
            records = sum(task.uncommitted_records for task in busy)
            self.committer.finish_ahead(list(self.tasks.values()), now_ms)
            self._aborts = 0
            if busy:
                self._report(busy, records)
            return True
        for task in self._damaged():  # a user's function may have swallowed the error
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
        """See ``Committer.prove``. While the log does not answer, the last proof stands."""
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

    def release(self) -> None:
        """Before the end: take this worker's name back from the last positions, if that can be done. See ``released``."""
        if (offsets := released(self.tasks.values())) and not self.broken:
            with suppress(PenstockError):  # the next owner ends what is open
                self.committer.commit_log(offsets)
                failpoint("stop.released")

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
        """Roll back everything of this producer since the last commit, to repeat it. Raises the cause if that does
        not help."""
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
        """Perform the pending abort, now or, if the log does not answer, at the next turn."""
        if not self._broken:
            self.sinks.turn()
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
