"""How far the tasks of a worker are behind the ends of their inputs, and when to report it.

A task has caught up once it has processed every record up to the last known end. That end is some seconds old, so a
worker that keeps up with a steady stream counts as caught up. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.state.log import TaskId, TopicPartition
from penstock.streams.events.facts import FallingBehind, TaskCaughtUp
from penstock.streams.events.port import EventSink
from penstock.streams.task.task import Task

BEHIND_AFTER_S = 30.0
"""A task that had caught up is reported after it has been behind for this long."""


def lag_of(task: Task, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
    """The records that are not processed yet, by input topic, as far as the ends are known."""
    positions = task.feed.positions()
    partition = task.id.partition
    found = {topic: ends.get(TopicPartition(topic, partition)) for topic in positions}
    return {topic: max(end - positions[topic], 0) for topic, end in found.items() if end is not None}


class LagWatch:
    """Reports each task that catches up, and each that falls behind after it had."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._caught_up_s: dict[TaskId, float] = {}
        """When each task that has caught up was last seen at the ends."""
        self._behind: set[TaskId] = set()
        """Tasks that had caught up and were reported as behind since."""

    def look(self, tasks: Mapping[TaskId, Task], ends: Mapping[TopicPartition, int], now_s: float) -> list[TaskId]:
        """Call it after each turn. Returns the tasks that have caught up in it."""
        caught_up = []
        for task_id, task in tasks.items():
            lag = sum(lag_of(task, ends).values())
            known = self._caught_up_s.get(task_id)
            if lag == 0 and (known is not None or task.feed.at_end):
                if known is None or task_id in self._behind:
                    self._events.emit(TaskCaughtUp(task_id))
                    caught_up.append(task_id)
                self._caught_up_s[task_id] = now_s
                self._behind.discard(task_id)
            elif known is not None and now_s - known >= BEHIND_AFTER_S and task_id not in self._behind:
                self._behind.add(task_id)
                self._events.emit(FallingBehind(task_id, lag, now_s - known))
        return caught_up

    def forget(self, task_id: TaskId) -> None:
        """The task is closed."""
        self._caught_up_s.pop(task_id, None)
        self._behind.discard(task_id)
