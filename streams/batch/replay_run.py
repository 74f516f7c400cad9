"""One replay, from its plan to what is published, as far as the engine that runs it does not matter.

Outputs and stores become Parquet files, and stores that end at a commit also snapshots. All of it is published by one
atomic step of the driver; attempts that failed, were repeated or were killed leave files that nothing names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import journal_topic
from penstock.state.snapshots.repository import new_attempt, open_repository
from penstock.streams.batch.cluster import Cluster, now_ms
from penstock.streams.batch.compact_executor import CompactTarget
from penstock.streams.batch.journals import GivenJournals, JournalBounds
from penstock.streams.batch.published import SNAPSHOTS, InputRange, Replay, TaskReport, check_files, publish_replay
from penstock.streams.batch.replay_plan import START, ReplayPlan, journal_bounds, recompute_levels
from penstock.streams.batch.replay_rows import END_OF_TASK, Ordering
from penstock.streams.batch.replay_task import ReplayJob
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.runtime.topic_setup import needs_journal
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Subtopology

KEEP = 3
TaskRead = tuple[TaskId, dict[TopicPartition, tuple[int, int]]]
"""A task and the ranges of its inputs."""


@dataclasses.dataclass(frozen=True)
class ReplayResult:
    """A published replay. ``output`` is where it lies."""

    replay: Replay
    output: str
    seconds: float


def records_of(plan: ReplayPlan) -> int:
    """How many records the plan reads at most."""
    return sum(stop - start for start, stop in plan.ranges.values())


def publish(output: str, done: Replay) -> None:
    """Make the snapshots visible in their repository, then the replay. Raises as ``publish_replay``."""
    check_files(output, done)
    snapshots = open_repository(f"{output}/{SNAPSHOTS}")
    for task in done.tasks:
        for store in task.stores:
            if store.snapshot is not None:
                snapshots.publish(store.snapshot)
    publish_replay(output, done)


def make_job(
    plan: ReplayPlan,
    shipped: ShippedTopology,
    output: str,
    options: TaskOptions,
    snapshots: Mapping[tuple[TaskId, str], CompactTarget],
    repository: str | None,
) -> ReplayJob:
    """The job that the executors run, with a new run name and without journals."""
    return ReplayJob(
        topology=shipped,
        application_id=plan.application_id,
        options=options,
        partition_counts=plan.counts,
        starts=plan.starts,
        journals=GivenJournals(),
        output=output,
        run=new_attempt(now_ms()),
        bases=plan.bases,
        base_repository=repository,
        snapshots=snapshots,
        snapshot_repository=f"{output}/{SNAPSHOTS}",
    )


def journal_ranges(plan: ReplayPlan, cluster: Cluster) -> dict[TopicPartition, tuple[int, int]]:
    """The journal partitions of the plan's tasks, whole. Raises ``IncompatibleError`` when their begin is gone."""
    out: dict[TopicPartition, tuple[int, int]] = {}
    for sub in plan.topology.subtopologies:
        topic = journal_topic(plan.application_id, sub.number)
        if not needs_journal(plan.topology, sub) or topic not in cluster.partition_counts([topic]):
            continue
        wanted = [TopicPartition(topic, t.partition) for t in plan.tasks if t.subtopology == sub.number]
        for tp, (begin, end) in cluster.ends(wanted).items():
            if begin > 0 and plan.started_from == START:
                raise IncompatibleError(
                    f"{tp.topic} partition {tp.partition} begins at offset {begin}: the order of the live run is not known "
                    "from its first record on. Begin at a savepoint, and keep the journal longer (retention.ms)"
                )
            out[tp] = (begin, end)
    return out


def bounds_by_partition(plan: ReplayPlan, ranges: Iterable[TopicPartition]) -> dict[TopicPartition, JournalBounds]:
    """The part of each of these journal partitions that belongs to the replay."""
    subs = {journal_topic(plan.application_id, s.number): s.number for s in plan.topology.subtopologies}
    return {tp: journal_bounds(plan, TaskId(subs[tp.topic], tp.partition)) for tp in ranges}


# -- the tasks ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TaskWork:
    """Tasks that can run at once. The engine runs each by ``run_task``, which reads the task's inputs (``reads``). Where
    they are not all in the log, it reads ``ranges``, places the records (``placed_rows`` with ``ordering``), adds
    ``end_rows``, sorts by ``ORDER``, and gives each task's rows whole to one ``run_tasks``. ``sizes``: how many records
    each of ``tasks`` has at most."""

    tasks: tuple[TaskId, ...]
    topics: frozenset[str]
    ranges: Mapping[TopicPartition, tuple[int, int]]
    ordering: Ordering
    sizes: tuple[int, ...]

    def reads(self) -> list[TaskRead]:
        """Each task with the ranges of its inputs, those with the most records first."""
        largest_first = sorted(zip(self.tasks, self.sizes, strict=True), key=lambda one: (-one[1], one[0]))
        return [
            (task, {tp: r for tp, r in self.ranges.items() if self._reader(tp) == task}) for task, _ in largest_first
        ]

    def _reader(self, tp: TopicPartition) -> TaskId:
        return TaskId(self.ordering.subtopologies[tp.topic], tp.partition)

    @property
    def end_rows(self) -> list[tuple[object, ...]]:
        """A row of ``ORDERED_SCHEMA`` for each task, so that those without records are seen too."""
        return [(*t, END_OF_TASK[0], 0, 0, END_OF_TASK[1], t.partition, 0, 0, None, None, None) for t in self.tasks]


def levels_of(plan: ReplayPlan) -> list[list[Subtopology]]:
    """Sub-topologies whose tasks can run at once; each level needs what those before it have written."""
    return recompute_levels(plan.topology) if plan.recomputed else [list(plan.topology.subtopologies)]


def task_work(
    plan: ReplayPlan, job: ReplayJob, level: Sequence[Subtopology], only: Collection[TaskId] | None = None
) -> TaskWork:
    """The work of one level. ``only``: of these tasks."""
    readers = {t: s.number for s in level for t in plan.topics(s)}
    numbers = {s.number for s in level}
    tasks = [t for t in plan.tasks if t.subtopology in numbers and (only is None or t in only)]
    starts = {TopicPartition(topic, t.partition): m for t in tasks for topic, (_, m) in plan.starts[t].items()}
    ordering = Ordering(
        topology=job.topology,
        application_id=plan.application_id,
        policies=job.options.policies,
        subtopologies=readers,
        journals=job.journals,
        partition_times_ms={tp: m.partition_time_ms for tp, m in starts.items()},
        began_ms={tp: m.began_ms for tp, m in starts.items()},
    )
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    sizes = dict.fromkeys(tasks, 0)
    for tp, (start, stop) in plan.ranges.items():
        if tp.topic in readers and (task := TaskId(readers[tp.topic], tp.partition)) in sizes:
            ranges[tp] = (start, stop)
            sizes[task] += stop - start
    return TaskWork(tuple(tasks), frozenset(readers), ranges, ordering, tuple(sizes.values()))


def replay_of(plan: ReplayPlan, job: ReplayJob, reports: Iterable[TaskReport]) -> Replay:
    """The replay to publish, once all tasks have run."""
    return Replay(
        run=job.run,
        application_id=plan.application_id,
        topology=plan.topology.name,
        started_from=plan.started_from,
        recomputed=plan.recomputed,
        inputs=tuple(InputRange(tp.topic, tp.partition, *r) for tp, r in sorted(plan.ranges.items())),
        tasks=tuple(sorted(reports, key=lambda r: (r.subtopology, r.task))),
        cautions=plan.cautions,
    )
