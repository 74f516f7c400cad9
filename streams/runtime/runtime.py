"""The run loop of one worker process: poll → tasks → commit, and what the group says in between.

One thread. It owns a consumer, the tasks that are assigned to it, and one ``CommitGroup`` (a committer and its tasks)
for all of them in a group, or one per partition with fixed partitions. Everything it touches outside comes by ports,
so that it runs against the in-memory log as it does against Kafka.

What the group says:

* **assign**: take the membership token, read the committed positions, start reading there, paused until the task's
  stores are restored (by ``Restoring``, off this thread).
* **revoke**: commit inside the callback, then close. **lost**: discard, never commit.

A commit waits for the log's answers and nothing else goes on meanwhile. Measured with the broker on the same machine, that
is 1 to 2 % of the time with a commit each second, 4 to 7 % at least-once and 6 to 15 % exactly-once with one every 100 ms.
Reading the next records during the wait was tried and won nothing: the client's own threads fetch them anyway, and polls
became smaller. Processing them would need stores that tell apart what belongs to the commit in flight.

The commit group repairs a failed commit, and damage to the stores of its tasks. ``TaskMigratedError`` discards
everything and joins again (``RejoinPacing`` says when), or, with fixed partitions, ends the loop, for nobody but the other
worker may go on. ``RetriableError`` does the same under both: whatever was half done begins again once the log answers.
Every other error ends the loop, with nothing committed past it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from penstock.state.errors import (
    PenstockError,
    RetriableError,
    TaskMigratedError,
)
from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.store import StateBackend
from penstock.streams.events.facts import (
    CommitAborted,
    CommitLate,
    Fenced,
    TasksAssigned,
    TasksLost,
    TasksRevoked,
)
from penstock.streams.events.measurements import BatchProcessed, RecordsConsumed, TaskPunctuated
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.log import Fetched, LogConsumer
from penstock.streams.ports.record_sizes import size_of
from penstock.streams.runtime.adaptive_batching import AdaptiveBatchSize
from penstock.streams.runtime.assignment import Assignment, Restoring, StartPositions
from penstock.streams.runtime.changelog_marks import ChangelogMarks
from penstock.streams.runtime.commit_group import Clock, CommitGroup
from penstock.streams.runtime.commit_protocol import RESTARTABLE, Committer
from penstock.streams.runtime.idle_flushing import IdleFlushing
from penstock.streams.runtime.lag import LagWatch
from penstock.streams.runtime.partition_pausing import PartitionPausing
from penstock.streams.runtime.rejoin_pacing import RejoinPacing
from penstock.streams.runtime.repartition_purging import Purger
from penstock.streams.runtime.retry_backoff import RetryBackoff
from penstock.streams.runtime.runtime_options import RuntimeOptions
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.runtime.topic_watch import TopicWatch
from penstock.streams.task.task import Task
from penstock.topologies.graph.topology import Topology

IDLE_POLL_S = 0.1

REVOKE_SESSION_PARTS = 3
"""The last commit before partitions are given up takes at most this part of a session: the whole group waits for it,
and a member that takes longer than the session is excluded."""

SILENT_CLOSE_S = 1.0
"""The time for aborting an open transaction when a worker stops and the log does not answer; otherwise its timeout
ends it."""

COMMIT_AHEAD_TRIES = 3
"""At-most-once: how often positions are committed before the worker rejoins. Their records were not processed yet."""

PATIENT_POLL_S = 0.001
"""The poll while a commit waits for acknowledgements: they arrive within a few milliseconds."""

LATE_INTERVALS, LATE_S = 2, 1.0
"""A commit is late if this many intervals and seconds have passed since the one before it."""


OpenCommitter = Callable[["Runtime", int | None], Committer]


class Runtime:
    """See the module. ``open_consumer`` makes the group's consumer (again after a rejoin); ``open_committer(runtime,
    partition)`` a committer: for all tasks (``None``) or for one fixed partition. ``on_joined(partitions, afresh)`` is
    called when the group has given partitions, before anything of them is taken; ``afresh``: the first time, and after a
    loss. What it raises ends the loop.
    ``open_reader`` makes a consumer for a look at the log, separate from the group's (``None``: as that one).
    ``purger`` deletes what was read of repartition topics, ``changelog_purger`` what no restore needs; ``topic_watch`` ends
    the loop when a topic was recreated. ``events`` gets what happens."""

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        layout: TopicLayout,
        options: RuntimeOptions,
        open_consumer: Callable[[], LogConsumer],
        open_committer: OpenCommitter,
        restoring: Restoring,
        clock: Clock,
        on_joined: Callable[[Sequence[TopicPartition], bool], None] | None = None,
        open_reader: Callable[[], LogConsumer] | None = None,
        purger: Purger | None = None,
        changelog_purger: Purger | None = None,
        topic_watch: TopicWatch | None = None,
        events: EventSink = NO_EVENTS,
    ) -> None:
        self.topology = topology
        self.application_id = application_id
        self.layout = layout
        self.options = options
        self.fence: Any = None
        self.shutdown_requested = False
        self.records = 0
        self._open_consumer = open_consumer
        self._clock = clock
        self._on_joined = on_joined
        self._purgers = [p for p in (purger, changelog_purger) if p is not None]
        self._marks = ChangelogMarks(application_id)
        self._afresh = True
        self._topic_watch = topic_watch
        self._events = events
        self._lag = LagWatch(events)
        self._late = False
        self._pace = AdaptiveBatchSize(*options.turn_bounds())
        self._pausing = PartitionPausing(
            options.buffered_max_records, options.buffered_max_bytes, clock.monotonic_s, events
        )
        self._last_commit_s = clock.monotonic_s()
        session_s = options.session_timeout_ms / 1000
        self.rejoining = RejoinPacing(application_id, events, session_s, whole=not options.epochs_grow)
        self._outage = RetryBackoff("committing", events)
        self.consumer = open_consumer()
        self._assignment = Assignment(
            topology,
            application_id,
            self.consumer,
            restoring,
            self._open_task,
            self._on_run,
            self._on_drop,
            open_reader or open_consumer,
            events,
            options.task.topic_ids,
        )
        fixed = options.partitions
        self._groups: dict[int | None, CommitGroup] = {
            p: CommitGroup(open_committer(self, p), clock, self._assignment.reopen, events)
            for p in (fixed if fixed is not None else (None,))
        }
        self._flushing = IdleFlushing(
            list(self._groups.values()), options.state_flush_interval_ms, clock.monotonic_s, self._last_commit_s
        )

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the producers (fencing older ones), then join the group or take the fixed partitions."""
        for group in self._groups.values():
            if self.options.guarantee != "at_most_once" or self.options.partitions is not None:
                group.committer.open()
        if self.options.partitions is None:
            self._join()
        else:
            self._take(self._all_partitions())

    def _join(self) -> None:
        self.consumer.subscribe(
            sorted(self._assignment.sources),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_taken_over,
        )
        self.rejoining.asked(self._clock.monotonic_s())

    def _all_partitions(self) -> list[TopicPartition]:
        if self.options.bounds is not None:
            return sorted(self.options.bounds.stops)
        fixed = self.options.partitions
        counts = {topic: self.layout.tasks[sub] for topic, (sub, _) in self._assignment.sources.items()}
        return [TopicPartition(t, p) for t, n in counts.items() for p in range(n) if fixed is None or p in fixed]

    def stop(self) -> None:
        """Commit, leave the group and release everything. Tasks that another worker already owns are not committed:
        it repeats their last records."""
        try:
            for group in self._groups.values():
                if group.silence is None:  # else the log does not answer: uncommitted work is repeated
                    group.commit()
                    group.release()
        except TaskMigratedError as exc:
            self._events.emit(Fenced(exc))
        finally:
            self.close()

    def close(self) -> None:
        """Release everything without a commit, as after a crash, but in order; an error does not keep the rest from
        being released."""
        with ExitStack() as closing:
            closing.callback(self.consumer.close)
            closing.callback(self._assignment.close)
            for group in self._groups.values():
                if group.silence is not None:
                    closing.enter_context(group.committer.within(SILENT_CLOSE_S, self._clock.monotonic_s))
                closing.callback(group.committer.close)

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """The tasks that run."""
        return self._assignment.tasks

    def membership(self) -> Any:
        """The token that a commit is fenced by, taken where the group gave the partitions. Where epochs grow without that,
        it is taken before each commit. A worker that lost its partitions gets no valid one so: its client joins again only
        after ``on_lost`` was called, in a poll, where all tasks are dropped."""
        if self.options.epochs_grow:
            self.fence = self.consumer.group_metadata()
        return self.fence

    @property
    def restoring(self) -> list[TaskId]:
        """The tasks that wait for their stores."""
        return self._assignment.restoring

    # -- the loop ------------------------------------------------------------------------------------------------

    def step(self) -> int:
        """One turn; returns how many input records were processed."""
        self.rejoining.turn(self._clock.monotonic_s())
        if self._topic_watch is not None:
            self._topic_watch.turn(self._clock.monotonic_s())
        try:
            if self.rejoining.due_s is not None and not self._join_again():
                return 0
            self._assignment.take_restored()
            for group in self._groups.values():
                group.recover()
            self._report_silence()
            fetched = self.consumer.poll(self._pace.records, self._poll_timeout_s())
            self._pace.took(fetched.chunks)
            self._feed(fetched)
            done = self._process()
            if self._commit_due():
                self._commit_all()
            self._flushing.turn(self._clock.monotonic_s())
        except TaskMigratedError as exc:
            if self.options.partitions is not None:
                self._events.emit(Fenced(exc))
                raise TaskMigratedError(
                    f"{exc}. Another worker runs these fixed partitions, or this one was stopped for longer than the "
                    "transaction timeout: start it again when no other runs"
                ) from exc
            self._rejoin(exc)
            return 0
        except RetriableError as exc:
            self._rejoin(exc)
            return 0
        self._flushing.caught_up(self._lag.look(self.tasks, self.consumer.known_ends(), self._clock.monotonic_s()))
        for purger in self._purgers:
            purger.turn(self._clock.monotonic_s(), self._deletable)
        self.records += done
        return done

    def _report_silence(self) -> None:
        silent = [(group, group.silence) for group in self._groups.values() if group.silence is not None]
        if silent:
            group, cause = silent[0]
            self._outage.failed(cause, self._clock.monotonic_s(), group.delay)
        else:
            self._outage.succeeded(self._clock.monotonic_s())

    @property
    def uncommitted(self) -> bool:
        """Whether there is something to commit."""
        return any(t.uncommitted_records for t in self.tasks.values())

    def _poll_timeout_s(self) -> float:
        if self.restoring or self._waiting():
            return 0.005
        if self.uncommitted:
            left = self._last_commit_s + self.options.commit_interval_ms / 1000 - self._clock.monotonic_s()
            return min(max(left, PATIENT_POLL_S if self.options.commit_delay_max_ms else 0.0), IDLE_POLL_S)
        return IDLE_POLL_S

    def _feed(self, fetched: Fetched) -> None:
        now_ms = self._clock.now_ms()
        again = set()
        for chunk in fetched.chunks:
            tp = TopicPartition(chunk.topic, chunk.partition)
            task = self._assignment.task_of(tp)
            if task is not None:
                task.add(chunk, chunk.offsets[-1] + 1, now_ms)
                self._events.measure(RecordsConsumed(chunk.topic, len(chunk), size_of(chunk)))
            elif self._assignment.awaits(tp):
                self.consumer.seek(tp, chunk.offsets[0])  # arrived before its task was ready: it is read again then
                again.add(tp)
        for tp, end in fetched.ends.items():
            if tp not in again:
                self._assignment.set_end(tp, end)
        if self.options.guarantee == "at_most_once" and fetched.chunks:
            self._commit_ahead(fetched)
        self._pausing.turn(self.consumer, self.tasks.values(), self._pace.record_bytes)

    def _commit_ahead(self, fetched: Fetched) -> None:
        for group in self._groups.values():
            mine = {
                tp: chunk.offsets[-1] + 1
                for chunk in fetched.chunks
                if self._assignment.id_of(tp := TopicPartition(chunk.topic, chunk.partition)) in group.tasks
            }
            for left in reversed(range(COMMIT_AHEAD_TRIES if mine else 0)):
                try:
                    group.committer.commit_ahead(mine)
                    break
                except RetriableError:
                    if not left:
                        raise

    def _waiting(self) -> int:
        return sum(map(_buffered, self.tasks.values()))

    def _process(self) -> int:
        done = 0
        took_s = 0.0
        for group in self._groups.values():
            if any(map(_buffered, group.tasks.values())) and not group.owns():
                continue
            for task_id, task in list(group.tasks.items()):
                # A slow batch must not keep the previous batch's transaction open.
                if self._commit_due():
                    self._commit_all()
                if group.broken:
                    break
                if group.tasks.get(task_id) is not task or not group.sinks.ready(task):
                    continue
                try:
                    now_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()
                    records = task.process(now_ms, self._pace.records)
                    processed_s = self._clock.monotonic_s()
                    if records:
                        done += records
                        self._events.measure(BatchProcessed(task_id, records, processed_s - started_s))
                    if task.punctuate(now_ms):
                        self._events.measure(TaskPunctuated(task_id, self._clock.monotonic_s() - processed_s))
                    group.committer.send_outputs(task)
                    took_s += self._clock.monotonic_s() - started_s
                except (*RESTARTABLE, RetriableError) as exc:
                    group.abort(exc)
                    break
                self.shutdown_requested = self.shutdown_requested or task.requests.shutdown
        self._pace.turned(done, took_s, self._waiting())
        return done

    # -- commits -------------------------------------------------------------------------------------------------

    def _commit_due(self) -> bool:
        if any(t.requests.commit or t.requests.shutdown for t in self.tasks.values()):
            return True
        over_ms = (self._clock.monotonic_s() - self._last_commit_s) * 1000 - self.options.commit_interval_ms
        if over_ms < 0 or over_ms >= self.options.commit_delay_max_ms:
            return over_ms >= 0
        return not any(group.committer.waits_for_log for group in self._groups.values())

    def _commit_all(self) -> None:
        """The interval counts from start to start, but at least half of it is left for work between two commits."""
        begun_s, busy = self._clock.monotonic_s(), self.uncommitted
        for group in self._groups.values():
            group.commit()
        now_s, interval_s = self._clock.monotonic_s(), self.options.commit_interval_ms / 1000
        late = busy and now_s - self._last_commit_s > LATE_INTERVALS * interval_s + LATE_S
        if late and not self._late:
            self._events.emit(CommitLate(now_s - self._last_commit_s, interval_s))
        self._late = late
        self._last_commit_s = max(begun_s, now_s - interval_s / 2)

    def _deletable(self) -> dict[TopicPartition, int]:
        """The offsets before which the application's own topics may be deleted."""
        settled = [g for g in self._groups.values() if not g.broken and g.silence is None]
        unneeded = self._marks.unneeded(task for group in settled for task in group.tasks.values())
        return unneeded | {tp: at for task in self.tasks.values() for tp, at in task.committed_positions.items()}

    # -- the group -----------------------------------------------------------------------------------------------

    def _on_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.fence = self.consumer.group_metadata()
        if self._on_joined is not None:
            self._on_joined(partitions, self._afresh)
            self._afresh = False
        self._take(partitions)

    def _take(self, partitions: Sequence[TopicPartition]) -> None:
        self._events.emit(TasksAssigned(self._ids_of(partitions)))
        self._assignment.take(partitions)
        self.rejoining.settled(self._clock.monotonic_s())

    def _ids_of(self, partitions: Iterable[TopicPartition]) -> tuple[TaskId, ...]:
        return tuple(sorted({self._assignment.id_of(tp) for tp in partitions}))

    def _open_task(self, task_id: TaskId, backend: StateBackend, start: StartPositions) -> Task:
        return Task(
            task_id,
            self.application_id,
            self.topology,
            self.topology.subtopologies[task_id.subtopology],
            backend,
            start,
            self.options.task,
            self.layout.topics,
            task_count=self.layout.tasks[task_id.subtopology],
        )

    def _on_run(self, task: Task) -> None:
        self._group_of(task.id).add(task)

    def _on_drop(self, task_id: TaskId) -> None:
        self._group_of(task_id).remove(task_id)
        self._lag.forget(task_id)

    def _on_revoke(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit while still a member, then close. What cannot be committed now is repeated by the next owner, and by
        this member for the tasks that stay."""
        self._events.emit(TasksRevoked(self._ids_of(partitions)))
        with ExitStack() as bounded:
            limit_s = self.options.session_timeout_ms / 1000 / REVOKE_SESSION_PARTS
            for group in self._groups.values():
                bounded.enter_context(group.committer.within(limit_s, self._clock.monotonic_s))
            self._give_up(partitions)
        self.rejoining.gave_back(self._clock.monotonic_s())

    def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        failed: list[CommitGroup] = []
        for group in self._groups.values():
            try:
                if not group.broken:
                    group.commit_now()
                    continue
            except TaskMigratedError:
                self._on_lost(partitions)
                raise
            except (*RESTARTABLE, RetriableError) as exc:
                if self.options.guarantee == "at_most_once":
                    raise
                self._events.emit(CommitAborted(exc))
            failed.append(group)  # aborted below, without the tasks that leave
        self._leave(partitions)
        for group in self._groups.values():
            group.reopen_stale()
        for group in failed:
            group.roll_back()

    def _on_taken_over(self, partitions: Sequence[TopicPartition]) -> None:
        self._events.emit(TasksLost(self._ids_of(partitions)))
        self._on_lost(partitions)
        self.rejoining.gave_back(self._clock.monotonic_s())

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Another member may own them already: nothing may be committed."""
        self._afresh = True
        self._leave(partitions)
        for group in self._groups.values():
            group.roll_back()

    def _leave(self, partitions: Iterable[TopicPartition]) -> None:
        leaving = self._assignment.leave(partitions)
        self._pausing.forget(lambda tp: self._assignment.id_of(tp) in leaving)

    def _rejoin(self, cause: PenstockError) -> None:
        """Fenced, no longer a member, or a rebalance was not answered: discard everything, and rejoin when it is due."""
        due_before = self.rejoining.due_s
        self.rejoining.lost(cause, self._clock.monotonic_s())
        if due_before is None:
            self._on_lost(self._all_partitions())
            self.consumer.close()
            self.consumer = self._assignment.consumer = self._open_consumer()
            for group in self._groups.values():
                group.committer.consumer = self.consumer

    def _join_again(self) -> bool:
        """Rejoin if it is due; returns whether it was. An error counts as another loss."""
        left_s = (self.rejoining.due_s or 0.0) - self._clock.monotonic_s()
        if left_s > 0:
            self.consumer.poll(1, min(left_s, IDLE_POLL_S))  # without partitions: it only waits
            return False
        # A member of a group opens its producer later: until the group has it, others may take it for dead and fence it.
        (self._join if self.options.partitions is None else self.start)()
        return True

    def _group_of(self, task_id: TaskId) -> CommitGroup:
        return self._groups[None if self.options.partitions is None else task_id.partition]


def _buffered(task: Task) -> int:
    return sum(map(task.feed.buffered, task.topics))
