"""Workers without threads on the in-memory log: the real run loop and commit protocol, turned by hand. Where a restore
begins is decided as by real workers; each worker has a wall clock of its own.

A ``Node`` is one worker process with its own disk. ``crash`` drops it as SIGKILL would; with ``lose_unflushed`` its disk
goes back to what was flushed, as a power cut would have it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import journal_topic
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.events.facts import AbortDelayed, CommitDelayed, Rejoining, WaitEnded, Waiting
from penstock.streams.events.measurements import CommitStep
from penstock.streams.events.port import NO_EVENTS, EventSink, Fanout
from penstock.streams.events.sentences import line_of
from penstock.streams.ports.log import LogConsumer, LogProducer, TopicSpec
from penstock.streams.runtime.assignment import Restoring
from penstock.streams.runtime.changelog_marks import marked_topics
from penstock.streams.runtime.commit_protocol import Committer, Guarantee
from penstock.streams.runtime.fixed_fence import FencedPositions, FixedFence, fixed_id, mark_fixed
from penstock.streams.runtime.membership_lease import MembershipLease, lease_s
from penstock.streams.runtime.memory_budget import BUFFERED_MAX_BYTES
from penstock.streams.runtime.repartition_purging import Purger
from penstock.streams.runtime.runtime import Runtime
from penstock.streams.runtime.runtime_options import RuntimeOptions
from penstock.streams.runtime.topic_setup import TopicLayout, prepare_topics
from penstock.streams.runtime.topic_watch import TopicWatch
from penstock.streams.runtime.work_bounds import WorkBounds, consumer_within, producer_within
from penstock.streams.task import journal
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.external_calls import CallExecutor, InlineCallExecutor
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_incremental_clients import IncrementalConsumer
from penstock.streams.testing.memory_log import LogEntry, MemoryLog
from penstock.streams.worker.fixed_worker_lock import check_no_group_members, presence_group
from penstock.topologies.graph.topology import Topology
from tests.recorder import Recorder
from tests.simulation.dead_workers import abandoned_transactions
from tests.simulation.restores import APP, Disk, SimRestoring, position_at
from tests.simulation.sim_clock import SKEW_MAX_MS, SimClock

TURN_MS = 20
POLL_INTERVAL_MS = 3_000
TURNS_MAX = 3_000
IDLE_TURNS = 12
PURGE_INTERVAL_MS = 60

Row = tuple[bytes | None, bytes | None]


class Crash(BaseException):
    """The process is gone, in the middle of whatever it did."""


class World:
    """One application on one log."""

    def __init__(
        self,
        topology: Topology,
        guarantee: Guarantee,
        *,
        partitions: int = 2,
        inputs: Sequence[str],
        outputs: Sequence[str],
        seed: int = 0,
        policies: Policies | None = None,
        output_config: dict[str, str] | None = None,
        queue_max_records: int = 0,
        commit_delay_max_ms: int = 0,
        buffered_max_bytes: int = BUFFERED_MAX_BYTES,
        late_polls: int = 0,
        late_chunks: bool = False,
        epochs_grow: bool = False,
        incremental: bool = False,
        live: bool = False,
        log: MemoryLog | None = None,
    ) -> None:
        self.late_polls = late_polls
        self.late_chunks = late_chunks
        self.named = True
        """Whether the nodes that are made next note who they are, and fence those that died."""
        self.topology = topology
        self.guarantee = guarantee
        self.rng = random.Random(seed)
        self.policies = policies or Policies()
        self.log = log or MemoryLog()
        for name in inputs:
            self.log.create(TopicSpec(name, partitions))
        for name in outputs:
            self.log.create(TopicSpec(name, partitions, config=output_config or {}))
        self.partitions = partitions
        self.queue_max_records = queue_max_records
        self.commit_delay_max_ms = commit_delay_max_ms
        self.buffered_max_bytes = buffered_max_bytes
        self.incremental = incremental
        """The group follows the broker's own protocol."""
        self.epochs_grow = epochs_grow or incremental
        self.live = live
        self.restoring: Restoring | None = None
        """What gives the nodes that are made next their stores, instead of the model."""
        self.make_restoring: Callable[[Disk, SimClock, EventSink], SimRestoring] = self._model
        self.call_executor: CallExecutor = InlineCallExecutor()
        """Makes the calls of the nodes that are made next to the world outside."""
        self.events: EventSink = NO_EVENTS
        """What the nodes that are made next report goes here."""
        self.layout: TopicLayout = prepare_topics(topology, APP, MemoryAdmin(self.log), guarantee=guarantee)

    def _model(self, disk: Disk, clock: SimClock, events: EventSink) -> SimRestoring:
        return SimRestoring(self.log, disk, self.rng, clock, committed_only=self.guarantee == "at_least_once")

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return MemoryAdmin(self.log).topic_ids(topics)

    def write(self, topic: str, rows: Sequence[tuple[bytes | None, bytes | None, int]]) -> None:
        """Input from outside, by key."""
        for i, (key, value, at) in enumerate(rows):
            p = i % self.partitions if key is None else partition_for(key, self.partitions)
            self.log.append(TopicPartition(topic, p), LogEntry(key, value, at))

    def node(
        self,
        name: str,
        disk: Disk | None = None,
        *,
        fixed: tuple[int, ...] | None = None,
        bounds: WorkBounds | None = None,
        instance: str = "",
    ) -> Node:
        """A started worker."""
        return Node(self, name, disk or Disk(), fixed, bounds, instance)

    def rows(self, topic: str) -> Counter[Row]:
        """Committed records of a topic, as a multiset."""
        return Counter((e.key, e.value) for _, _, e in self.log.read(topic))

    def journal_of(self, sub: int, partition: int) -> list[journal.JournalEntry]:
        """The journal of one task."""
        return [
            entry
            for tp, _, e in self.log.read(journal_topic(APP, sub))
            if tp.partition == partition and e.value is not None
            for entry in journal.decode(e.value)
        ]

    def settle(self, *nodes: Node) -> None:
        """Turn the nodes until nothing is left to do and everything is committed."""
        idle = 0
        for _ in range(TURNS_MAX):
            done = sum(node.turn() for node in nodes)
            busy = done or any(node.busy for node in nodes)
            idle = 0 if busy else idle + 1
            if idle > IDLE_TURNS:
                return
        raise AssertionError(f"not settled in {TURNS_MAX} turns")

    def stores(self, *nodes: Node) -> dict[tuple[TaskId, str], dict[bytes, bytes]]:
        """Contents of every store of the tasks that run."""
        return {
            (task_id, spec.name): dict(task.backend.range(spec.name, None, None))
            for node in nodes
            for task_id, task in node.runtime.tasks.items()
            for spec in (s.spec for s in task.stores.values())
        }


