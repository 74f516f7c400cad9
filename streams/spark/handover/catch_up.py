"""Catch up: Spark works off what has piled up for an application, and workers go on from there."""

from __future__ import annotations

import dataclasses

from penstock.state.errors import SettingsError
from penstock.streams.batch.cluster import open_cluster
from penstock.streams.batch.points import Point, offsets_at
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.spark.compaction import compact
from penstock.streams.spark.handover.job import Handover, WorkedOff, work_off
from penstock.streams.spark.progress import Say
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.worker.settings import WorkerSettings


@dataclasses.dataclass(frozen=True)
class CaughtUp:
    """``savepoint``: its name; ``no_savepoint``: why there is none."""

    work: WorkedOff
    savepoint: str | None
    no_savepoint: str | None


def catch_up(
    topology: TopologyRef,
    settings: WorkerSettings,
    *,
    repository: str | None = None,
    until: Point = "end",
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> CaughtUp:
    """Process the application's inputs up to ``until`` (``end``: their ends now) in Spark's executors, exactly-once, each
    commit a Kafka transaction of outputs, changelogs and positions. ``settings``: of its workers, none of which may run.
    ``repository``: snapshots of the stores go there, so that workers go on without a restore, and a savepoint.

    Raises ``SettingsError`` while workers hold the tasks, or for another guarantee than exactly_once; ``EnvironmentFault``
    when Spark fails. A job that failed or was killed is run again: it goes on from what it has committed.
    """
    handover = Handover(topology, settings, repository=repository or settings.snapshots)
    layout = handover.prepare()
    with spark_session(session) as spark:
        with open_cluster(handover.connection, handover.application_id) as cluster:
            inputs = handover.external_inputs(layout)
            stops = offsets_at(
                until, inputs, cluster, handover.connection, handover.application_id, handover.repository
            )
        work = work_off(spark, handover, stops, progress)
        savepoint, why_not = save(handover)
    return CaughtUp(work, savepoint, why_not)


def save(handover: Handover) -> tuple[str | None, str | None]:
    """Make a savepoint of what is committed, on the snapshots that are there; its name, or why there is none."""
    if handover.repository is None:
        return None, "no repository is named (--repository)"
    topology = handover.topology()
    if not any(spec.changelog or spec.source_topic is not None for spec in topology.stores):
        return None, "the topology has no store with a changelog"
    try:
        done = compact(
            topology,
            application_id=handover.application_id,
            connection=handover.connection,
            repository=handover.repository,
        )
    except SettingsError as exc:  # a sub-topology without any record
        return None, str(exc)
    return done.savepoint, done.no_savepoint
