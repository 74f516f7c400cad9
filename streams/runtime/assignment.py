"""Which tasks a worker has: from assigned partitions to running tasks, and back.

A task starts when all of its inputs are assigned and its stores are restored (by ``Restoring``, off the loop's
thread); until then its partitions are assigned but paused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from penstock.state.errors import IncompatibleError, StateCorruptedError, TaskMigratedError
from penstock.state.failpoints import failpoint
from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.streams.events.facts import TaskReopened, TaskRunning
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.log import LogConsumer
from penstock.streams.runtime.start_positions import start_positions
from penstock.streams.runtime.unread_internal_topics import refuse_other_form
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.topologies.graph.topology import Topology

StartPositions = Mapping[str, tuple[int, CommitMetadata]]


class Restoring(Protocol):
    """Provides tasks with their stores, asynchronously. ``penstock.streams.worker.restorer.Restorer`` is the real
    one."""

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> None: ...

    def cancel(self, task: TaskId) -> None: ...

    def finished(self) -> list[tuple[TaskId, TaskStores | BaseException]]: ...


class Assignment:
    """See the module. ``open_task(task_id, backend, start)`` makes a task; ``on_run`` and ``on_drop`` tell of those that
    begin and end. ``open_reader`` makes a consumer that only reads. ``consumer`` is replaced after a rejoin.
    ``topic_ids``: those of now, by topic."""

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        consumer: LogConsumer,
        restoring: Restoring,
        open_task: Callable[[TaskId, StateBackend, StartPositions], Task],
        on_run: Callable[[Task], None],
        on_drop: Callable[[TaskId], None],
        open_reader: Callable[[], LogConsumer],
        events: EventSink = NO_EVENTS,
        topic_ids: Mapping[str, str] | None = None,
    ) -> None:
        self._topic_ids = topic_ids or {}
        self.consumer = consumer
        self.tasks: dict[TaskId, Task] = {}
        """Those that run."""
        self.sources = topology.source_topics(application_id)
        self._topology = topology
        self._restoring = restoring
        self._open_task = open_task
        self._on_run = on_run
        self._on_drop = on_drop
        self._open_reader = open_reader
        self._events = events
        self._states: dict[TaskId, TaskStores] = {}
        self._starts: dict[TaskId, dict[str, tuple[int, CommitMetadata]]] = {}
        self._set_aside: set[TaskId] = set()
        """Tasks that have not run since their stores turned out to be damaged at the start."""
        self._held: dict[TopicPartition, int] = {}
        """Known ends of partitions whose task is still being restored."""

    # -- lookups -------------------------------------------------------------------------------------------------

    @property
    def restoring(self) -> list[TaskId]:
        """The tasks that wait for their stores."""
        return [t for t in self._starts if t not in self.tasks]

    def id_of(self, tp: TopicPartition) -> TaskId:
        """The task that reads a partition."""
        return TaskId(self.sources[tp.topic][0], tp.partition)

    def task_of(self, tp: TopicPartition) -> Task | None:
        """The task that reads a partition, if it runs."""
        return self.tasks.get(self.id_of(tp))

    def awaits(self, tp: TopicPartition) -> bool:
        """Whether the partition's task is still being restored."""
        return self.id_of(tp) in self._starts and self.task_of(tp) is None

    # -- coming --------------------------------------------------------------------------------------------------

    def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Start the tasks whose inputs these partitions complete: read from the committed positions, restore, then
        run."""
        by_task: dict[TaskId, list[TopicPartition]] = {}
        for tp in partitions:
            by_task.setdefault(self.id_of(tp), []).append(tp)
        offsets: dict[TopicPartition, int] = {}
        for task_id, mine in by_task.items():
            start = start_positions(self.consumer, mine)
            failpoint("assign.positions_read")
            for tp in mine:
                self._require_same(tp, start[tp.topic][1])
                source = self._topology.source(self.sources[tp.topic][1])
                refuse_other_form(source, tp, start[tp.topic], self._open_reader)
            self._starts.setdefault(task_id, {}).update(start)
            offsets |= {tp: start[tp.topic][0] for tp in mine}
        self.consumer.assign_at(offsets)
        for task_id, mine in by_task.items():
            sub = self._topology.subtopologies[task_id.subtopology]
            start = self._starts[task_id]
            whole = len(start) == len(sub.sources)
            if sub.stores or not whole:
                self.consumer.pause(mine)
            if not whole:
                continue  # the broker's protocol may assign the rest later
            if sub.stores:
                self._restoring.submit(task_id, sub.stores, _reached(start))
            else:
                self._run(task_id, TaskStores(MemoryBackend([]), None))
                self.consumer.resume([TopicPartition(t, task_id.partition) for t in start])
        failpoint("assign.taken")

    def _require_same(self, tp: TopicPartition, noted: CommitMetadata) -> None:
        topic_id = self._topic_ids.get(tp.topic, noted.topic_id)
        if noted.topic_id and topic_id != noted.topic_id:
            raise IncompatibleError(
                f"topic {tp.topic} was deleted and recreated since the last commit: its id was {noted.topic_id} and is "
                f"{topic_id}, so that the committed positions mean nothing in it. Stop the application and reset the "
                "group's positions; to build the stores from the new topic alone, delete its changelog topics and state "
                "folder too"
            )

    def take_restored(self) -> None:
        """Run the tasks whose stores are ready. Raises the error that made a restore fail."""
        for task_id, result in self._restoring.finished():
            if isinstance(result, BaseException):
                raise result
            if task_id not in self._starts:
                result.close()
                continue
            try:
                self._run(task_id, result)
            except StateCorruptedError as exc:
                result.close()
                if result.backend.damaged is None or task_id in self._set_aside:
                    raise
                self._set_aside.add(task_id)
                self._events.emit(TaskReopened(task_id, f"its stores are damaged: {exc}"))
                stores = self._topology.subtopologies[task_id.subtopology].stores
                self._restoring.submit(task_id, stores, _reached(self._starts[task_id]))
                continue
            self.consumer.resume([TopicPartition(t, task_id.partition) for t in self.tasks[task_id].topics])

    def set_end(self, tp: TopicPartition, end: int) -> None:
        """A partition was read to its end."""
        task = self.task_of(tp)
        if task is not None:
            task.feed.set_end(tp.topic, end)
        elif self.awaits(tp):
            self._held[tp] = end

    def _run(self, task_id: TaskId, state: TaskStores) -> None:
        task = self._open_task(task_id, state.backend, self._starts[task_id])
        self._set_aside.discard(task_id)
        self._states[task_id] = state
        self.tasks[task_id] = task
        self._share_cache()
        for topic in task.topics:
            end = self._held.pop(TopicPartition(topic, task_id.partition), None)
            if end is not None:
                task.feed.set_end(topic, end)
        self._on_run(task)
        self._events.emit(TaskRunning(task_id, {t: offset for t, (offset, _) in self._starts[task_id].items()}))

    def _share_cache(self) -> None:
        """The bound of cached entries is shared equally by all tasks that have stores."""
        sharing = [task for task in self.tasks.values() if task.stores]
        for task in sharing:
            task.cache_max_bytes = task.options.state_cache_max_bytes // len(sharing)

    # -- going ---------------------------------------------------------------------------------------------------

    def leave(self, partitions: Iterable[TopicPartition]) -> set[TaskId]:
        """Close the tasks of these partitions without a commit, and drop their state here. Raises
        ``TaskMigratedError`` if a task loses only a part of its inputs."""
        going = set(partitions)
        failpoint("revoke.closing")
        leaving = {self.id_of(tp) for tp in going}
        for task_id in leaving:
            self._restoring.cancel(task_id)
            start = self._starts.get(task_id, {})
            self.drop(task_id)
            self._starts.pop(task_id, None)
            self._set_aside.discard(task_id)
            if any(TopicPartition(t, task_id.partition) not in going for t in start):
                raise TaskMigratedError(
                    f"the group took a part of task {task_id}'s inputs; its work is discarded, and the group joined again"
                )
        for tp in [tp for tp in self._held if self.id_of(tp) in leaving]:
            del self._held[tp]
        failpoint("revoke.closed")
        return leaving

    def drop(self, task_id: TaskId) -> None:
        """Close a task, if it runs."""
        task = self.tasks.pop(task_id, None)
        self._on_drop(task_id)
        if task is not None:
            task.retire()
            self._share_cache()
            self._starts.pop(task_id, None)
            self._states.pop(task_id).close()

    def reopen(self, task: Task) -> None:
        """Close a task and start it again from what is committed."""
        self.drop(task.id)
        self.take([TopicPartition(t, task.id.partition) for t in task.topics])

    def close(self) -> None:
        """Close all tasks and cancel those that wait. One that cannot be closed does not keep the others open."""
        with ExitStack() as closing:
            for task_id in self._starts:
                closing.callback(self._restoring.cancel, task_id)
            for task_id in self.tasks:
                closing.callback(self.drop, task_id)


def _reached(start: StartPositions) -> CommittedPositions:
    changelogs: dict[str, int] = {}
    epochs: dict[str, int] = {}
    for _, noted in start.values():
        for name, offset in noted.changelogs.items():
            if offset >= changelogs.get(name, 0):
                changelogs[name] = offset
                epochs |= {name: noted.epochs[name]} if name in noted.epochs else {}
    return CommittedPositions({topic: offset for topic, (offset, _) in start.items()}, changelogs, epochs)
