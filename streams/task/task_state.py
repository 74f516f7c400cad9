"""The life of a task as data: its states, and which call is allowed in which.

    RUNNING ── prepare_commit ──▶ PREPARED ── committed ──▶ RUNNING
                                     │ └───── abandon_commit ──▶ RUNNING     the commit did not take place
       any but CLOSED ── discard ──▶ RUNNING                                 the work since the last commit is dropped
                  any ── close ────▶ CLOSED

``prepare_commit`` hands out a permit, the commit's work. ``offsets``, ``committed`` and ``abandon_commit`` take that permit
and no older one. A task in PREPARED processes no record and fires no timer: the effects would be in neither of the two
commits, and lost.

Pure: no clock, no I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Literal

from penstock.state.errors import PenstockError
from penstock.state.log import TaskId


class TaskState(enum.Enum):
    """Where a task is in its life."""

    RUNNING = "running"
    PREPARED = "prepared"
    CLOSED = "closed"


TaskCall = Literal[
    "add",
    "process",
    "punctuate",
    "take_outputs",
    "prepare_commit",
    "offsets",
    "committed",
    "abandon_commit",
    "discard",
    "close",
]
"""The calls of a runner that depend on the task's state. ``punctuate`` stands for ``replay_clock`` too."""

_RUNNING, _PREPARED, _CLOSED = TaskState.RUNNING, TaskState.PREPARED, TaskState.CLOSED

TRANSITIONS: Mapping[tuple[TaskState, TaskCall], TaskState] = {
    (_RUNNING, "add"): _RUNNING,
    (_RUNNING, "process"): _RUNNING,
    (_RUNNING, "punctuate"): _RUNNING,
    (_RUNNING, "take_outputs"): _RUNNING,
    (_RUNNING, "prepare_commit"): _PREPARED,
    (_RUNNING, "discard"): _RUNNING,
    (_RUNNING, "close"): _CLOSED,
    (_PREPARED, "add"): _PREPARED,  # only buffers; the positions of the commit are already taken
    (_PREPARED, "take_outputs"): _PREPARED,
    (_PREPARED, "offsets"): _PREPARED,
    (_PREPARED, "committed"): _RUNNING,
    (_PREPARED, "abandon_commit"): _RUNNING,
    (_PREPARED, "discard"): _RUNNING,
    (_PREPARED, "close"): _CLOSED,
    (_CLOSED, "close"): _CLOSED,
}
"""Every allowed call, and the state after it. All other calls are refused."""

NEEDS_PERMIT: frozenset[TaskCall] = frozenset({"offsets", "committed", "abandon_commit"})


class TaskStateError(PenstockError):
    """A runner called a task out of order, which is a defect of the runner. The task did nothing and its state is
    unchanged."""


class TaskLifecycle:
    """The state of one task, and the permit of the commit that it has prepared.

    Each call begins with ``enter`` and ends with ``leave``. If it raises in between, the state stays as it was.
    """

    __slots__ = ("_permit", "_task", "state")

    def __init__(self, task: TaskId) -> None:
        self.state = TaskState.RUNNING
        self._task = task
        self._permit: object | None = None

    def enter(self, call: TaskCall, permit: object | None = None) -> None:
        """Check that a call is allowed now. Raises ``TaskStateError``."""
        if (self.state, call) not in TRANSITIONS:
            allowed = ", ".join(c for s, c in TRANSITIONS if s is self.state)
            raise TaskStateError(
                f"task {self._task} is {self.state.value}, and {call} was called; allowed now: {allowed}. "
                "This is a defect of the runner that drives the task"
            )
        if call in NEEDS_PERMIT and permit is not self._permit:
            raise TaskStateError(
                f"task {self._task}: {call} was called with the work of another commit than the one it has prepared. "
                "This is a defect of the runner that drives the task"
            )

    def leave(self, call: TaskCall, permit: object | None = None) -> None:
        """Enter the next state, now that the call has done its work. ``permit``: what ``prepare_commit`` returns."""
        self.state = TRANSITIONS[self.state, call]
        if call == "prepare_commit":
            self._permit = permit
        elif self.state is not TaskState.PREPARED:
            self._permit = None

    @property
    def has_permit(self) -> bool:
        """Whether a commit is prepared."""
        return self._permit is not None
