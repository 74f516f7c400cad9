"""The run loop of one worker process: poll → tasks → commit, and what the group says in between.

One thread. It owns a consumer, the tasks that are assigned to it, and one ``Unit`` (a committer and its tasks) for all of
them in a group, or one per partition with fixed partitions. Everything it touches outside comes by ports, so that it
runs against the in-memory log as it does against Kafka.

What the group says:

* **assign**: take the membership token, read the committed positions, start reading there, paused until the task's
  stores are restored (by ``Restoring``, off this thread).
* **revoke**: commit inside the callback, then close. **lost**: discard, never commit.

What goes wrong: ``AbortableError`` and ``ProducerRetiredError`` abort and go on from the committed offsets, at most
``ABORTS_MAX`` times in a row; ``TaskMigratedError`` discards everything and joins anew, or, with fixed partitions, ends the
loop, for nobody but the other worker may go on; ``RetriableError`` of a commit is tried again (exactly-once: after an
abort). An abort that the log does not answer is tried again for ``MEND_MAX_S``, and nothing else is done by that producer
meanwhile. Every other error ends the loop, with nothing committed past it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from penstock.state.errors import PenstockError, RetriableError, TaskMigratedError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.memory import MemoryBackend
from penstock.state.store import StoreSpec
from penstock.streams.commit import RESTARTABLE, Committer, Guarantee, start_positions
from penstock.streams.metadata import CommitMetadata
from penstock.streams.ports import Fetched, LogConsumer
from penstock.streams.prepare import Layout
from penstock.streams.task import Task, TaskOptions
from penstock.streams.task_state import Reached, TaskState
from penstock.topologies.graph import Topology

ABORTS_MAX = 3
MEND_MAX_S = 120.0
IDLE_POLL_S = 0.1


class Clock(Protocol):
    """Time from outside."""

    def now_ms(self) -> int:
        """Wall clock."""

    def monotonic_s(self) -> float:
        """For intervals."""


class Restoring(Protocol):
    """Gives tasks their stores, later. ``penstock.streams.restoring.Restorer`` is the real one."""

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], reached: Reached) -> None: ...

    def cancel(self, task: TaskId) -> None: ...

    def finished(self) -> list[tuple[TaskId, TaskState | BaseException]]: ...


@dataclasses.dataclass(frozen=True)
class RuntimeOptions:
    """``partitions``: the fixed ones, ``None`` in a group. ``state_flush_interval_ms``: the most that a crash of the
    machine makes the changelog repeat. ``buffered_max_records``: per input partition; above it the partition pauses."""

    guarantee: Guarantee
    commit_interval_ms: int
    task: TaskOptions
    poll_max_records: int = 10_000
    buffered_max_records: int = 30_000
    state_flush_interval_ms: int = 30_000
    partitions: tuple[int, ...] | None = None


@dataclasses.dataclass
class Unit:
    """A committer and the tasks whose work it commits together. ``broken_s``: since when an abort waits to be done."""

    committer: Committer
    tasks: dict[TaskId, Task] = dataclasses.field(default_factory=dict)
    aborts: int = 0
    broken_s: float | None = None


OpenCommitter = Callable[["Runtime", int | None], Committer]


class Runtime:
    """See the module. ``open_consumer`` makes the group's consumer (again after a rejoin); ``open_committer(runtime,
    partition)`` a committer: for all tasks (``None``) or for one fixed partition. ``on_joined`` is called when the group
    has given the first assignment, before anything of it is taken; what it raises ends the loop."""

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        layout: Layout,
        options: RuntimeOptions,
        open_consumer: Callable[[], LogConsumer],
        open_committer: OpenCommitter,
        restoring: Restoring,
        clock: Clock,
        on_joined: Callable[[], None] | None = None,
    ) -> None:
        self.topology = topology
        self.application_id = application_id
        self.layout = layout
        self.options = options
        self.fence: Any = None
        self.shutdown_requested = False
        self.records = 0
        self._open_consumer = open_consumer
        self._restoring = restoring
        self._clock = clock
        self._on_joined = on_joined
        self._sources = topology.source_topics(application_id)
        self._states: dict[TaskId, TaskState] = {}
        self._starts: dict[TaskId, dict[str, tuple[int, CommitMetadata]]] = {}
        self._tasks: dict[TaskId, Task] = {}
        self._paused: set[TopicPartition] = set()
        self._held: dict[TopicPartition, int] = {}
        """Ends seen of partitions whose task is still being restored."""
        self._last_commit_s = clock.monotonic_s()
        self._last_flush_s = self._last_commit_s
        self.consumer = open_consumer()
        fixed = options.partitions
        self._units: dict[int | None, Unit] = {
            p: Unit(open_committer(self, p)) for p in (fixed if fixed is not None else (None,))
        }

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the producers (fencing older ones), then join the group or take the fixed partitions."""
        for unit in self._units.values():
            if self.options.guarantee != "at_most_once":
                unit.committer.open()
        if self.options.partitions is None:
            self._join()
        else:
            self._take([TopicPartition(t, p) for p in self.options.partitions for t in self._topics_with(p)])

    def _join(self) -> None:
        self.consumer.subscribe(
            sorted(self._sources), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _topics_with(self, partition: int) -> list[str]:
        return [t for t, (sub, _) in self._sources.items() if partition < self.layout.tasks[sub]]

    def stop(self) -> None:
        """Commit, leave the group and release everything. Tasks that are another worker's already are not committed: it
        does their last records again."""
        try:
            with suppress(TaskMigratedError):
                self._commit_all()
        finally:
            self.close()

    def close(self) -> None:
        """Release everything without a commit, as after a crash, but politely."""
        for unit in self._units.values():
            unit.committer.close()
        for task in list(self._tasks):
            self._drop(task)
        for task in list(self._starts):
            self._restoring.cancel(task)
        self.consumer.close()

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """The tasks that run."""
        return self._tasks

    @property
    def restoring(self) -> list[TaskId]:
        """The tasks that wait for their stores."""
        return [t for t in self._starts if t not in self._tasks]

    # -- the loop ------------------------------------------------------------------------------------------------

    def step(self) -> int:
        """One turn; returns how many input records were processed."""
        self._take_restored()
        try:
            for unit in self._units.values():
                if unit.broken_s is not None:
                    self._mend(unit)
            fetched = self.consumer.poll(self.options.poll_max_records, self._poll_timeout_s())
            self._feed(fetched)
            done = self._process()
            if self._commit_due():
                self._commit_all()
        except TaskMigratedError as exc:
            if self.options.partitions is not None:
                raise TaskMigratedError(
                    f"{exc}. Another worker runs these fixed partitions, or this one was stopped for longer than the "
                    "transaction time-out: start it again when no other runs"
                ) from exc
            self._rejoin()
            return 0
        self._flush_when_due()
        self.records += done
        return done

    def _poll_timeout_s(self) -> float:
        if self.restoring or any(t.feed.buffered(topic) for t in self._tasks.values() for topic in t.topics):
            return 0.005
        if any(t.uncommitted_records for t in self._tasks.values()):
            left = self._last_commit_s + self.options.commit_interval_ms / 1000 - self._clock.monotonic_s()
            return min(max(left, 0.0), IDLE_POLL_S)
        return IDLE_POLL_S

    def _feed(self, fetched: Fetched) -> None:
        now_ms = self._clock.now_ms()
        for chunk in fetched.chunks:
            task = self._task_of(TopicPartition(chunk.topic, chunk.partition))
            if task is not None:
                task.add(chunk, chunk.offsets[-1] + 1, now_ms)
            elif self._id_of(tp := TopicPartition(chunk.topic, chunk.partition)) in self._starts:
                self.consumer.seek(tp, chunk.offsets[0])  # came before its task was ready: read it again then
        for tp, end in fetched.ends.items():
            task = self._task_of(tp)
            if task is not None:
                task.feed.set_end(tp.topic, end)
            else:
                self._held[tp] = end
        if self.options.guarantee == "at_most_once" and fetched.chunks:
            self._commit_ahead(fetched)
        self._hold_back()

    def _commit_ahead(self, fetched: Fetched) -> None:
        for unit in self._units.values():
            mine = {
                tp: chunk.offsets[-1] + 1
                for chunk in fetched.chunks
                if self._id_of(tp := TopicPartition(chunk.topic, chunk.partition)) in unit.tasks
            }
            if mine:
                unit.committer.commit_ahead(mine)

    def _hold_back(self) -> None:
        """Pause partitions that have plenty buffered, resume those that have room again."""
        limit = self.options.buffered_max_records
        full = {
            TopicPartition(topic, t.id.partition)
            for t in self._tasks.values()
            for topic in t.topics
            if t.feed.buffered(topic) > limit
        }
        running = {TopicPartition(topic, t.id.partition) for t in self._tasks.values() for topic in t.topics}
        if more := full - self._paused:
            self.consumer.pause(more)
        if room := (self._paused & running) - full:
            self.consumer.resume(room)
        self._paused = (self._paused - running) | full

    def _process(self) -> int:
        done = 0
        for unit in self._units.values():
            for task_id, task in list(unit.tasks.items()):
                # A slow batch must not keep the transaction of the one before it open.
                if self._commit_due():
                    self._commit_all()
                if unit.broken_s is not None:
                    break
                if unit.tasks.get(task_id) is not task:
                    continue
                try:
                    now_ms = self._clock.now_ms()
                    done += task.process(now_ms)
                    task.punctuate(now_ms)
                    unit.committer.send_outputs(task)
                except (*RESTARTABLE, RetriableError) as exc:
                    self._abort(unit, exc)
                    break
                self.shutdown_requested = self.shutdown_requested or task.requests.shutdown
        return done

    # -- commits -------------------------------------------------------------------------------------------------

    def _commit_due(self) -> bool:
        if any(t.requests.commit or t.requests.shutdown for t in self._tasks.values()):
            return True
        return self._clock.monotonic_s() - self._last_commit_s >= self.options.commit_interval_ms / 1000

    def _commit_all(self) -> None:
        for unit in self._units.values():
            self._commit(unit)
        self._last_commit_s = self._clock.monotonic_s()

    def _commit(self, unit: Unit) -> None:
        if unit.broken_s is not None:
            return
        try:
            self._commit_now(unit)
        except RESTARTABLE as exc:
            self._abort(unit, exc)
        except RetriableError as exc:
            if self.options.guarantee == "exactly_once":
                self._abort(unit, exc)
            else:
                unit.aborts += 1
                if unit.aborts > ABORTS_MAX:
                    raise

    def _commit_now(self, unit: Unit) -> None:
        now_ms = self._clock.now_ms()
        if self.options.guarantee == "at_most_once":
            unit.committer.finish_ahead(list(unit.tasks.values()), now_ms)
        elif unit.committer.commit(list(unit.tasks.values()), now_ms):
            unit.aborts = 0

    def _abort(self, unit: Unit, cause: PenstockError) -> None:
        """Everything of this producer since the last commit is undone and done again."""
        unit.aborts += 1
        if unit.aborts > ABORTS_MAX or self.options.guarantee == "at_most_once":
            raise cause
        self._undo(unit)

    def _undo(self, unit: Unit) -> None:
        unit.broken_s = self._clock.monotonic_s()
        self._mend(unit)

    def _mend(self, unit: Unit) -> None:
        """Abort, now or, while the log does not answer, at the next turn."""
        assert unit.broken_s is not None
        try:
            behind = unit.committer.abort(list(unit.tasks.values()))
        except RetriableError:
            if self._clock.monotonic_s() - unit.broken_s > MEND_MAX_S:
                raise
            return
        unit.broken_s = None
        for task in behind:
            self._drop(task.id)
            self._take([TopicPartition(t, task.id.partition) for t in task.topics])

    def _flush_when_due(self) -> None:
        """Make idle stores reach the disk, so that a crash of the machine repeats little of the changelog."""
        now_s = self._clock.monotonic_s()
        if now_s - self._last_flush_s < self.options.state_flush_interval_ms / 1000:
            return
        self._last_flush_s = now_s
        for unit in self._units.values():
            for task in unit.tasks.values():
                if task.stores:
                    unit.committer.refresh(task)
                    task.backend.flush()

    # -- the group -----------------------------------------------------------------------------------------------

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.fence = self.consumer.group_metadata()
        if self._on_joined is not None:
            self._on_joined()
            self._on_joined = None
        self._take(partitions)

    def _take(self, partitions: Sequence[TopicPartition]) -> None:
        """Start what these partitions make whole: read on from the committed positions, restore, then run."""
        by_task: dict[TaskId, list[TopicPartition]] = {}
        for tp in partitions:
            by_task.setdefault(self._id_of(tp), []).append(tp)
        offsets: dict[TopicPartition, int] = {}
        for task_id, mine in by_task.items():
            start = start_positions(self.consumer, mine)
            self._starts.setdefault(task_id, {}).update(start)
            offsets |= {tp: start[tp.topic][0] for tp in mine}
        self.consumer.assign_at(offsets)
        for task_id, mine in by_task.items():
            sub = self.topology.subtopologies[task_id.subtopology]
            start = self._starts[task_id]
            whole = len(start) == len(sub.sources)
            if sub.stores or not whole:
                self.consumer.pause(mine)
            if not whole:
                continue  # the broker's protocol may give the rest in another assignment
            if sub.stores:
                self._restoring.submit(task_id, sub.stores, _reached(start))
            else:
                self._run(task_id, TaskState(MemoryBackend([]), None))
                self.consumer.resume([TopicPartition(t, task_id.partition) for t in start])

    def _take_restored(self) -> None:
        for task_id, result in self._restoring.finished():
            if isinstance(result, BaseException):
                raise result
            if task_id not in self._starts:
                result.close()
                continue
            self._run(task_id, result)
            self.consumer.resume([TopicPartition(t, task_id.partition) for t in self._tasks[task_id].topics])

    def _run(self, task_id: TaskId, state: TaskState) -> None:
        sub = self.topology.subtopologies[task_id.subtopology]
        task = Task(
            task_id,
            self.application_id,
            self.topology,
            sub,
            state.backend,
            self._starts[task_id],
            self.options.task,
            self.layout.topics,
            task_count=self.layout.tasks[task_id.subtopology],
        )
        self._states[task_id] = state
        self._tasks[task_id] = task
        for topic in task.topics:
            end = self._held.pop(TopicPartition(topic, task_id.partition), None)
            if end is not None:
                task.feed.set_end(topic, end)
        self._unit_of(task_id).tasks[task_id] = task

    def _on_revoke(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit while still a member, then close. What cannot be committed now is done again by the next owner, and by
        this member for the tasks that stay."""
        failed: list[Unit] = []
        for unit in self._units.values():
            try:
                if unit.broken_s is None:
                    self._commit_now(unit)
                    continue
            except TaskMigratedError:
                self._on_lost(partitions)
                raise
            except (*RESTARTABLE, RetriableError):
                if self.options.guarantee == "at_most_once":
                    raise
            failed.append(unit)  # aborted below, without the tasks that leave
        self._leave(partitions)
        for unit in failed:
            self._undo(unit)

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Another member may own them already: nothing may be committed."""
        self._leave(partitions)
        for unit in self._units.values():
            self._undo(unit)

    def _leave(self, partitions: Iterable[TopicPartition]) -> None:
        going = set(partitions)
        leaving = {self._id_of(tp) for tp in going}
        for task_id in leaving:
            self._restoring.cancel(task_id)
            start = self._starts.get(task_id, {})
            self._drop(task_id)
            self._starts.pop(task_id, None)
            if any(TopicPartition(t, task_id.partition) not in going for t in start):
                raise TaskMigratedError(
                    f"the group took a part of task {task_id}'s inputs; its work is discarded, and the group joined again"
                )
        gone = {tp for tp in self._paused | set(self._held) if self._id_of(tp) in leaving}
        self._paused -= gone
        for tp in gone:
            self._held.pop(tp, None)

    def _drop(self, task_id: TaskId) -> None:
        task = self._tasks.pop(task_id, None)
        self._unit_of(task_id).tasks.pop(task_id, None)
        if task is not None:
            self._starts.pop(task_id, None)
            self._states.pop(task_id).close()

    def _rejoin(self) -> None:
        """Fenced, or no longer a member: discard everything and join anew."""
        self._on_lost([TopicPartition(t, p) for t in self._sources for p in range(self._count_of(t))])
        self.consumer.close()
        self.consumer = self._open_consumer()
        for unit in self._units.values():
            unit.committer.consumer = self.consumer
        self.start()

    def _count_of(self, topic: str) -> int:
        return self.layout.tasks[self._sources[topic][0]]

    # -- lookups -------------------------------------------------------------------------------------------------

    def _id_of(self, tp: TopicPartition) -> TaskId:
        return TaskId(self._sources[tp.topic][0], tp.partition)

    def _task_of(self, tp: TopicPartition) -> Task | None:
        return self._tasks.get(self._id_of(tp))

    def _unit_of(self, task_id: TaskId) -> Unit:
        return self._units[None if self.options.partitions is None else task_id.partition]


def _reached(start: Mapping[str, tuple[int, CommitMetadata]]) -> Reached:
    changelogs: dict[str, int] = {}
    for _, noted in start.values():
        changelogs |= {name: max(offset, changelogs.get(name, 0)) for name, offset in noted.changelogs.items()}
    return Reached({topic: offset for topic, (offset, _) in start.items()}, changelogs)
