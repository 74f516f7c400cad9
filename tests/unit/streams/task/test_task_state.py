"""A task refuses calls that are out of order, and what it refused changed nothing."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import penstock as ps
from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_state import (
    NEEDS_PERMIT,
    TRANSITIONS,
    TaskCall,
    TaskLifecycle,
    TaskState,
    TaskStateError,
)


def counting(before: CommitMetadata | None = None) -> Task:
    """A task that counts per key. ``before``: what was committed last with its position."""
    builder = ps.StreamsBuilder("t")
    events = builder.stream("in", key=bytes, value=bytes)
    events.group_by_key().count(name="counts").to_stream().to("out", key=bytes, value=int)
    topology = builder.build()
    (sub,) = topology.subtopologies
    start = {"in": (0, before or CommitMetadata())}
    return Task(TaskId(0, 0), "app", topology, sub, MemoryBackend(sub.stores), start, TaskOptions(), {"out": 1})


def give(task: Task, *offsets: int) -> None:
    """Records of one key."""
    n = len(offsets)
    task.add(Chunk("in", 0, list(offsets), [b"k"] * n, [b"v"] * n, [1_000] * n, None), offsets[-1] + 1)


def ends(task: Task) -> dict[TopicPartition, int]:
    return {TopicPartition("app-counts-changelog", 0): 1}


@pytest.mark.parametrize("call", get_args(TaskCall))
@pytest.mark.parametrize("state", TaskState)
def test_the_table_is_what_the_lifecycle_does(state: TaskState, call: TaskCall) -> None:
    lifecycle = TaskLifecycle(TaskId(0, 0))
    permit: Any = object()
    if state is TaskState.PREPARED:
        lifecycle.leave("prepare_commit", permit)
    elif state is TaskState.CLOSED:
        lifecycle.leave("close")
    assert lifecycle.state is state
    given = permit if call in NEEDS_PERMIT else None
    if (state, call) in TRANSITIONS:
        lifecycle.enter(call, given)
        lifecycle.leave(call, permit if call == "prepare_commit" else None)
        assert lifecycle.state is TRANSITIONS[state, call]
        assert lifecycle.has_permit == (lifecycle.state is TaskState.PREPARED)
    else:
        with pytest.raises(TaskStateError, match=f"task 0_0 is {state.value}, and {call} was called"):
            lifecycle.enter(call, given)
        assert lifecycle.state is state


def test_a_record_between_prepare_and_committed_is_refused_and_stays_for_later() -> None:
    task = counting()
    give(task, 0)
    task.process()
    task.take_outputs()
    work = task.prepare_commit()
    give(task, 1)  # buffered
    with pytest.raises(TaskStateError, match="prepared, and process was called"):
        task.process()
    task.offsets(work, ends(task))
    task.committed(work, {"counts": b""})
    assert task.process() == 1
    assert task.uncommitted_records == 1
    work = task.prepare_commit()
    (_, written), *_ = work.changelogs
    assert len(written.keys if written.key_column is None else written.key_column) == 1


def test_only_the_newest_permit_commits() -> None:
    task = counting()
    give(task, 0)
    task.process()
    first = task.prepare_commit()
    task.abandon_commit(first)
    give(task, 1)
    task.process()
    second = task.prepare_commit()
    task.take_outputs()
    for call in (lambda: task.offsets(first, ends(task)), lambda: task.committed(first, {"counts": b""})):
        with pytest.raises(TaskStateError, match="the work of another commit"):
            call()
    task.offsets(second, ends(task))
    task.committed(second, {"counts": b""})
    for late in (first, second):
        with pytest.raises(TaskStateError):
            task.committed(late, {"counts": b""})


def test_a_closed_task_does_nothing_more() -> None:
    task = counting()
    task.close()
    task.close()
    with pytest.raises(TaskStateError, match="task 0_0 is closed"):
        task.process()


def test_the_end_of_a_store_that_the_topology_no_longer_has_is_carried_on() -> None:
    """A worker of the topology before, in a rolling update, restores its store up to there."""
    task = counting(CommitMetadata(version=1, changelogs={"removed": 7}))
    give(task, 0)
    while task.process():
        task.take_outputs()
    work = task.prepare_commit()
    (committed,) = task.offsets(work, ends(task)).values()
    assert commit_metadata.decode(committed.metadata).changelogs == {"removed": 7, "counts": 1}
    task.committed(work, dict.fromkeys(task.stores, b""))
    task.validate()
