"""A unit: one producer and the tasks whose work it commits together, and what is done when a commit goes wrong.

``AbortableError`` and ``ProducerRetiredError`` abort and go on from the committed offsets, at most ``ABORTS_MAX`` times in
a row; ``RetriableError`` of a commit is tried again (exactly-once: after an abort). An abort that the log does not answer
is tried again for ``MEND_MAX_S``, and nothing else is done by that producer meanwhile.

A task whose stores are found damaged is opened anew after such an abort: its stores are set aside and restored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.state.errors import PenstockError, RetriableError, StateCorruptedError
from penstock.state.log import TaskId
from penstock.streams.runtime.commit_protocol import RESTARTABLE, Committer
from penstock.streams.task.task import Task

ABORTS_MAX = 3
MEND_MAX_S = 120.0


class Clock(Protocol):
    """Time from outside."""

    def now_ms(self) -> int:
        """Wall clock."""

    def monotonic_s(self) -> float:
        """For intervals."""


class CommitGroup:
    """See the module. ``reopen`` is given each task whose stores lack a commit that did take place, or are damaged.
    ``broken``: an abort waits to be done, and nothing may be processed or committed."""

    def __init__(self, committer: Committer, clock: Clock, reopen: Callable[[Task], None]) -> None:
        self.committer = committer
        self.tasks: dict[TaskId, Task] = {}
        self._clock = clock
        self._reopen = reopen
        self._aborts = 0
        self._broken_s: float | None = None
        self._unanswered_s: float | None = None
        committer.owned = lambda: list(self.tasks.values())

    @property
    def broken(self) -> bool:
        """See the class."""
        return self._broken_s is not None

    def commit(self) -> None:
        """Commit, or mend what keeps it from committing."""
        if self.broken:
            return
        at_least_once = self.committer.guarantee == "at_least_once"
        if at_least_once and any(t.uncommitted_records for t in self.tasks.values()) and not self.owns():
            return
        try:
            self.commit_now()
        except RESTARTABLE as exc:
            self.abort(exc)
        except RetriableError as exc:
            if self.committer.guarantee == "exactly_once":
                self.abort(exc)
            else:
                self._aborts += 1
                if self._aborts > ABORTS_MAX:
                    raise
        self.reopen_stale()

    def commit_now(self) -> None:
        """Commit; raises whatever keeps it from that."""
        now_ms = self._clock.now_ms()
        if self.committer.guarantee == "at_most_once":
            self.committer.finish_ahead(list(self.tasks.values()), now_ms)
            self._aborts = 0
            return
        for task in self._damaged():  # the error may have been kept by a function of the user's
            raise StateCorruptedError(f"task {task.id}: {task.backend.damaged}")
        if self.committer.commit(list(self.tasks.values()), now_ms):
            self._aborts = 0

    def owns(self) -> bool:
        """Whether something may be sent; ``False`` while nobody can say, for ``MEND_MAX_S`` at most. Raises
        ``TaskMigratedError``: see ``Committer.check_ownership``."""
        if self.committer.guarantee != "at_least_once" or not self.tasks:
            return True
        try:
            self.committer.check_ownership()
        except RetriableError:
            now_s = self._clock.monotonic_s()
            self._unanswered_s = now_s if self._unanswered_s is None else self._unanswered_s
            if now_s - self._unanswered_s > MEND_MAX_S:
                raise
            return False
        self._unanswered_s = None
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

    def reopen_stale(self) -> None:
        """Open those tasks anew whose stores lack a commit that took place; raises what keeps it from that."""
        for task in self.committer.take_stale():
            if self.tasks.get(task.id) is task:
                self._reopen(task)

    def abort(self, cause: PenstockError) -> None:
        """Everything of this producer since the last commit is undone and done again. Raises the cause when that is no
        cure."""
        if isinstance(cause, StateCorruptedError) and not self._damaged():
            raise cause  # of what the log holds
        self._aborts += 1
        if self._aborts > ABORTS_MAX or self.committer.guarantee == "at_most_once":
            raise cause
        self.roll_back()

    def roll_back(self) -> None:
        """Abort, whatever was the reason."""
        self._broken_s = self._clock.monotonic_s()
        self.recover()

    def recover(self) -> None:
        """Do the abort that waits, now or, while the log does not answer, at the next turn."""
        if self._broken_s is None:
            return
        damaged = self._damaged()
        try:
            behind = self.committer.abort([t for t in self.tasks.values() if t not in damaged], damaged)
        except (RetriableError, StateCorruptedError) as exc:
            known = isinstance(exc, RetriableError) or len(self._damaged()) > len(damaged)
            if not known or self._clock.monotonic_s() - self._broken_s > MEND_MAX_S:
                raise
            return
        self._broken_s = None
        for task in [*behind, *damaged]:
            self._reopen(task)

    def _damaged(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.backend.damaged is not None]
