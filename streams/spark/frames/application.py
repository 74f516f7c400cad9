"""An application's log and state as DataFrames.

The range is fixed when a DataFrame is created: the offsets at which each partition begins and ends. So every action
on it sees the same records, and two frames of one savepoint are consistent.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic, journal_topic
from penstock.state.recovery.restore_decision import ChangelogFacts
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.cluster import Cluster, open_cluster
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm
from penstock.streams.batch.compaction_plan import plan_compaction
from penstock.streams.batch.places import absolute
from penstock.streams.batch.points import Point
from penstock.streams.batch.replay_plan import SAVEPOINT
from penstock.streams.batch.savepoint import Savepoint, SavepointRepository
from penstock.streams.batch.shipping import TopologyRef
from penstock.streams.kafka.by_time import offsets_since
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.frames import request
from penstock.streams.spark.frames.request import (
    OPTION,
    ChangelogRequest,
    Request,
    StoreRequest,
    TopicRequest,
    packed,
    store_of,
)
from penstock.streams.spark.frames.source import FORMAT, register
from penstock.streams.spark.frames.writing import WriteResult, write_topic
from penstock.streams.spark.handover.initial_state import InitialState, write_initial_state
from penstock.streams.spark.shipping import ship, ship_value
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.settings import WorkerSettings

ReadPoint = datetime | Mapping[int, int] | str | None
"""A place in a topic: a time (the first record of this time or later), an offset for each partition, ``committed``
(for a topic that the application reads), ``savepoint:NAME`` (``savepoint:latest``), a time in ISO format; ``None``:
the beginning or the end."""


@dataclasses.dataclass(frozen=True)
class Application:
    """One application on one cluster. ``topology``: where to find it, as for ``replay``; the serdes are its own.
    ``repository``: of snapshots and savepoints, a folder or URL that the executors reach."""

    topology: TopologyRef
    application_id: str
    connection: Connection
    repository: str | None = None

    # -- frames

    def topic(self, spark: SparkSession, topic: str, **how: Any) -> DataFrame:
        """The records of a topic: ``key``, ``value`` (a struct of its fields, where it is typed JSON), ``timestamp``,
        ``partition``, ``offset``, ``headers``; windowed keys have ``window_start`` and ``window_end`` too.

        ``key=``, ``value=``: serdes, as ``serde_of`` takes them, where the topology does not know the topic.
        ``since=``, ``as_of=``: a ``ReadPoint`` each. ``partitions=``: only these. ``columns=``: only these, others are not
        decoded.
        """
        return self.frame(spark, self.topic_request(topic, **how))

    def changelog(self, spark: SparkSession, store: str, **how: Any) -> DataFrame:
        """The changes of a store that its changelog still has: its columns and ``offset``; a null value deletes.
        ``since=``, ``as_of=``, ``partitions=``, ``columns=`` as for ``topic``."""
        return self.frame(spark, self.changelog_request(store, **how))

    def store(self, spark: SparkSession, store: str, **how: Any) -> DataFrame:
        """A store's entries: ``key``, ``value``, ``timestamp``, ``partition``, and the windows, versions or places that
        its kind has. ``as_of=``: ``committed`` (the default), ``end`` of the changelogs, or ``savepoint:NAME``.
        ``columns=``: only these. Windows that a task has dropped as expired may still be there."""
        return self.frame(spark, self.store_request(store, **how))

    def dead_letters(self, spark: SparkSession, topic: str, **how: Any) -> DataFrame:
        """The records that policies sent to a dead letter topic, as bytes, with the errors in their headers."""
        return self.topic(spark, topic, key=bytes, value=bytes, **how)

    def journal(self, spark: SparkSession, subtopology: int, **how: Any) -> DataFrame:
        """The journal of a sub-topology's tasks, a partition each; ``value`` is its JSON."""
        topic = journal_topic(self.application_id, subtopology)
        return self.topic(spark, topic, key=bytes, value="json", **how)

    def frame(self, spark: SparkSession, wanted: Request) -> DataFrame:
        """The requested data as a DataFrame."""
        return register(spark).read.format(FORMAT).option(OPTION, packed(wanted)).load()

    def write_topic(self, frame: DataFrame, topic: str, *, job: str, key: Any = None, value: Any = None) -> WriteResult:
        """``writing.write_topic`` with the application's serdes: rows for one of its inputs go to the partitions that
        its own producers would choose."""
        return write_topic(
            frame,
            topic,
            job=job,
            connection=self.connection,
            topology=self.topology,
            application_id=self.application_id,
            key=key,
            value=value,
        )

    def write_initial_state(
        self, frames: Mapping[str, DataFrame], *, begin: Point, settings: WorkerSettings | None = None
    ) -> InitialState:
        """``handover.initial_state.write_initial_state`` for this application. ``settings``: of its workers, where more
        than the application says matters, such as ``replication_factor``."""
        own = WorkerSettings(
            application_id=self.application_id,
            bootstrap_servers=self.connection.bootstrap_servers,
            common=dict(self.connection.client),
            guarantee="exactly_once",
        )
        return write_initial_state(self.topology, settings or own, frames, begin=begin, repository=self.repository)

    def savepoint(self, name: str = "latest") -> Savepoint:
        """A savepoint of the repository: its positions and snapshots. Raises ``SettingsError``."""
        if self.repository is None:
            raise SettingsError("a savepoint needs the repository that holds it; give the Application its repository")
        return SavepointRepository(self.repository).load(self.application_id, name)

    # -- what is read, decided

    def topic_request(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        since: ReadPoint = None,
        as_of: ReadPoint = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> TopicRequest:
        """The request of ``topic``. Raises ``SettingsError``."""
        return TopicRequest(
            cluster=self._reached(),
            topic=topic,
            ranges=self._ranges(topic, since, as_of, partitions),
            topology=ship(self.topology),
            application_id=self.application_id,
            key=ship_value(key),
            value=ship_value(value),
            only=None if columns is None else tuple(columns),
        )

    def changelog_request(
        self,
        store: str,
        *,
        since: ReadPoint = None,
        as_of: ReadPoint = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> ChangelogRequest:
        """The request of ``changelog``. Raises ``SettingsError``."""
        topic = changelog_topic(self.application_id, store_of(load_topology(self.topology), store))
        return ChangelogRequest(
            cluster=self._reached(),
            store=store,
            topic=topic,
            ranges=self._ranges(topic, since, as_of, partitions),
            topology=ship(self.topology),
            only=None if columns is None else tuple(columns),
        )

    def store_request(
        self, store: str, *, as_of: str = "committed", columns: Sequence[str] | None = None
    ) -> StoreRequest:
        """The request of ``store``. Raises ``SettingsError``, and ``IncompatibleError`` where the changelog no longer holds
        what is needed."""
        return StoreRequest(
            cluster=self._reached(),
            store=store,
            targets=tuple(self._targets(store, as_of)),
            repository=absolute(self.repository),
            topology=ship(self.topology),
            only=None if columns is None else tuple(columns),
        )

    def _reached(self) -> request.ReaderConnection:
        return request.ReaderConnection(
            self.connection.bootstrap_servers, dict(self.connection.client), self.application_id
        )

    def _targets(self, store: str, as_of: str) -> list[CompactTarget]:
        topology = load_topology(self.topology)
        spec = store_of(topology, store)
        at_end = as_of == "end"
        if not (at_end or as_of == "committed" or as_of.startswith(SAVEPOINT)):
            raise SettingsError(
                f"a store cannot be read as of {as_of!r}: give committed, end, or {SAVEPOINT}NAME, whose snapshots are kept"
            )
        if as_of.startswith(SAVEPOINT):
            saved = self.savepoint(as_of.removeprefix(SAVEPOINT) or "latest")
            kept = SavepointRepository(self.repository or "")
            places = sorted(s.partition for s in saved.stores if s.store == store)
            found = (kept.manifest(saved, StorePartition(self.application_id, store, p)) for p in places)
            return [_of_snapshot(spec, manifest) for manifest in found]
        repository = absolute(self.repository)
        with open_cluster(self.connection, self.application_id) as cluster:
            plan = plan_compaction(
                topology,
                self.application_id,
                cluster,
                repository or "",
                now_ms=time.time_ns() // 1_000_000,
                stores=[spec.name],
                at="end" if at_end else "committed",
                full=repository is None,
            )
        whole = [_of_snapshot(spec, manifest) for manifest in plan.fresh]
        return sorted([*plan.targets, *whole], key=lambda t: t.partition)

    def _ranges(
        self, topic: str, since: ReadPoint, as_of: ReadPoint, partitions: Sequence[int] | None
    ) -> dict[int, tuple[int, int]]:
        with open_cluster(self.connection, self.application_id) as cluster:
            count = cluster.require_counts([topic])[topic]
            asked = [TopicPartition(topic, p) for p in (range(count) if partitions is None else partitions)]
            if wrong := [tp.partition for tp in asked if not 0 <= tp.partition < count]:
                raise SettingsError(f"{topic} has partitions 0 to {count - 1}, and no {wrong[0]}")
            ends = cluster.ends(asked)
            begins = self._offsets(cluster, asked, since, "since")
            stops = self._offsets(cluster, asked, as_of, "as_of")
        out: dict[int, tuple[int, int]] = {}
        for tp, (first, end) in ends.items():
            out[tp.partition] = (max(begins.get(tp, end if since is not None else first), first), stops.get(tp, end))
        return out

    def _offsets(
        self, cluster: Cluster, asked: Sequence[TopicPartition], point: ReadPoint, name: str
    ) -> dict[TopicPartition, int]:
        """The offsets of a point; partitions whose end is before it are left out."""
        if point is None:
            return {}
        if isinstance(point, Mapping):
            return {TopicPartition(asked[0].topic, p): offset for p, offset in point.items()} if asked else {}
        if isinstance(point, datetime):
            stamp = point if point.tzinfo is not None else point.replace(tzinfo=UTC)
            config = consumer_config(
                self.connection.bootstrap_servers, self.application_id, dict(self.connection.client)
            )
            return offsets_since(config, asked, round(stamp.timestamp() * 1000))
        if point == "committed":
            found = cluster.committed(asked)
            return {tp: found[tp].offset if tp in found else 0 for tp in asked}
        if point.startswith(SAVEPOINT):
            saved = self.savepoint(point.removeprefix(SAVEPOINT) or "latest")
            known = {tp: c.offset for tp, c in saved.committed().items()} | saved.output_offsets()
            if asked and not any(tp.topic == asked[0].topic for tp in known):
                raise SettingsError(
                    f"savepoint {saved.name} says nothing of {asked[0].topic}; give {name} in another way"
                )
            return {tp: known.get(tp, 0) for tp in asked}
        try:
            return self._offsets(cluster, asked, datetime.fromisoformat(point), name)
        except ValueError as exc:
            raise SettingsError(
                f"{name}={point!r} is not a position in a topic: give committed, {SAVEPOINT}NAME, a time in ISO's form, "
                "or offsets"
            ) from exc


def _of_snapshot(spec: StoreSpec, manifest: Manifest) -> CompactTarget:
    """A store partition whose snapshot holds all that is wanted."""
    facts = ChangelogFacts(
        topic=manifest.topic,
        topic_id=manifest.topic_id,
        cluster_id=manifest.cluster_id,
        begin_offset=0,
        end_offset=manifest.changelog_offset,
        compacted=True,
        delete_retention_ms=manifest.delete_retention_ms,
    )
    return CompactTarget(
        place=0,
        application_id=manifest.application_id,
        form=StoreForm.of(spec),
        partition=manifest.partition,
        facts=facts,
        start=manifest.changelog_offset,
        end=manifest.changelog_offset,
        base=manifest,
        created_ms=manifest.created_ms,
        input_offsets=manifest.input_offsets,
        stream_time_ms=-1,
    )
