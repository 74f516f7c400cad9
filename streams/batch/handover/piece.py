"""Inside an executor: one piece of an application's backlog, worked off by the worker's own run loop.

A piece is one partition of some sub-topologies, up to given offsets. Outputs, changelogs, journal and input positions of a
commit are one Kafka transaction, by the transactional id of the fixed partition. So a repeated piece fences the attempt
before it and goes on from what that has committed, and a worker that starts later fences them all. A piece that begins when
its job is no longer there, because the job was frozen and others came, ends before it reads anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from tempfile import TemporaryDirectory

from penstock.state.log import TaskId, TopicPartition
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.recovery.position import decode_position
from penstock.state.rocksdb.scratch import BOUNDS, open_scratch
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import open_repository
from penstock.streams.batch.cluster import Cluster, ClusterAddress, open_cluster
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm, write_snapshot
from penstock.streams.batch.handover.kept_state import kept_folder
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.events.measurements import CommitStep
from penstock.streams.runtime.changelog_marks import KeySpan, marked_stores, span_of
from penstock.streams.runtime.work_bounds import WorkBounds
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology

FILE_BYTES = 64 << 20
SMALL_RECORDS, SMALL_INTERVAL_MS = 50_000, 200
"""A small piece does not wait long for its last commit."""
on_step: Callable[[str], None] | None = None
"""Called after each step of a commit, and before and after the snapshots are written (``SNAPSHOTS``): failpoints."""
SNAPSHOTS = ("snapshots_begun", "snapshots_written")


@dataclasses.dataclass(frozen=True)
class Piece:
    """``stops``: where each input of these sub-topologies ends in this partition. ``records``: how many offsets that is."""

    partition: int
    subtopologies: tuple[int, ...]
    stops: Mapping[TopicPartition, int]
    records: int


@dataclasses.dataclass(frozen=True)
class PieceJob:
    """Values that all pieces need. ``settings`` may hold secrets, and are never shown. ``member``: that of the job's
    ``Hold``, without which no piece begins. ``outputs``: see ``WorkBounds``.
    ``repository``: where snapshots of the stores go; ``None``: none are made. ``keeps_state``: the stores stay on the
    executor's machine, in the state folder of the settings (``kept_state``); else they are restored for each piece.
    ``spans``: those of the stores whose changelogs only their tasks can trim are reported."""

    topology: ShippedTopology
    settings: WorkerSettings = dataclasses.field(repr=False)
    member: str
    outputs: Mapping[str, str | None]
    repository: str | None
    keeps_state: bool = False
    spans: bool = False


@dataclasses.dataclass(frozen=True)
class PieceReport:
    """The result of a piece. ``snapshots`` are uploaded and not published. ``shutdown``: the topology asked for a shutdown,
    so it may not be at its stops. ``spans``: by changelog."""

    piece: Piece
    records: int
    snapshots: tuple[Manifest, ...]
    shutdown: bool = False
    spans: Mapping[TopicPartition, KeySpan] = dataclasses.field(default_factory=dict)


def run_piece(job: PieceJob, piece: Piece) -> PieceReport:
    """Work it off; everything is committed when this returns. Raises what ends a worker."""
    topology = job.topology.load()
    with _folder(job, piece) as folder:
        settings = executor_settings(job.settings, folder)
        if piece.records <= SMALL_RECORDS:
            settings = dataclasses.replace(settings, commit_interval_ms=SMALL_INTERVAL_MS)
        bounds = WorkBounds(frozenset(piece.subtopologies), piece.stops, job.outputs)
        worker = Worker(topology, settings, partitions=[piece.partition], bounds=bounds, job=job.member, on_step=step)
        worker.run()
        assert worker.runtime is not None
        snapshots: list[Manifest] = []
        if job.repository is not None:
            step(SNAPSHOTS[0])
            snapshots = _snapshots(job.repository, topology, settings, piece)
            step(SNAPSHOTS[1])
        spans = _spans(topology, settings, piece) if job.spans else {}
    return PieceReport(piece, worker.runtime.records, tuple(snapshots), worker.runtime.shutdown_requested, spans)


def _folder(job: PieceJob, piece: Piece) -> AbstractContextManager[str]:
    if not job.keeps_state:
        return TemporaryDirectory(prefix="penstock-handover-")
    tasks = [TaskId(number, piece.partition) for number in piece.subtopologies]
    return kept_folder(job.settings.state_dir, job.settings.application_id, tasks)


def executor_settings(settings: WorkerSettings, folder: str) -> WorkerSettings:
    """The settings of a worker inside an executor: files below ``folder``, memory that Spark accounts for, no pages."""
    return dataclasses.replace(
        settings,
        state_dir=folder,
        rocksdb=dataclasses.replace(settings.rocksdb, **BOUNDS),
        memory_max_bytes=0,
        metrics_port=0,
        group_instance_id=None,
    )


def step(reached: CommitStep | str) -> None:
    """Tell ``on_step``."""
    if on_step is not None:
        on_step(reached)


def _snapshots(repository: str, topology: Topology, settings: WorkerSettings, piece: Piece) -> list[Manifest]:
    """The stores as the worker left them, uploaded."""
    directory = StateDirectory(settings.state_dir, settings.application_id)
    address = ClusterAddress(settings.bootstrap_servers, dict(settings.common))
    out: list[Manifest] = []
    with open_cluster(address, settings.application_id) as cluster:
        for number in piece.subtopologies:
            stores = topology.subtopologies[number].stores
            path = directory.database_path(str(TaskId(number, piece.partition)))
            if not stores or not path.exists():
                continue
            backend = open_scratch(path, stores)
            try:
                inputs = _committed(topology, settings.application_id, TaskId(number, piece.partition), cluster)
                for spec in stores:
                    raw = backend.position(spec.name)
                    if raw is None or not (spec.changelog or spec.source_topic is not None):
                        continue
                    position = decode_position(raw)
                    topic = changelog_topic(settings.application_id, spec)
                    target = CompactTarget(
                        place=0,
                        application_id=settings.application_id,
                        form=StoreForm.of(spec),
                        partition=piece.partition,
                        facts=cluster.changelog_facts(topic, [piece.partition])[piece.partition],
                        start=0,
                        end=position.changelog_offset,
                        base=None,
                        created_ms=position.wall_time_ms,
                        input_offsets=inputs,
                        stream_time_ms=position.stream_time_ms,
                    )
                    entries = backend.range(spec.name, None, None)
                    out.append(write_snapshot(open_repository(repository), target, entries, FILE_BYTES))
            finally:
                backend.close()
    return out


def _spans(topology: Topology, settings: WorkerSettings, piece: Piece) -> dict[TopicPartition, KeySpan]:
    """The spans of the stores as the worker left them."""
    directory = StateDirectory(settings.state_dir, settings.application_id)
    out: dict[TopicPartition, KeySpan] = {}
    for number in piece.subtopologies:
        stores = topology.subtopologies[number].stores
        path = directory.database_path(str(TaskId(number, piece.partition)))
        marked = marked_stores(stores)
        if not marked or not path.exists():
            continue
        backend = open_scratch(path, stores)
        try:
            for spec in stores:
                raw = backend.position(spec.name)
                if spec.name in marked and raw is not None:
                    changelog = TopicPartition(changelog_topic(settings.application_id, spec), piece.partition)
                    out[changelog] = span_of(backend, spec.name, decode_position(raw).changelog_offset)
        finally:
            backend.close()
    return out


def _committed(
    topology: Topology, application_id: str, task: TaskId, cluster: Cluster
) -> tuple[tuple[str, int, int], ...]:
    """The task's committed input positions."""
    sources = topology.subtopologies[task.subtopology].sources
    asked = [TopicPartition(topology.source(n).topic_name(application_id), task.partition) for n in sources]
    return tuple(sorted((tp.topic, tp.partition, c.offset) for tp, c in cluster.committed(asked).items()))
