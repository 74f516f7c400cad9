"""The driver of a handover: workers are kept away, pieces run in executors level by level, snapshots are published.

Everything that was done is in Kafka's committed positions, so a job that was killed is simply run again: it goes on from
there, and its executors fence those of the killed one.

A job that was frozen, and wakes when others may have come, ends. The driver looks before each level, an executor when it
begins a piece (``check_job``); a piece that had begun before is refused by the brokers. Fencing alone would not do, since
a late piece could do what must not be done any more: drop outputs, as a bootstrap does, or read what an application that
was rescaled answers under its new id.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from pyspark.sql import SparkSession

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.background import in_background
from penstock.streams.batch.cluster import Cluster, open_admin, open_cluster
from penstock.streams.batch.handover.piece import Piece, PieceJob, PieceReport, run_piece
from penstock.streams.batch.handover.rounds import Rounds
from penstock.streams.batch.handover.worker_exclusion import Hold, kept_away
from penstock.streams.batch.places import absolute
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.runtime.metadata_size import check_metadata_size
from penstock.streams.runtime.topic_setup import (
    TopicLayout,
    check_application_id,
    check_guarantee,
    check_policies,
    layout_of,
    prepare_topics,
)
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.executor import executor_work
from penstock.streams.spark.failures import translated
from penstock.streams.spark.progress import EVERY_S, Say, watched
from penstock.streams.spark.report.record import note_pieces
from penstock.streams.spark.shipping import ship
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.graph.topology import Topology

COMMIT_INTERVAL_MS = 1_000
TRANSACTION_TIMEOUT_MS = 30_000
EndOffsets = Mapping[TopicPartition, int]


@dataclasses.dataclass(frozen=True)
class Handover:
    """An application whose work Spark may take over. ``settings`` are those of its workers. ``outputs``: topics whose
    records go to another topic, or nowhere (``None``). ``repository``: where snapshots go; ``None``: none are made."""

    topology_ref: TopologyRef
    settings: WorkerSettings
    outputs: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    repository: str | None = None

    def __post_init__(self) -> None:
        if self.settings.guarantee != "exactly_once":
            raise SettingsError(
                f"guarantee={self.settings.guarantee!r}: work is handed over and back under exactly_once only, since "
                "transactions are what keeps a repeated Spark task from doubling records; run the workers with "
                "--guarantee exactly_once"
            )
        check_application_id(self.settings.application_id)
        object.__setattr__(self, "repository", absolute(self.repository))

    @property
    def application_id(self) -> str:
        """That of the settings."""
        return self.settings.application_id

    @property
    def connection(self) -> Connection:
        """How driver and executors reach Kafka."""
        return Connection(self.settings.bootstrap_servers, dict(self.settings.common))

    def topology(self) -> Topology:
        """The topology, in this process."""
        return load_topology(self.topology_ref)

    def prepare(self) -> TopicLayout:
        """Check what workers check, and make the application's own topics."""
        topology, s = self.topology(), self.settings
        check_guarantee(topology, s.guarantee)
        check_policies(topology, s.policies)
        layout = prepare_topics(
            topology,
            s.application_id,
            open_admin(self.connection),
            replication_factor=s.replication_factor,
            repartition_retention_ms=s.repartition_retention_ms,
            dead_letter_topic=s.policies.dead_letter_topic,
        )
        check_metadata_size(topology, s.application_id, layout)
        return layout

    def layout(self, cluster: Cluster) -> TopicLayout:
        """The layout, by the inputs that are there; nothing is made. Raises ``SettingsError`` where one is missing."""
        topology = self.topology()
        sources = [topology.source(n) for sub in topology.subtopologies for n in sub.sources]
        return layout_of(
            topology, self.application_id, cluster.require_counts(s.topic for s in sources if not s.internal)
        )

    def inputs(self, layout: TopicLayout) -> list[TopicPartition]:
        """All input partitions, internal ones too."""
        sources = self.topology().source_topics(self.application_id)
        return [TopicPartition(t, p) for t, (sub, _) in sorted(sources.items()) for p in range(layout.tasks[sub])]

    def external_inputs(self, layout: TopicLayout) -> list[TopicPartition]:
        """The input partitions that the application does not write itself."""
        topology = self.topology()
        sources = topology.source_topics(self.application_id)
        return [tp for tp in self.inputs(layout) if not topology.source(sources[tp.topic][1]).internal]


@dataclasses.dataclass(frozen=True)
class WorkedOff:
    """``records``: input records that were processed. ``stores``: store partitions of which a snapshot was published.
    ``reached``: how far each input was read, where it was read."""

    records: int
    stores: int
    reached: Mapping[TopicPartition, int]
    seconds: float


