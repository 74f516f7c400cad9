"""Micro-batches of an application: each works off its inputs up to given ends, through all sub-topologies."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable
from functools import partial

from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, open_admin
from penstock.streams.batch.handover.piece import PieceJob, PieceReport, run_piece
from penstock.streams.batch.handover.rounds import Rounds
from penstock.streams.batch.handover.worker_exclusion import Hold
from penstock.streams.runtime.changelog_marks import ChangelogMarks, marked_topics
from penstock.streams.runtime.repartition_purging import Purger, purgeable_topics
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.streams.spark.failures import translated
from penstock.streams.spark.handover.job import EndOffsets, Handover, executors_settings
from penstock.streams.spark.progress import Say
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.streaming.anchors import Anchors
from penstock.topologies.graph.topology import Topology

LOOK_INTERVAL_S = 300.0
"""As often as workers look which part of a changelog no restore needs."""


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of a micro-batch. ``shutdown``: the topology asked for the end."""

    records: int
    pieces: int
    shutdown: bool
    seconds: float


class BatchRunner:
    """Runs them one after the other, while ``hold`` keeps others away. ``say`` gets what could not be deleted. ``worked``:
    what was done, all pieces of a partition as one, since a stream has ever more of them."""

    def __init__(
        self, handover: Handover, layout: TopicLayout, cluster: Cluster, anchors: Anchors, hold: Hold, say: Say | None
    ) -> None:
        self.worked: dict[tuple[int, tuple[int, ...]], PieceReport] = {}
        self._handover = handover
        self._cluster = cluster
        self._anchors = anchors
        self._hold = hold
        topology = handover.topology()
        self.clocked = reads_clock(topology)
        self._rounds = Rounds(topology, handover.application_id, layout, cluster, {})
        settings = executors_settings(handover)
        self._job = PieceJob(ship(handover.topology_ref), settings, hold.member, {}, None, keeps_state=True)
        self._say: Say = say or (lambda line: None)
        self._admin = open_admin(handover.connection)
        read = purgeable_topics(topology, handover.application_id)
        self._internal = [tp for tp in handover.inputs(layout) if tp.topic in read]
        self._repartition_purger = self._open_purger(handover.settings.repartition_purge_interval_ms, read)
        marked = marked_topics(topology, handover.application_id)
        self._changelog_purger = self._open_purger(0, marked)
        self._marks = ChangelogMarks(handover.application_id)
        self._unneeded: dict[TopicPartition, int] = {}
        self._failed = False
        self._looked_s: float | None = None if marked else math.inf

    def run(self, stops: EndOffsets) -> Done:
        """Work off everything up to ``stops``; all of it is committed when this returns. Raises what ends a worker, and
        ``EnvironmentFault`` when Spark fails: then a part may be committed, and the next one goes on from there."""
        began_s = time.monotonic()
        if self._failed:
            self._hold.end_transactions()
        self._failed = True
        done = self._run(stops, began_s)
        self._failed = False
        return done

    def _run(self, stops: EndOffsets, began_s: float) -> Done:
        self._rounds.advance(stops)
        job = self._next_job(began_s)
        reports: list[PieceReport] = []
        everybody = self.clocked
        while True:
            before = len(reports)
            for level in self._rounds.levels:
                reports += self._level(job, level, everybody)
                if any(report.shutdown for report in reports):
                    return _done(reports, began_s)
            everybody = False
            if len(reports) == before:
                break
        self._purge(reports)
        return _done(reports, began_s)

    def _next_job(self, now_s: float) -> PieceJob:
        """The job for the pieces of a micro-batch; from time to time they look at how far their stores go."""
        look = self._looked_s is None or now_s - self._looked_s >= LOOK_INTERVAL_S
        if look:
            self._looked_s = now_s
        return dataclasses.replace(self._job, spans=look)

    def _level(self, job: PieceJob, level: tuple[int, ...], everybody: bool) -> list[PieceReport]:
        # Pieces end the transactions of others, so nobody else may have begun meanwhile.
        self._hold.check()
        pieces = {piece.partition: piece for piece in self._rounds.pieces(level, everybody=everybody)}
        if not pieces:
            return []
        with translated("the micro-batch", "did not end"):
            reports = self._anchors.run(pieces, partial(run_piece, job))
        for report in reports:
            self._note(report)
        self._rounds.done([report.piece for report in reports if not report.shutdown])
        return reports

    def _note(self, report: PieceReport) -> None:
        of = report.piece.partition, report.piece.subtopologies
        before = self.worked[of].records if of in self.worked else 0
        self.worked[of] = dataclasses.replace(report, records=before + report.records)

    # -- topics that grow

    def _open_purger(self, interval_ms: int, topics: Iterable[str]) -> Purger:
        def report(tp: TopicPartition, why: str) -> None:
            self._say(f"old records of {tp.topic} [{tp.partition}] could not be deleted: {why}")

        return Purger(topics, interval_ms, self._admin.delete_before, report)

    def _purge(self, reports: list[PieceReport]) -> None:
        """Delete what workers delete: what was read of repartition topics, if they would, and what no restore needs of the
        changelogs of windows."""
        now_s = time.monotonic()
        if self._handover.settings.repartition_purge_interval_ms and self._internal:
            self._repartition_purger.turn(now_s, self._read)
        for report in reports:
            self._unneeded |= self._marks.look(report.spans)
        self._changelog_purger.turn(now_s, lambda: self._unneeded)

    def _read(self) -> dict[TopicPartition, int]:
        return {tp: found.offset for tp, found in self._cluster.committed(self._internal).items()}


def _done(reports: list[PieceReport], began_s: float) -> Done:
    records = sum(report.records for report in reports)
    return Done(records, len(reports), any(r.shutdown for r in reports), time.monotonic() - began_s)


def reads_clock(topology: Topology) -> bool:
    """Whether time alone may make tasks do something: timers of the wall clock, and inputs that become idle."""
    sources = (topology.source(n) for sub in topology.subtopologies for n in sub.sources)
    idle = any(s.watermark is not None and s.watermark.idle_ms is not None for s in sources)
    return idle or any(spec.uses_wall_time for spec in topology.operators.values())
