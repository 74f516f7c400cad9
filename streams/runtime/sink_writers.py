"""The writers of external sinks, of the tasks of one commit group: opened, written with each commit, closed, retried.

A commit writes the sinks before Kafka's positions. So a sink is never behind Kafka: after a crash between the two, the
records between are read again and their rows left out, because the sink says where it stands. A sink that stands behind
was brought back from a backup, or another program changed its positions: the worker ends and says so.

If a sink does not answer, or it is not known what it did, the commit is aborted, under any guarantee. Its task waits,
without reading on, until the sink could be opened again. Attempts follow each other with growing pauses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from penstock.state.errors import IncompatibleError, PenstockError, RetriableError
from penstock.state.log import TaskId
from penstock.streams.events.facts import Waiting
from penstock.streams.events.measurements import RecordsProduced
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.runtime.retry_backoff import RetryBackoff
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.task import Task
from penstock.streams.task.task_sinks import TaskSink
from penstock.topologies.operator_api.external_sinks import SinkWriter


class SinkUnansweredError(RetriableError):
    """A sink did not answer a commit, or it is not known what it did: abort, and open it again."""


@dataclasses.dataclass
class _OpenedSink:
    """A sink of a task. ``writer`` is ``None`` while it waits to be opened, at ``due_s`` at the earliest."""

    name: str
    task: Task
    of: TaskSink
    backoff: RetryBackoff
    writer: SinkWriter | None = None
    due_s: float = 0.0

    @property
    def taken(self) -> int:
        """How far the task has read the topic that the rows come from."""
        return self.task.feed.positions()[self.of.partition.topic]

    @property
    def committed(self) -> int:
        """How far the group has committed it. The task may have taken more, although it waits: places without records."""
        return self.task.own_positions.known[self.of.partition.topic].offset


class SinkWriters:
    """See the module."""

    def __init__(self, clock_s: Callable[[], float], events: EventSink = NO_EVENTS) -> None:
        self._clock_s = clock_s
        self._events = events
        self._places: dict[TaskId, list[_OpenedSink]] = {}

    def add(self, task: Task) -> None:
        """A task runs. Its sinks are opened at the next turn."""
        if not task.sinks:
            return
        task.sinks.collect()
        self._places[task.id] = [
            _OpenedSink(name, task, of, RetryBackoff(f"writing to sink {of.partition}", self._events))
            for name, of in task.sinks.items()
        ]

    def drop(self, task_id: TaskId) -> None:
        """A task is gone."""
        for place in self._places.pop(task_id, ()):
            _close(place)

    def ready(self, task: Task) -> bool:
        """Whether the task's sinks are open, so that it may go on."""
        return all(place.writer is not None for place in self._places.get(task.id, ()))

    def turn(self) -> None:
        """Open the sinks that wait for it, and have those committed whose rows are due. Raises what only a user can
        fix."""
        now_s = self._clock_s()
        for places in self._places.values():
            for place in places:
                if place.writer is None and now_s >= place.due_s:
                    self._open(place)
                elif place.writer is not None and place.writer.due():
                    place.task.uncommitted_records = max(place.task.uncommitted_records, 1)

    def _open(self, place: _OpenedSink) -> None:
        start = place.committed
        try:
            writer = place.of.sink.open(place.of.partition, start)
        except RetriableError as exc:
            self._failed(place, exc)
            return
        if writer.position < start:
            writer.close()
            raise IncompatibleError(
                f"sink {place.of.partition} stands at offset {writer.position}, and the group has committed {start}: the "
                "sink was brought back from a backup, or its positions were changed. To write the rows between again, stop "
                f"the workers and set the group's position of {place.of.partition.topic}-{place.of.partition.partition} to "
                f"{writer.position}; to go without them, set the sink's position to {start}"
            )
        place.writer = writer
        place.task.sinks.stands_at(place.name, writer.position)
        place.backoff.succeeded(self._clock_s())

    def _failed(self, place: _OpenedSink, cause: PenstockError) -> None:
        now_s = self._clock_s()
        begun = Waiting(f"writing to sink {place.of.partition}", cause, 0.0)
        place.due_s = now_s + place.backoff.failed(cause, now_s, begun)
        _close(place)

    def write(self, works: Sequence[tuple[Task, CommitWork]]) -> None:
        """Write the rows of a commit, before its positions go to Kafka. The positions of a task wait for sinks that make
        rows of several commits durable at once. Raises ``SinkUnansweredError``: abort; ``TaskMigratedError``."""
        for task, work in works:
            for place in self._places.get(task.id, ()):
                topic = place.of.partition.topic
                durable = self._write(place, place.taken)
                work.positions[topic] = min(work.positions[topic], durable)

    def _write(self, place: _OpenedSink, position: int) -> int:
        rows = place.task.sinks.take(place.name)
        if place.writer is None:
            raise SinkUnansweredError(f"sink {place.of.partition} is not open")
        if position <= place.writer.position and not place.writer.due():
            return position  # the sink is ahead: it has what was read again
        try:
            durable = place.writer.write(rows, position)
        except RetriableError as exc:
            self._failed(place, exc)
            raise SinkUnansweredError(f"sink {place.of.partition}: {exc}") from exc
        self._events.measure(RecordsProduced(f"sink:{place.name}", len(rows), 0))
        return durable

    def reopen(self, task: Task) -> None:
        """The task goes back to what is committed: open its sinks again, where they say how far they are."""
        for place in self._places.get(task.id, ()):
            _close(place)


def _close(place: _OpenedSink) -> None:
    if place.writer is not None:
        writer, place.writer = place.writer, None
        writer.close()