def work_off(spark: SparkSession, handover: Handover, until: EndOffsets, progress: Say | None = None) -> WorkedOff:
    """Work off the application's inputs up to ``until``, and what lies in its repartition topics. Raises ``SettingsError``
    while workers hold its tasks; else what ends a worker, or ``EnvironmentFault`` when Spark fails: then run it again."""
    layout = handover.prepare()
    with kept_away(handover.settings, handover.inputs(layout)) as hold:
        return work_off_held(spark, handover, layout, until, hold, progress)


def work_off_held(
    spark: SparkSession,
    handover: Handover,
    layout: TopicLayout,
    until: EndOffsets,
    hold: Hold,
    progress: Say | None = None,
) -> WorkedOff:
    """``work_off`` where the caller keeps workers away (``hold``), and has prepared the application's topics (``layout``).
    Raises as ``Hold.check`` too."""
    began_s = time.monotonic()
    with open_cluster(handover.connection, handover.application_id) as cluster:
        rounds = Rounds(handover.topology(), handover.application_id, layout, cluster, until)
        with _told(handover, layout, until, progress), watched(spark, tasks_of(handover.application_id), None):
            reports = _run(spark, handover, rounds, hold)
            note_pieces(reports)
    newest: dict[StorePartition, Manifest] = {m.of: m for report in reports for m in report.snapshots}
    if handover.repository is not None:
        snapshots = open_repository(handover.repository)
        for manifest in newest.values():
            snapshots.publish(manifest)
    records = sum(report.records for report in reports)
    return WorkedOff(records, len(newest), rounds.reached, time.monotonic() - began_s)


def executors_settings(handover: Handover) -> WorkerSettings:
    """The settings for pieces: those of the workers, with rarer commits, and transactions that outlive a pause."""
    s = handover.settings
    return dataclasses.replace(
        s,
        snapshots=handover.repository or s.snapshots,
        commit_interval_ms=max(s.commit_interval_ms, COMMIT_INTERVAL_MS),
        transaction_timeout_ms=max(s.transaction_timeout_ms, TRANSACTION_TIMEOUT_MS),
    )


def _run(spark: SparkSession, handover: Handover, rounds: Rounds, hold: Hold) -> list[PieceReport]:
    """Level by level, and again while new records come: those that sub-topologies write to each other."""
    settings = executors_settings(handover)
    outputs = dict(handover.outputs)
    job = PieceJob(ship(handover.topology_ref), settings, hold.member, outputs, handover.repository)
    out: list[PieceReport] = []
    while True:
        before = len(out)
        for level in rounds.levels:
            hold.check()
            pieces = rounds.pieces(level)
            if not pieces:
                continue
            with translated("the handover"):
                work = spark.sparkContext.parallelize(pieces, len(pieces))
                out += work.map(partial(_in_executor, job)).collect()
            rounds.done(pieces)
        if len(out) == before:
            return out


def tasks_of(application_id: str) -> str:
    """The name of the phase in which an application's tasks run."""
    return f"the tasks of {application_id}"


def _in_executor(job: PieceJob, piece: Piece) -> PieceReport:
    with executor_work():
        return run_piece(job, piece)


# -- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def _told(handover: Handover, layout: TopicLayout, until: EndOffsets, say: Say | None) -> Iterator[None]:
    """Say every few seconds how far it is, by what is committed."""
    if say is None:
        yield
        return

    def tell(stop: threading.Event) -> None:
        began_s, first = time.monotonic(), None
        with open_cluster(handover.connection, handover.application_id) as cluster:
            while not stop.wait(EVERY_S):
                with suppress(PenstockError):
                    left = _left(cluster, handover, layout, until)
                    first = left if first is None else max(first, left)
                    say(line_of(first, left, time.monotonic() - began_s))

    with in_background(tell, "progress"):
        yield


def _left(cluster: Cluster, handover: Handover, layout: TopicLayout, until: EndOffsets) -> int:
    return Rounds(handover.topology(), handover.application_id, layout, cluster, until).left()


def line_of(total: int, left: int, seconds: float) -> str:
    """One line: how much of the backlog is committed, how fast, and how long it will take."""
    done = total - left
    line = f"the handover: {done:,} of {total:,} records committed, {seconds:.0f} s"
    if not done or not seconds:
        return line
    rate = done / seconds
    return f"{line}, {rate:,.0f} records/s; about {left / rate:.0f} s left"