class Node:
    """One worker. ``instance``: its ``group_instance_id``, if its membership is static; ``drift``: of its clocks."""

    def __init__(
        self,
        world: World,
        name: str,
        disk: Disk,
        fixed: tuple[int, ...] | None,
        bounds: WorkBounds | None = None,
        instance: str = "",
        drift: float = 0.0,
    ) -> None:
        self.world = world
        self.instance = instance
        self.bounds = bounds
        self.name = name
        self.disk = disk
        self.steps: list[CommitStep] = []
        self.on_step: Callable[[CommitStep], None] = lambda step: None
        self.alive = True
        self.recorder = Recorder()
        self.events = Fanout(world.events, self.recorder)
        log = world.log
        self.clock = clock = SimClock(log, world.rng.randint(-SKEW_MAX_MS, SKEW_MAX_MS), drift)
        self.restoring = world.make_restoring(disk, clock, self.events)
        options = RuntimeOptions(
            guarantee=world.guarantee,
            commit_interval_ms=100,
            commit_delay_max_ms=world.commit_delay_max_ms,
            task=TaskOptions(
                policies=world.policies,
                batch_max_records=5,
                live=world.live,
                events=self.events,
                topic_ids=world.topic_ids(list(log.topics)),
                owner=name if world.named and fixed is None else "",
                call_executor=world.call_executor,
            ),
            turn_min_records=2,
            turn_max_records=7,
            buffered_max_records=20,
            buffered_max_bytes=world.buffered_max_bytes,
            state_flush_interval_ms=700,
            partitions=fixed,
            epochs_grow=world.epochs_grow,
            bounds=bounds,
        )
        self.producers: list[MemoryProducer] = []
        inputs = [TopicPartition(t, p) for t in world.topology.source_topics(APP) for p in range(world.partitions)]
        self.runtime = Runtime(
            world.topology,
            APP,
            world.layout,
            options,
            self._consumer,
            self._committer,
            world.restoring or self.restoring,
            clock,
            changelog_purger=self._purger(),
            on_joined=self._on_joined(inputs, clock),
            topic_watch=TopicWatch(
                world.topic_ids(list(log.topics)), lambda topics: lambda: world.topic_ids(topics), 1.0
            ),
            events=self.events,
        )
        if fixed is not None:
            mark_fixed(self._marks(), [tp for tp in inputs if tp.partition in fixed])
        self.runtime.start()

    @property
    def said(self) -> list[str]:
        """The lines of its log that tell of waiting and of joining again."""
        kinds = (AbortDelayed, CommitDelayed, Rejoining, Waiting, WaitEnded)
        told = [line_of(fact) for fact in self.recorder.facts if isinstance(fact, kinds)]
        return [f"{line.fact}: {line.sentence}. {dict(line.fields)}" for line in told]

    def _purger(self) -> Purger:
        admin = MemoryAdmin(self.world.log)

        def refused(tp: TopicPartition, why: str) -> None:
            raise AssertionError(f"{tp}: {why}")

        return Purger(marked_topics(self.world.topology, APP), PURGE_INTERVAL_MS, admin.delete_before, refused)

    def _on_joined(
        self, inputs: list[TopicPartition], clock: SimClock
    ) -> Callable[[Sequence[TopicPartition], bool], None]:
        fixed = FixedFence(inputs, presence_group(APP), self._marks, self._fixed_producer, lambda: None, 30)
        names = self.world.guarantee == "exactly_once" and self.world.named
        abandoned = abandoned_transactions(self.world.log, APP, self.name, inputs, clock.monotonic_s, self.events)

        def joined(given: Sequence[TopicPartition], afresh: bool) -> None:
            fixed.on_joined(given, afresh)
            if names:
                abandoned.on_joined(given)

        return joined

    def _consumer(self) -> LogConsumer:
        member = IncrementalConsumer if self.world.incremental else MemoryConsumer
        consumer = member(
            self.world.log,
            APP,
            poll_interval_max_ms=POLL_INTERVAL_MS,
            late_polls=self.world.late_polls,
            late_chunks=self.world.late_chunks,
            client_id=self.name,
            instance_id=self.instance,
        )
        return consumer_within(self.bounds, consumer)

    def _committer(self, runtime: Runtime, partition: int | None) -> Committer:
        transactional_id = f"{APP}-{self.name}" if partition is None else fixed_id(APP, partition)

        def open_producer() -> LogProducer:
            eos = self.world.guarantee == "exactly_once"
            made = MemoryProducer(
                self.world.log,
                transactional_id=transactional_id if eos else None,
                queue_max_records=self.world.queue_max_records,
            )
            self.producers.append(made)
            return producer_within(self.bounds, made)

        lease = positions = None
        if partition is not None and self.world.guarantee != "exactly_once":
            positions = FencedPositions(lambda: self._fixed_producer(partition), APP, 10)
        if self.world.guarantee == "at_least_once":
            stable = not self.world.epochs_grow
            lease = MembershipLease(lease_s(POLL_INTERVAL_MS), self.clock.monotonic_s, stable_token=stable)
        return Committer(
            self.world.guarantee,
            runtime.consumer,
            open_producer,
            lambda: runtime.membership() if partition is None else APP,
            self._position_of,
            on_step=self._step,
            yields=partition is not None,
            lease=lease,
            open_reader=lambda: MemoryConsumer(self.world.log, "reader"),
            epochs_grow=self.world.epochs_grow,
            positions=positions,
            on_open=None if partition is None else lambda: check_no_group_members(MemoryAdmin(self.world.log), APP),
            events=self.events,
        )

    def _fixed_producer(self, partition: int) -> MemoryProducer:
        return MemoryProducer(self.world.log, transactional_id=fixed_id(APP, partition))

    def _marks(self) -> MemoryConsumer:
        return MemoryConsumer(self.world.log, presence_group(APP))

    def _step(self, step: CommitStep) -> None:
        self.steps.append(step)
        self.on_step(step)

    def _position_of(self, task: Task, store: str, at_ms: int) -> bytes:
        spec = task.stores[store].spec
        ends, positions = task.changelog_ends, task.feed.positions()
        offset = ends.get(store, 0) if spec.source_topic is None else positions[spec.source_topic]
        return position_at(self.world.log, offset, spec, at_ms, task.epochs.get(store, -1))

    def crash_at(self, step: CommitStep, nth: int) -> None:
        """Be gone at the nth time that this step was done."""
        left = nth

        def look(done: CommitStep) -> None:
            nonlocal left
            left -= done == step
            if done == step and left == 0:
                raise Crash

        self.on_step = look

    def turn(self) -> int:
        """One step of its loop."""
        self.world.log.advance(TURN_MS)
        return self.runtime.step()

    @property
    def busy(self) -> bool:
        waits = self.runtime.rejoining.due_s is not None
        return waits or bool(self.runtime.restoring) or any(t.uncommitted_records for t in self.runtime.tasks.values())

    def run_until_crash(self, turns: int = TURNS_MAX) -> None:
        """Turn until the crash point was met."""
        try:
            for _ in range(turns):
                self.turn()
        except Crash:
            return
        raise AssertionError(f"the crash point was never met; seen: {Counter(self.steps)}")

    def crash(self, *, lose_unflushed: bool = False) -> None:
        """SIGKILL, or a power cut: nothing is closed, and the group and the open transaction learn of it by time."""
        self.alive = False
        if lose_unflushed:
            self.disk.lose_unflushed()
        self.world.log.advance(POLL_INTERVAL_MS + 1)

    def stop(self) -> None:
        """A clean end."""
        self.alive = False
        self.runtime.stop()
