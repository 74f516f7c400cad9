"""When stores reach the disk: when their task has caught up, and every interval; one task at a time."""

from __future__ import annotations

import itertools

from penstock.state.log import TaskId
from penstock.streams.events.facts import TaskCaughtUp
from tests.recorder import Recorder
from tests.simulation.programs import clicks_world
from tests.simulation.world import TURN_MS

INTERVAL_MS = 700
TURNS = 400


def test_tasks_are_flushed_one_after_the_other_and_none_is_left_out() -> None:
    world = clicks_world("at_least_once")
    node = world.node("a")
    flushed: list[tuple[int, TaskId]] = []
    watched: set[TaskId] = set()
    for _ in range(TURNS):
        for task_id, task in node.runtime.tasks.items():
            if task.stores and task_id not in watched:
                watched.add(task_id)
                flush = task.backend.flush

                def look(task_id: TaskId = task_id, flush: object = flush) -> None:
                    flushed.append((world.log.now_ms, task_id))
                    assert callable(flush)
                    flush()

                task.backend.flush = look  # type: ignore[method-assign]  # to see when
        node.turn()
    assert len(watched) > 1
    moments = [ms for ms, _ in flushed]
    assert len(set(moments)) == len(moments)
    for task_id in watched:
        mine = [ms for ms, of in flushed if of == task_id]
        assert len(mine) >= TURNS * TURN_MS // INTERVAL_MS - 2
        assert all(later - sooner <= INTERVAL_MS * 3 // 2 for sooner, later in itertools.pairwise(mine))


def test_a_task_that_has_caught_up_is_flushed_once_everything_is_committed() -> None:
    world = clicks_world("at_least_once")
    world.events = recorder = Recorder()
    node = world.node("a")
    node.runtime._flushing._interval_ms = 1 << 40  # none is due by time
    flushed: dict[TaskId, list[tuple[bool, int]]] = {}
    for _ in range(TURNS):
        for task_id, task in node.runtime.tasks.items():
            if task.stores and task_id not in flushed:
                flushed[task_id] = []
                flush = task.backend.flush

                def look(task_id: TaskId = task_id, flush: object = flush) -> None:
                    there = task_id in {fact.task for fact in recorder.of(TaskCaughtUp)}
                    flushed[task_id].append((there, node.runtime.tasks[task_id].uncommitted_records))
                    assert callable(flush)
                    flush()

                task.backend.flush = look  # type: ignore[method-assign]  # to see when
        node.turn()
    assert len(flushed) > 1
    assert all(seen == [(True, 0)] for seen in flushed.values()), "each once"
