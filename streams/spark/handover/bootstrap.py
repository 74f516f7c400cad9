"""Bootstrap: the stores of a new application, or of a changed topology under a new id, from the history in its inputs; and
the switch, after which it goes on where the application that it replaces has stopped.

The new application is bootstrapped while the other one runs, as often as wanted; its outputs are dropped or diverted. At
the switch no worker runs. The other application's repartition topics are worked off, with its outputs; then the new one
reads exactly as far. So each input record has been answered by one of the two, once.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, CommittedInput, open_cluster
from penstock.streams.batch.handover.bootstrap_plan import (
    begin_cautions,
    diverted,
    refuse_ahead,
    refuse_live,
    stops_beside,
    unequal_counts,
)
from penstock.streams.batch.handover.worker_exclusion import kept_away
from penstock.streams.batch.places import absolute
from penstock.streams.batch.points import Point, offsets_at
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.runtime.fixed_fence import Marks
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.spark.handover.catch_up import save
from penstock.streams.spark.handover.job import Handover, WorkedOff, work_off_held
from penstock.streams.spark.handover.store_comparison import ComparedStores, compare_stores
from penstock.streams.spark.progress import Say
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.settings import WorkerSettings

COMMITTED = "committed"


@dataclasses.dataclass(frozen=True)
class Predecessor:
    """The application that a new one replaces."""

    topology: TopologyRef
    application_id: str


@dataclasses.dataclass(frozen=True)
class Bootstrapped:
    """``drained``: at a switch, the predecessor's records that were still in its repartition topics. ``stores``: at a
    switch, how the stores that both have compare; ``None`` without a repository."""

    work: WorkedOff
    drained: WorkedOff | None
    stores: ComparedStores | None
    savepoint: str | None
    no_savepoint: str | None
    cautions: tuple[str, ...]
    seconds: float


def bootstrap(
    topology: TopologyRef,
    settings: WorkerSettings,
    *,
    replaces: Predecessor | None = None,
    switch: bool = False,
    until: Point | None = None,
    outputs: Mapping[str, str] | None = None,
    repository: str | None = None,
    differences: str | None = None,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> Bootstrapped:
    """Build the stores of an application from its inputs up to ``until`` in Spark's executors; its workers go on there.

    ``settings``: of its workers. ``replaces``: an application on the same inputs, never overtaken; without ``until``, read
    what it has committed, else the inputs to their ends. ``switch``: it has ended; read exactly as far as it did, and
    compare the stores. ``outputs``: topics that the topology's outputs go to meanwhile; the others are dropped.
    ``repository``: snapshots of the stores go there, so that workers restore nothing. ``differences``: a folder or URL for
    the differing entries, as Parquet.

    Raises ``SettingsError`` if the application has run, has read more than ``replaces``, or while workers hold tasks that
    must stand still; ``EnvironmentFault`` when Spark fails. A job that failed or was killed is run again: it goes on from
    what it has committed.
    """
    began_s = time.monotonic()
    if switch and replaces is None:
        raise SettingsError("a switch needs the application that is replaced (--replaces and --replaced-id)")
    if switch and until is not None:
        raise SettingsError("a switch ends where the replaced application has; leave --until out")
    if replaces is not None and replaces.application_id == settings.application_id:
        raise SettingsError(
            f"the new version needs an application id of its own; {settings.application_id} is the replaced one's"
        )
    own = load_topology(topology)
    where = diverted(own, settings.application_id, settings.policies.dead_letter_topic, outputs or {})
    new = Handover(topology, settings, where, repository or settings.snapshots)
    job = _Bootstrap(new, replaces, absolute(differences), progress)
    layout = job.prepare()
    stops = job.stops(layout, until)
    with spark_session(session) as spark:
        if switch:
            return dataclasses.replace(job.switch(spark, layout), seconds=time.monotonic() - began_s)
        with kept_away(settings, new.inputs(layout), bootstraps=job.guard(layout)) as hold:
            work = work_off_held(spark, new, layout, stops, hold, progress)
        savepoint, why_not = save(new)
    seconds = time.monotonic() - began_s
    return Bootstrapped(work, None, None, savepoint, why_not, tuple(job.cautions), seconds)


class _Bootstrap:
    """One run. ``new``: with its outputs diverted."""

    def __init__(
        self, new: Handover, replaces: Predecessor | None, differences: str | None, progress: Say | None
    ) -> None:
        self.cautions: list[str] = []
        self._new = new
        self._old: Handover | None = None
        if replaces is not None:
            settings = dataclasses.replace(new.settings, application_id=replaces.application_id)
            self._old = Handover(replaces.topology, settings, repository=new.repository)
        self._differences = differences
        self._progress = progress

    def prepare(self) -> TopicLayout:
        """Make the new application's topics; returns their layout. Raises ``SettingsError`` for outputs that go to a topic
        of another size."""
        layout = self._new.prepare()
        wanted = [t for pair in self._new.outputs.items() if pair[1] is not None for t in pair if t is not None]
        with open_cluster(self._new.connection, self._new.application_id) as cluster:
            unequal = unequal_counts(self._new.outputs, cluster.require_counts(wanted))
        if unequal:
            raise SettingsError(f"{unequal[0]}: the topic that replaces an output must have as many")
        return layout

    def guard(self, layout: TopicLayout) -> Guard:
        """Refuses an application that has run."""
        return Guard(self._new, layout, self.cautions)

    def stops(self, layout: TopicLayout, until: Point | None = None) -> dict[TopicPartition, int]:
        """Where to stop in each input."""
        new, old = self._new, self._old
        inputs = new.external_inputs(layout)
        of = new if old is None else old
        point: Point = until if until is not None else "end" if old is None else COMMITTED
        with open_cluster(new.connection, of.application_id) as cluster:
            wanted = offsets_at(point, inputs, cluster, new.connection, of.application_id, new.repository)
            if old is None:
                return wanted
            done = self._done(old, cluster)
            return stops_beside(wanted, done, _topics(old), cluster.ends(inputs))

    def switch(self, spark: SparkSession, layout: TopicLayout) -> Bootstrapped:
        """Let the old application end cleanly, and bring the new one exactly as far."""
        new, old = self._new, self._old
        assert old is not None, "a switch has a predecessor"
        old_layout = old.prepare()
        with (
            kept_away(old.settings, old.inputs(old_layout)) as held_old,
            kept_away(new.settings, new.inputs(layout), bootstraps=self.guard(layout)) as held_new,
        ):
            with open_cluster(old.connection, old.application_id) as cluster:
                done = self._done(old, cluster)
            with open_cluster(new.connection, new.application_id) as cluster:
                own = cluster.committed([tp for tp in new.external_inputs(layout) if tp.topic in _topics(old)])
                refuse_ahead(new.application_id, own, old.application_id, done, cluster.ends(own))
            rest = {tp: found.offset for tp, found in done.items()}
            drained = work_off_held(spark, old, old_layout, rest, held_old, self._progress)
            work = work_off_held(spark, new, layout, self.stops(layout), held_new, self._progress)
            held_old.check()  # else the old application may have gone on, and answered what the new one will read
            saved, _ = save(old)
            savepoint, why_not = save(new)
        stores = None
        if saved is not None and savepoint is not None:
            stores = compare_stores(spark, (old, saved), (new, savepoint), self._differences)
        return Bootstrapped(work, drained, stores, savepoint, why_not, tuple(self.cautions), 0.0)

    def _done(self, old: Handover, cluster: Cluster) -> dict[TopicPartition, CommittedInput]:
        """The old application's committed positions in its external inputs."""
        done = cluster.committed(old.external_inputs(old.layout(cluster)))
        if not done:
            raise SettingsError(
                f"the group {old.application_id} has no committed offsets, so there is nothing to take over from it; check "
                "the application id"
            )
        return done


@dataclasses.dataclass(frozen=True)
class Guard:
    """Refuses an application that has run, and notes inputs whose beginnings are gone in ``cautions``."""

    new: Handover
    layout: TopicLayout
    cautions: list[str]

    def __call__(self, marks: Marks) -> None:
        """``marks``: as found, when nobody commits any more."""
        inputs = self.new.external_inputs(self.layout)
        with open_cluster(self.new.connection, self.new.application_id) as cluster:
            committed = cluster.committed(self.new.inputs(self.layout))
            refuse_live(self.new.application_id, committed, marks)
            self.cautions.extend(begin_cautions(inputs, committed, cluster.ends(inputs)))


def _topics(handover: Handover) -> set[str]:
    """The topics that an application reads and that are not its own."""
    topology = handover.topology()
    sources = (topology.source(n) for sub in topology.subtopologies for n in sub.sources)
    return {source.topic for source in sources if not source.internal}
