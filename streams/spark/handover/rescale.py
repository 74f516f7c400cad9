"""Rescale: an application goes on under another id with another number of partitions, with its state, exactly once.

Why another id: a changelog cannot be given other partitions in one atomic step, and a topic of the same name with other
partitions would be read by old workers too. Under another id all topics are new ones, and what makes them valid is one
Kafka transaction: that which commits the new application's positions. Before it the old application is whole, behind it
the new one.

The steps, while workers of both are kept away:

1. *Work off.* The old application's own tasks, in Spark, read its repartition topics to their ends, and inputs that get
   other topics too, with its outputs. So no record is in flight, and none needs another partition: those that are still to
   come are written to the new topics by producers who know how many partitions there are.
2. *Check.* Each entry is looked at (``rekeying``), and the tasks' times are compared (``rescale_positions``). Up to here
   nothing was changed, and the old workers could start again.
3. *Stop.* First the new application is marked as not whole, then the old one as stopping. From then on no old worker can
   commit: who joins the group later reads the mark, and who was a member before is seen, or was refused by the brokers. If
   nobody is seen, and the positions are those that were checked, the old one is marked as stopped: its state stands still.
4. *Write.* The entries go to the new changelogs, and rows of tables to their new topics (``rescale_executor``). As the
   old state stands still, a repeated job writes the same.
5. *Hand over.* When every transaction has ended, the changelogs' ends are read, and the positions of all tasks are
   committed in one transaction. Then the writers of step 4 are fenced, and the new application's mark is taken off.

A job that was killed is run again. Before the last mark it begins again; behind it, it goes on with step 4, or, if the
positions are committed, with the fencing. A process of the killed job that was frozen, and wakes, is refused: to write
entries or positions it first opens its transactional id, then looks whether the positions are committed. So it is fenced by
the later run, or sees what that has done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.state.errors import RetriableError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.manifest import Manifest
from penstock.streams.batch.cluster import (
    Cluster,
    ClusterAddress,
    CommittedInput,
    now_ms,
    open_admin,
    open_cluster,
    open_consumer,
    open_transactional,
    retried,
)
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, CompactTarget, StoreForm, to_entries
from penstock.streams.batch.compaction_plan import CompactPlan, plan_compaction
from penstock.streams.batch.handover.rescale_executor import (
    REPORT_SCHEMA,
    Moves,
    WriteJob,
    base_entries,
    fence_writers,
    moves_of,
    write_changelogs,
)
from penstock.streams.batch.handover.rescale_plan import Rescaling, ScaledSide, rescaling
from penstock.streams.batch.handover.rescale_positions import NewTopics, check_times, new_positions
from penstock.streams.batch.handover.worker_exclusion import Hold, kept_away
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.fixed_fence import FENCED, made_from, moved_to, moving_to
from penstock.streams.runtime.own_topics import own_topics
from penstock.streams.runtime.topic_setup import layout_of
from penstock.streams.runtime.topology_record import record_topic
from penstock.streams.runtime.unread_internal_topics import first_unread
from penstock.streams.spark.arrow import mapped
from penstock.streams.spark.failures import translated
from penstock.streams.spark.handover.bootstrap import Predecessor
from penstock.streams.spark.handover.catch_up import save
from penstock.streams.spark.handover.job import Handover, WorkedOff, work_off_held
from penstock.streams.spark.progress import Say, watched
from penstock.streams.spark.read import read_ranges
from penstock.streams.spark.report.record import note_ranges
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.slots import spread
from penstock.streams.worker.settings import WorkerSettings

_COPIED = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "message.timestamp.type")
"""The settings that a new input topic has from the old one."""
_COMMITTED_AT_ONCE = 50
"""Positions in one request; all of them are one transaction."""
_TIMEOUT_S = 120.0
_SETTLE_S = 120.0
STEPS = ("checked", "new_marked", "stopping", "stopped", "written", "handed_over")
on_step: Callable[[str], None] | None = None
"""Called after each step, by its name in ``STEPS``: failpoints."""
on_write: Callable[[str], None] | None = None
"""Called inside executors (``WriteJob.on_step``): failpoints."""


@dataclasses.dataclass(frozen=True)
class Rescaled:
    """``drained``: what the old application had still to do; ``None`` if an earlier run of the job did it. ``entries``: how
    many were written; ``None`` likewise. ``tasks``: old and new number of tasks by sub-topology. ``left``: input partitions
    in which the old application has unread records, written while it stood still."""

    drained: WorkedOff | None
    entries: int | None
    tasks: Mapping[int, tuple[int, int]]
    left: tuple[TopicPartition, ...]
    savepoint: str | None
    no_savepoint: str | None
    seconds: float


def rescale(
    topology: TopologyRef,
    settings: WorkerSettings,
    *,
    replaces: Predecessor,
    partitions: int | None = None,
    repository: str | None = None,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> Rescaled:
    """Move the state of ``replaces`` to a new application, whose ``topology`` is the same except for its input topics and
    numbers of partitions. ``settings``: of its workers. ``partitions``: of its input topics that do not exist, which are
    made. ``repository``: where the old application's snapshots are, and a savepoint of the new one goes.

    Raises ``SettingsError`` for what cannot be moved exactly, before anything is changed, and while workers hold tasks of
    either; ``EnvironmentFault`` when Spark fails. A job that failed or was killed is run again.
    """
    began_s = time.monotonic()
    if replaces.application_id == settings.application_id:
        raise SettingsError("a rescaled application needs an id of its own, since its topics have other partitions")
    new = Handover(topology, settings, repository=repository or settings.snapshots)
    old_settings = dataclasses.replace(settings, application_id=replaces.application_id)
    old = Handover(replaces.topology, old_settings, repository=new.repository)
    with open_cluster(old.connection, old.application_id) as cluster:
        plan = _plan(old, new, cluster, partitions)
        _make_inputs(plan, new, cluster)
    new.prepare()
    done = _Rescale(plan, old, new, progress, session).run()
    return dataclasses.replace(done, seconds=time.monotonic() - began_s)


def _plan(old: Handover, new: Handover, cluster: Cluster, partitions: int | None) -> Rescaling:
    """The plan. Nothing is made."""
    topology = new.topology()
    sources = (topology.source(n) for sub in topology.subtopologies for n in sub.sources)
    inputs = {s.topic for s in sources if not s.internal}
    counts = cluster.partition_counts(inputs)
    if missing := sorted(inputs - counts.keys()):
        if partitions is None:
            raise SettingsError(
                f"topic {', '.join(missing)} does not exist: give --partitions N to have it made, or make it first"
            )
        counts |= dict.fromkeys(missing, partitions)
    old_side = ScaledSide(old.topology(), old.application_id, old.layout(cluster))
    return rescaling(
        old_side, ScaledSide(topology, new.application_id, layout_of(topology, new.application_id, counts))
    )


def _make_inputs(plan: Rescaling, new: Handover, cluster: Cluster) -> None:
    """Make the new input topics that do not exist, with the settings of the old ones."""
    there = cluster.partition_counts(plan.renamed.values())
    counts = {plan.new.topic(n): plan.new.tasks(s.number) for s in plan.new.topology.subtopologies for n in s.sources}
    wanted = []
    for before, after in sorted(plan.renamed.items()):
        if after not in there:
            config = cluster.topic_config(before)
            kept = {name: config[name] for name in _COPIED if name in config}
            wanted.append(TopicSpec(after, counts[after], new.settings.replication_factor, kept))
    if wanted:
        open_admin(new.connection).create_topics(wanted)


class _Rescale:
    """One run. Sessions of Spark are opened where they are needed: the last steps need none."""

    def __init__(
        self,
        plan: Rescaling,
        old: Handover,
        new: Handover,
        progress: Say | None,
        session: SparkSettings | None,
    ) -> None:
        self._plan = plan
        self._old = old
        self._new = new
        self._progress = progress
        self._session = session
        self._moves: Moves = moves_of(plan)
        s = new.settings
        self._job = WriteJob(
            new.application_id,
            ClusterAddress(s.bootstrap_servers, {**s.common, **s.consumer}),
            ClusterAddress(s.bootstrap_servers, {**s.common, **s.producer}),
            new.inputs(plan.new.layout),
            {spec.name: StoreForm.of(spec) for _, spec in plan.stores()},
            self._moves.targets,
            on_write,
        )

    def run(self) -> Rescaled:
        """All steps that are still to do."""
        plan, old, new = self._plan, self._old, self._new
        stop, stopped = moving_to(new.application_id), moved_to(new.application_id)
        unready = made_from(old.application_id)
        with (
            kept_away(old.settings, old.inputs(plan.old.layout), stop_marks=(stop, stopped)) as held_old,
            kept_away(new.settings, new.inputs(plan.new.layout), stop_marks=(unready,)) as held_new,
        ):
            drained = entries = None
            checked: dict[TopicPartition, CommittedInput] = {}
            if not self._handed_over(held_old, held_new):
                with spark_session(self._session) as spark:
                    if not held_old.stopped:
                        drained = self._work_off(spark, held_old)
                        checked = self._check(spark)
                        _step("checked")
                    held_new.mark(unready)
                    _step("new_marked")
                    if not held_old.stopped:
                        held_old.mark(stop)
                        _step("stopping")
                        self._refuse_changed(checked)
                        held_old.mark(stopped)
                    _step("stopped")
                    entries = self._write(spark)
                _step("written")
                self._hand_over(held_old, held_new)
                _step("handed_over")
            fence_writers(self._job)
            left = self._unread()
            held_new.mark(FENCED)
            savepoint, why_not = self._save()
        tasks = {n: (a, b) for n, (a, b) in enumerate(zip(plan.old.layout.tasks, plan.new.layout.tasks, strict=True))}
        return Rescaled(drained, entries, tasks, left, savepoint, why_not, 0.0)

    def _handed_over(self, held_old: Hold, held_new: Hold) -> bool:
        """Whether an earlier run has committed the new positions. Raises ``SettingsError`` for a new application that is
        not this job's."""
        plan, new = self._plan, self._new
        with open_cluster(new.connection, new.application_id) as cluster:
            if cluster.committed(new.inputs(plan.new.layout)):
                if held_old.stopped and held_new.stopped:
                    return True
                raise SettingsError(
                    f"{new.application_id} has begun already; start its workers, or choose another application id"
                )
            own = [
                t for t in own_topics(plan.new.topology, new.application_id) if t != record_topic(new.application_id)
            ]
            fresh = [*own, *plan.tables.values()] if not held_old.stopped else own if not held_new.stopped else []
            counts = cluster.partition_counts(fresh)
            ends = cluster.ends(TopicPartition(t, p) for t, count in counts.items() for p in range(count))
        if filled := sorted({tp.topic for tp, (_, end) in ends.items() if end}):
            raise SettingsError(
                f"{', '.join(filled)} holds records already, and would be mixed with what is written; choose another "
                f"application id and other topics, or delete it: penstock topics delete {filled[0]}"
            )
        return False

    # -- the old application --------------------------------------------------------------------------------------

    def _committed(self, cluster: Cluster) -> dict[TopicPartition, CommittedInput]:
        return cluster.committed(self._old.inputs(self._plan.old.layout))

    def _work_off(self, spark: SparkSession, held_old: Hold) -> WorkedOff:
        plan, old = self._plan, self._old
        inputs = old.external_inputs(plan.old.layout)
        with open_cluster(old.connection, old.application_id) as cluster:
            if not (committed := self._committed(cluster)):
                raise SettingsError(
                    f"the group {old.application_id} has no committed offsets; check the application id"
                )
            stops = {tp: committed[tp].offset for tp in inputs if tp in committed}
            ends = cluster.ends(tp for tp in inputs if tp.topic in plan.renamed)
        until = stops | {tp: end for tp, (_, end) in ends.items()}
        drained = work_off_held(spark, old, plan.old.layout, until, held_old, self._progress)
        if more := self._unread():
            raise SettingsError(
                f"records are still written to {', '.join(sorted({tp.topic for tp in more}))}, whose successors are "
                f"{', '.join(sorted({plan.renamed[tp.topic] for tp in more}))}: stop or turn over its producers, and run "
                "this again. Nothing was changed"
            )
        return drained

    def _unread(self) -> tuple[TopicPartition, ...]:
        """Partitions of topics that have successors, in which the old application has unread records."""
        plan, old = self._plan, self._old
        inputs = [tp for tp in old.external_inputs(plan.old.layout) if tp.topic in plan.renamed]
        with open_cluster(old.connection, old.application_id) as cluster:
            committed = self._committed(cluster)
        address = ClusterAddress(old.settings.bootstrap_servers, {**old.settings.common, **old.settings.consumer})
        out = []
        for tp in inputs:
            at = committed[tp].offset if tp in committed else 0
            if first_unread(lambda: open_consumer(address, f"{old.application_id}-rescale"), {tp: at}) is not None:
                out.append(tp)
        return tuple(out)

    def _check(self, spark: SparkSession) -> dict[TopicPartition, CommittedInput]:
        """Look at all entries and times; returns the committed positions with which they were looked at."""
        with open_cluster(self._old.connection, self._old.application_id) as cluster:
            committed = self._committed(cluster)
        check_times(self._plan, committed)
        with self._watched(spark, "the check"), self._entries(spark) as entries, translated("the rescaling"):
            mapped(entries, self._moves.check, REPORT_SCHEMA).count()
        return committed

    def _refuse_changed(self, checked: dict[TopicPartition, CommittedInput]) -> None:
        with open_cluster(self._old.connection, self._old.application_id) as cluster:
            if self._committed(cluster) != checked:
                raise SettingsError(f"a worker of {self._old.application_id} ran meanwhile; run this again")

    def _watched(self, spark: SparkSession, what: str) -> contextlib.AbstractContextManager[object]:
        return watched(spark, f"{what} of the stores of {self._old.application_id}", self._progress)

    @contextlib.contextmanager
    def _entries(self, spark: SparkSession) -> Iterator[DataFrame]:
        """The changes of all stores that are written, at their old places: a snapshot's entries where there is one, and the
        changelog from there up to what is committed."""
        old, at = self._old, {source: place for place, source in enumerate(self._moves.sources)}
        with tempfile.TemporaryDirectory(prefix="penstock-rescale-") as nothing, contextlib.ExitStack() as stack:
            cluster = stack.enter_context(open_cluster(old.connection, old.application_id))
            found = self._compaction(cluster, nothing)
            targets = [
                dataclasses.replace(t, place=at[t.form.name, t.partition])
                for t in found.targets
                if (t.form.name, t.partition) in at
            ]
            bases = [(t.place, t.base) for t in targets if t.base is not None]
            bases += [(at[m.store, m.partition], m) for m in found.fresh if (m.store, m.partition) in at]
            frame = self._changes(spark, targets)
            if bases:
                frame = frame.unionByName(self._based(spark, bases))
            yield frame

    def _compaction(self, cluster: Cluster, nothing: str) -> CompactPlan:
        """Where each store begins and ends, as a compaction of the old application would have it."""
        old, there = self._old, self._old.repository
        begun = {tp.topic for tp in self._committed(cluster)}
        names = [
            spec.name
            for sub, spec in self._plan.stores()
            if any(self._plan.old.topic(source) in begun for source in sub.sources)
        ]
        if not names:  # no task has committed anything
            return CompactPlan((), (), None)
        return plan_compaction(
            self._plan.old.topology,
            old.application_id,
            cluster,
            there or nothing,
            now_ms=now_ms(),
            stores=names,
            full=there is None,
        )

    def _changes(self, spark: SparkSession, targets: list[CompactTarget]) -> DataFrame:
        by_log: dict[TopicPartition, list[CompactTarget]] = {}
        for target in targets:
            by_log.setdefault(target.log, []).append(target)
        ranges = {tp: (t[0].start, t[0].end) for tp, t in by_log.items()}
        note_ranges(ranges)
        records = read_ranges(spark, self._old.connection.source(), ranges)
        return mapped(records, partial(to_entries, by_log, repository=self._old.repository), ENTRY_SCHEMA)

    def _based(self, spark: SparkSession, bases: list[tuple[int, Manifest]]) -> DataFrame:
        assert self._old.repository is not None
        numbers = spark.sparkContext.parallelize([(i,) for i in range(len(bases))], len(bases)).toDF("place int")
        return mapped(numbers, partial(base_entries, self._old.repository, bases), ENTRY_SCHEMA)

    # -- the new application --------------------------------------------------------------------------------------

    def _write(self, spark: SparkSession) -> int:
        """Write all stores; how many entries they have."""
        moves, job = self._moves, self._job
        if not moves.targets:
            return 0
        every = spark.createDataFrame(
            [(place, None, -1, None) for place in range(len(moves.targets))], from_arrow_schema(ENTRY_SCHEMA)
        )
        with self._watched(spark, "the move"), self._entries(spark) as entries, translated("the rescaling"):
            moved = mapped(entries, moves.moved, ENTRY_SCHEMA).unionByName(every)
            placed = spread(moved, F.col("place"), [0] * len(moves.targets))
            rows = mapped(
                placed.sortWithinPartitions("place", "store_key", "change"),
                partial(write_changelogs, job),
                REPORT_SCHEMA,
            ).collect()
        assert {r["place"] for r in rows} == set(range(len(moves.targets))), "Spark left a store partition out"
        return sum(r["entries"] for r in rows)

    def _hand_over(self, *holds: Hold) -> None:
        """Commit the new application's positions, all in one transaction. Raises as ``Hold.check``."""
        plan, job = self._plan, self._job
        with open_cluster(self._old.connection, self._old.application_id) as cluster:
            committed = self._committed(cluster)
        with open_cluster(self._new.connection, self._new.application_id) as cluster:
            ends = cluster.ends(job.inputs)
            written, settled = cluster.settled_ends(plan.written(), _SETTLE_S)
            ids = {t: cluster.topic_id(t) for t in sorted({tp.topic for tp in job.inputs})}
        if not settled:
            raise RetriableError("transactions in the new application's topics do not end; run this again")
        positions = sorted(new_positions(plan, committed, NewTopics(ends | written, ids)).items())
        timeout_ms = self._new.settings.transaction_timeout_ms
        producer = open_transactional(job.writing, f"{job.application_id}-rescale", timeout_ms=timeout_ms)
        try:
            retried(lambda: producer.init_transactions(_TIMEOUT_S))
            job.refuse_handed_over()
            for hold in holds:
                hold.check()
            producer.begin()
            for start in range(0, len(positions), _COMMITTED_AT_ONCE):
                part = dict(positions[start : start + _COMMITTED_AT_ONCE])
                producer.send_offsets(part, job.application_id, _TIMEOUT_S)
            producer.commit(_TIMEOUT_S)
        finally:
            producer.close()

    def _save(self) -> tuple[str | None, str | None]:
        if self._new.repository is None:
            return None, "no repository is named (--repository)"
        with spark_session(self._session):
            return save(self._new)


def _step(step: str) -> None:
    if on_step is not None:
        on_step(step)
