"""A producer's unit by itself: when it gives up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.state.errors import RetriableError, StateCorruptedError
from penstock.state.log import TaskId
from penstock.streams.runtime.commit_group import CommitGroup


class StandingClock:
    """Time stands."""

    def now_ms(self) -> int:
        """Wall clock."""
        return 0

    def monotonic_s(self) -> float:
        """For intervals."""
        return 0.0


class Flushes:
    """What a unit of at-most-once needs of a committer; some flushes time out."""

    guarantee = "at_most_once"

    def __init__(self, late: set[int]) -> None:
        self.late = late
        self.asked = 0

    def finish_ahead(self, tasks: Any, now_ms: int) -> None:
        """One flush."""
        self.asked += 1
        if self.asked in self.late:
            raise RetriableError("records were not acknowledged")

    def take_stale(self) -> list[Any]:
        """Nothing is in doubt."""
        return []


def test_flushes_that_time_out_are_told_of_and_never_end_the_run() -> None:
    late = Flushes(set(range(1, 100)))
    unit = CommitGroup(late, StandingClock(), lambda task: None)  # type: ignore[arg-type]  # the part of a committer that is used
    for _ in range(99):
        unit.commit()
        assert unit.silence is not None
    unit.commit()
    assert unit.silence is None


class Damaging:
    """What a unit needs of a committer at exactly-once. To go on from the last commit meets the damage of these tasks, one
    at a time."""

    guarantee = "exactly_once"

    def __init__(self, found: list[Any]) -> None:
        self.found = found
        self.aborted: list[list[Any]] = []
        self.commits = 0

    def commit(self, tasks: Any, now_ms: int) -> bool:
        """All is committed."""
        self.commits += 1
        return True

    def take_stale(self) -> list[Any]:
        """No task is."""
        return []

    def abort(self, tasks: list[Any], damaged: list[Any]) -> list[Any]:
        """Of the tasks that are sound."""
        self.aborted.append(tasks)
        if self.found:
            self.found.pop().backend.damaged = "a bad block"
            raise StateCorruptedError("a bad block")
        return []


def unit_of(found: int) -> tuple[CommitGroup, Damaging, list[Any], list[Any]]:
    tasks = [SimpleNamespace(id=TaskId(0, p), backend=SimpleNamespace(damaged=None)) for p in range(3)]
    committer, reopened = Damaging(tasks[3 - found :]), []
    unit = CommitGroup(committer, StandingClock(), reopened.append)  # type: ignore[arg-type]  # the part that is used
    unit.tasks.update({task.id: task for task in tasks})  # type: ignore[misc]  # the same
    return unit, committer, tasks, reopened


def test_damage_that_nobody_told_of_is_not_committed_upon() -> None:
    """A function of the user's may keep the error to itself."""
    unit, committer, tasks, reopened = unit_of(0)
    tasks[1].backend.damaged = "a bad block"
    unit.commit()
    assert (committer.commits, committer.aborted, reopened) == (0, [[tasks[0], tasks[2]]], [tasks[1]])
    assert not unit.broken


def test_tasks_whose_damage_is_met_by_the_abort_are_reopened_too() -> None:
    unit, committer, tasks, reopened = unit_of(2)
    unit.roll_back()
    while unit.broken:
        unit.recover()
    assert committer.aborted == [tasks, tasks[:2], tasks[:1]]
    assert sorted(task.id for task in reopened) == [TaskId(0, 1), TaskId(0, 2)]


def test_what_is_damaged_in_the_log_is_not_mended() -> None:
    unit, committer, _, _ = unit_of(0)
    with pytest.raises(StateCorruptedError, match="metadata"):
        unit.abort(StateCorruptedError("the metadata of a commit cannot be read"))
    assert committer.aborted == []


class Doubtful(Damaging):
    """A commit that was found to have taken place for the last task only."""

    def __init__(self, behind: list[Any]) -> None:
        super().__init__([])
        self.behind = behind

    def take_stale(self) -> list[Any]:
        """Once."""
        behind, self.behind = self.behind, []
        return behind


def test_a_task_that_lacks_a_commit_is_reopened_unless_it_left() -> None:
    unit, _, tasks, reopened = unit_of(0)
    unit.committer = Doubtful(tasks[1:])  # type: ignore[assignment]  # the part that is used
    del unit.tasks[tasks[1].id]
    unit.commit()
    assert reopened == [tasks[2]]


def test_a_task_that_cannot_be_reopened_ends_the_run() -> None:
    """It would be in no list any more."""
    unit, _, tasks, _ = unit_of(0)
    unit.committer = Doubtful(tasks[:1])  # type: ignore[assignment]  # the part that is used

    def fails(task: Any) -> None:
        raise RetriableError("no broker answers")

    unit._reopen = fails
    with pytest.raises(RetriableError):
        unit.commit()
