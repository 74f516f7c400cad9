"""Every call of every task in every test is followed by ``Task.validate``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from penstock.streams.task.task import Task

CALLS = (
    "add",
    "process",
    "punctuate",
    "replay_clock",
    "prepare_commit",
    "offsets",
    "committed",
    "abandon_commit",
    "discard",
)


def validated(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, and then the check, where the call did not raise."""

    @functools.wraps(call)
    def checked(task: Task, *args: Any, **kwargs: Any) -> Any:
        answer = call(task, *args, **kwargs)
        task.validate()
        return answer

    return checked


def validate_tasks() -> None:
    """From now on, in this process."""
    for name in CALLS:
        call = getattr(Task, name)
        if not hasattr(call, "__wrapped__"):
            setattr(Task, name, validated(call))
