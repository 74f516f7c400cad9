"""Compaction: changelogs to sorted table files, published as snapshots that a worker can ingest.

The executors read the changelogs' ranges themselves (committed records only), a changelog partition each, reduce them to the
last value per key, sorted by store key, and write that into files. One that has several times an executor's share and no
snapshot to start from is read in pieces by many (``split_compaction``). When all files are uploaded, the driver publishes
one manifest per store partition, each in one atomic step. Files of a job that dies are never visible. Concurrent jobs are
safe: file names are unique, and the newest snapshot is the one with the highest offset. An earlier valid snapshot is used as
the base, so that only the tail is read.

``at="committed"`` stops every store at the application's committed positions: the snapshots then name their input
offsets, and together they are a savepoint, from which a replay can start. ``at="end"`` goes to the changelogs' ends.

Deletions are dropped: a snapshot is complete, and its offset says what follows. Windows are all kept, even expired
ones: only the task knows its stream time at every offset, and the changelog's own retention bounds them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.state.log import TopicPartition
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import new_attempt, open_repository
from penstock.streams.batch.changelog_trimming import trim as trim_changelogs
from penstock.streams.batch.changelog_trimming import trimmed_stores
from penstock.streams.batch.cluster import ClusterAddress, now_ms, open_admin, open_cluster
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, CompactTarget, compact_one
from penstock.streams.batch.compaction_plan import (
    KEEP_SAVEPOINTS,
    At,
    CompactedStore,
    CompactPlan,
    CompactResult,
    plan_compaction,
    publish,
)
from penstock.streams.batch.places import absolute
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.batch.split_compaction import (
    PART_SCHEMA,
    PIECE_SCHEMA,
    ChangelogPiece,
    KeyRange,
    joined,
    last_changes,
    pieces,
    write_parts,
)
from penstock.streams.spark.arrow import mapped
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.executor import executor_work
from penstock.streams.spark.failures import translated
from penstock.streams.spark.progress import Count, Say, watched
from penstock.streams.spark.report.record import note_ranges, phase
from penstock.streams.spark.session import SparkSettings, spark_session
from penstock.streams.spark.slots import spread
from penstock.streams.topology_loading import load_topology
from penstock.topologies.graph.topology import Topology

FILE_BYTES = 64 << 20


def compact(
    topology: TopologyRef | Topology,
    *,
    application_id: str,
    connection: Connection,
    repository: str,
    stores: Sequence[str] | None = None,
    at: At = "committed",
    full: bool = False,
    keep: int = 3,
    keep_savepoints: int = KEEP_SAVEPOINTS,
    trim: bool = False,
    progress: Say | None = None,
    session: SparkSettings | None = None,
) -> CompactResult:
    """Compact the changelogs of an application's stores (``stores``: only these) into the repository, a folder or an
    fsspec URL. ``full``: read the changelogs from the beginning. ``keep``: how many snapshots of each store partition
    to keep. ``keep_savepoints``: how many savepoints to keep, besides the pinned ones, with the snapshots that they
    name. ``trim``: delete what changelogs of key-value stores hold before their snapshots (``changelog_trimming``); from
    then on workers need the repository to restore them. ``progress`` is called with a line every few seconds.

    Raises ``IncompatibleError`` if a changelog no longer holds what is needed, ``SettingsError`` for an application
    that the cluster does not know, ``EnvironmentFault`` if Spark or the repository fails. Nothing is published
    partially.
    """
    repository = absolute(repository)
    built = topology if isinstance(topology, Topology) else load_topology(topology)
    began = time.monotonic()
    with phase("plan"), open_cluster(connection, application_id) as cluster:
        plan = plan_compaction(
            built, application_id, cluster, repository, now_ms=now_ms(), stores=stores, at=at, full=full
        )
    if plan.targets:
        with spark_session(session) as spark:
            total = sum(t.end - t.start for t in plan.targets)
            with watched(spark, "the compaction", progress, total) as count:
                note_ranges({t.log: (t.start, t.end) for t in plan.targets})
                written = run_compaction(spark, connection, repository, plan, count=count)
    else:
        written = {}
    with phase("publication"):
        publish(repository, plan, written, keep, keep_savepoints)
    done = [CompactedStore(m, plan.targets[place].start) for place, m in sorted(written.items())]
    done += [CompactedStore(m, None) for m in plan.fresh]
    done.sort(key=lambda d: d.manifest.of)
    if trim:
        with phase("trimming"):
            _trim(built, connection, repository, [d.manifest for d in done])
    saved = plan.savepoint.name if plan.savepoint is not None else None
    return CompactResult(tuple(done), saved, time.monotonic() - began, plan.cautions, plan.no_savepoint)


def _trim(topology: Topology, connection: Connection, repository: str, newest: Sequence[Manifest]) -> None:
    names = trimmed_stores(topology.stores)
    mine = [manifest for manifest in newest if manifest.store in names]
    if not mine:
        return
    with open_cluster(connection, mine[0].application_id) as cluster:
        ends = cluster.ends(TopicPartition(m.topic, m.partition) for m in mine)
    trim_changelogs(open_admin(connection), open_repository(repository), mine, {tp: b for tp, (b, _) in ends.items()})


def run_compaction(
    spark: SparkSession,
    connection: Connection,
    repository: str,
    plan: CompactPlan,
    file_bytes: int = FILE_BYTES,
    count: Count | None = None,
    split: Callable[[Sequence[CompactTarget], int], list[ChangelogPiece]] = pieces,
) -> dict[int, Manifest]:
    """Write the targets' files, each target in a Spark task of its own, the largest first; one that is worth it in pieces
    (``split``, given how many tasks run at once). Returns their unpublished manifests by place. ``count``: as ``watched``
    gives it."""
    address = ClusterAddress(connection.bootstrap_servers, dict(connection.client))
    cut = split(plan.targets, spark.sparkContext.defaultParallelism)
    apart = {piece.target.place for piece in cut}
    largest_first = sorted((t for t in plan.targets if t.place not in apart), key=lambda t: (t.start - t.end, t.place))
    write = partial(compact_one, repository, file_bytes, address)
    written: dict[int, Manifest] = {}
    with translated("the compaction"):
        if cut:
            written |= _in_pieces(spark, address, repository, cut, file_bytes)
            if count is not None:
                count.add(sum(piece.end - piece.start for piece in cut))
        if largest_first:
            tasks = spark.sparkContext.parallelize(largest_first, len(largest_first))
            written |= dict(tasks.map(partial(_write_and_count, write, count)).collect())
    return written


def _in_pieces(
    spark: SparkSession, address: ClusterAddress, repository: str, cut: Sequence[ChangelogPiece], file_bytes: int
) -> dict[int, Manifest]:
    """``split_compaction``: read in pieces, written by ranges of keys."""
    targets = {piece.target.place: piece.target for piece in cut}
    attempts = {place: new_attempt(target.created_ms) for place, target in targets.items()}
    numbers = spark.createDataFrame([(i,) for i in range(len(cut))], from_arrow_schema(PIECE_SCHEMA))
    each_apart = spread(numbers, F.col("piece"), [piece.end - piece.start for piece in cut])
    # Spark looks at the rows once to find the ranges, and once more to send them.
    changes = mapped(each_apart, partial(last_changes, address, cut), ENTRY_SCHEMA).persist(StorageLevel.DISK_ONLY)
    try:
        ranged = changes.repartitionByRange(len(cut), "place", "store_key")
        rows = mapped(
            ranged.sortWithinPartitions("place", "store_key", "change"),
            partial(write_parts, repository, file_bytes, targets, attempts),
            PART_SCHEMA,
        ).collect()
    finally:
        changes.unpersist()
    parts: dict[int, list[KeyRange]] = {place: [] for place in targets}
    for row in rows:
        parts[row["place"]].append(msgspec.json.decode(row["part"], type=KeyRange))
    snapshots = open_repository(repository)
    return {place: joined(snapshots, targets[place], attempts[place], found) for place, found in parts.items()}


def _write_and_count(
    write: Callable[[CompactTarget], Manifest], count: Count | None, target: CompactTarget
) -> tuple[int, Manifest]:
    with executor_work():
        manifest = write(target)
    if count is not None:
        count.add(target.end - target.start)
    return target.place, manifest
