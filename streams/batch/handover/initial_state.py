"""Inside an executor: the initial state of all tasks with one partition number, given as rows.

What is written is what the tasks' first commit would be, had they made the state themselves: one Kafka transaction of
changelog records and input positions, by the transactional id of the fixed partition. So a repeated attempt fences the one
before it, finds what that has committed, and writes nothing again; and a worker that starts later fences them all. The
snapshots, from which workers take the state, are written after it: without them they would read the changelogs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import History, changelog_topic, to_changelog_columns
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.cluster import (
    Cluster,
    ClusterAddress,
    open_admin,
    open_cluster,
    open_consumer,
    open_transactional,
)
from penstock.streams.batch.compact_executor import CompactTarget, StoreForm, write_snapshot
from penstock.streams.batch.handover.piece import FILE_BYTES, SNAPSHOTS, step
from penstock.streams.batch.last_changes import LastChanges
from penstock.streams.batch.row_runs import place_runs, whole_runs
from penstock.streams.batch.shipping import ShippedTopology
from penstock.streams.kafka.native import choose
from penstock.streams.ports.chunk import Chunk
from penstock.streams.ports.log import LogProducer, OffsetAndMetadata, UnknownOutcomeError
from penstock.streams.runtime.fixed_fence import fixed_id
from penstock.streams.runtime.unread_internal_topics import first_unread
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.worker.fixed_worker_lock import check_job
from penstock.topologies.graph.topology import Topology

ROWS_SCHEMA = pa.schema(
    [
        ("place", pa.int32()),
        ("store", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""``place``: the partition. ``store``: its number in the job. ``key``, ``value``: as the changelog has them. A null key only
ensures that the partition occurs."""
REPORT_SCHEMA = pa.schema([("report", pa.string())])
TRANSACTION_MS = 900_000
"""The brokers' default maximum: all of one partition's state is one transaction."""
_TIMEOUT_S = 120.0
_PART = 8_192


@dataclasses.dataclass(frozen=True)
class StateJob:
    """Values that all partitions need. ``stores``: the names of those that get their state. ``starts``: where each input
    begins, of the tasks with this partition number. ``address``: may hold secrets, and is never shown. ``member``: that of
    the job's ``Hold``, without which nothing is written."""

    topology: ShippedTopology
    application_id: str
    member: str
    address: ClusterAddress = dataclasses.field(repr=False)
    stores: tuple[str, ...]
    starts: Mapping[TopicPartition, int]
    repository: str | None
    created_ms: int


class StateReport(msgspec.Struct, frozen=True):
    """The result of a partition. ``written``: false where an earlier attempt had committed it. ``snapshots`` are uploaded
    and not published."""

    partition: int
    rows: int
    written: bool
    snapshots: tuple[Manifest, ...]


def write_state(job: StateJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of ``ROWS_SCHEMA``, each partition's together; a report for each. Raises ``SettingsError`` for two rows of one
    key, and where a changelog has records already."""
    choose("auto")
    topology = job.topology.load()
    for partition, parts in whole_runs(place_runs(batches)):
        with TemporaryDirectory(prefix="penstock-state-") as folder:
            state = _State(job, topology, partition, Path(folder))
            for part in parts:
                state.put(part)
            report = msgspec.json.encode(state.write()).decode()
        yield pa.RecordBatch.from_arrays([pa.array([report])], schema=REPORT_SCHEMA)


@dataclasses.dataclass
class _Store:
    """One store partition: its rows, and how many there are."""

    spec: StoreSpec
    subtopology: int
    log: TopicPartition
    changes: LastChanges
    rows: int = 0
    end: int = 0


class _State:
    """All that the tasks with one partition number get."""

    def __init__(self, job: StateJob, topology: Topology, partition: int, folder: Path) -> None:
        self._job = job
        self._topology = topology
        self._partition = partition
        self._inputs = sorted(tp for tp in job.starts if tp.partition == partition)
        specs = {spec.name: (sub.number, spec) for sub in topology.subtopologies for spec in sub.stores}
        sources = topology.source_topics(job.application_id)
        self._readers = {tp: sources[tp.topic][0] for tp in self._inputs}
        self._stores: dict[int, _Store] = {}
        for number, name in enumerate(job.stores):
            reader, spec = specs[name]
            if reader in self._readers.values():
                form = StoreForm.of(spec).spec()
                log = TopicPartition(changelog_topic(job.application_id, form), partition)
                changes = LastChanges(form, History(form), folder / str(number))
                self._stores[number] = _Store(spec, reader, log, changes)

    def put(self, rows: pa.RecordBatch) -> None:
        """Rows of any of the stores."""
        for number, store in self._stores.items():
            part = rows.filter(pc.and_(pc.equal(rows.column("store"), number), pc.is_valid(rows.column("key"))))
            if not part.num_rows:
                continue
            keys, values = part.column("key").to_pylist(), part.column("value").to_pylist()
            offsets = range(store.rows, store.rows + part.num_rows)
            times = part.column("timestamp_ms").to_pylist()
            store.changes.put(Chunk(store.log.topic, self._partition, offsets, keys, values, times))
            store.rows += part.num_rows

    def write(self) -> StateReport:
        """Commit it, unless that was done before."""
        job, rows = self._job, sum(store.rows for store in self._stores.values())
        producer = open_transactional(
            job.address, fixed_id(job.application_id, self._partition), timeout_ms=TRANSACTION_MS, bulk=True
        )
        try:
            # Fences an earlier attempt that may still run, and ends its transaction, so that what is committed cannot
            # change any more.
            producer.init_transactions(_TIMEOUT_S)
            check_job(open_admin(job.address), job.application_id, job.member)
            with open_cluster(job.address, job.application_id) as cluster:
                if cluster.committed(self._inputs):
                    return StateReport(self._partition, rows, False, ())
                self._refuse_written()
                self._commit(producer, cluster)
                step(SNAPSHOTS[0])
                return StateReport(self._partition, rows, True, self._snapshots(cluster))
        finally:
            producer.close()

    def _refuse_written(self) -> None:
        address, group = self._job.address, self._job.application_id
        found = first_unread(lambda: open_consumer(address, group), {store.log: 0 for store in self._stores.values()})
        if found is not None:
            raise SettingsError(
                f"{found[0].topic} [{found[0].partition}] holds a record at offset {found[1]}, so the store has a state, "
                "though its application has no position; give the application another id, or reset it"
            )

    def _commit(self, producer: LogProducer, cluster: Cluster) -> None:
        """One transaction of changelogs and positions."""
        producer.begin()
        try:
            for store in self._stores.values():
                self._send(producer, store)
            step("sent")
            ends = producer.flush(_TIMEOUT_S)
            for store in self._stores.values():
                store.end = ends.get(store.log, 0)
            producer.send_offsets(self._positions(cluster), self._job.application_id, _TIMEOUT_S)
            step("offsets_added")
        except PenstockError:
            producer.abort(_TIMEOUT_S)
            raise
        try:
            producer.commit(_TIMEOUT_S)
        except UnknownOutcomeError:
            if not cluster.committed(self._inputs):
                raise
        step("committed")

    def _send(self, producer: LogProducer, store: _Store) -> None:
        found, changes = 0, store.changes.sorted()
        while part := list(islice(changes, _PART)):
            keys, values = to_changelog_columns(store.spec, [k for k, _ in part], [v for _, v in part])
            times = [int.from_bytes(v[:8], "big", signed=True) for _, v in part if v is not None]
            logged: list[bytes | None] = [*keys]
            producer.send(store.log.topic, logged, values, times, partition=self._partition)
            found += len(part)
        if found != store.rows:
            raise SettingsError(
                f"of the {store.rows:,} rows for store {store.spec.name} in partition {self._partition} only {found:,} have "
                "a key of their own; give each key once"
            )

    def _positions(self, cluster: Cluster) -> dict[TopicPartition, OffsetAndMetadata]:
        """The inputs' positions, with what the tasks' first commit would say."""
        sources = self._topology.source_topics(self._job.application_id)
        out: dict[TopicPartition, OffsetAndMetadata] = {}
        for tp in self._inputs:
            number, name = sources[tp.topic]
            own = [store for store in self._stores.values() if store.subtopology == number and store.rows]
            offset = self._job.starts[tp]
            noted = CommitMetadata(
                changelogs={store.spec.name: store.end for store in own},
                first=offset,
                form=self._topology.source(name).form,
                topic_id=cluster.topic_id(tp.topic),
            )
            out[tp] = OffsetAndMetadata(offset, commit_metadata.encode(noted))
        return out

    def _snapshots(self, cluster: Cluster) -> tuple[Manifest, ...]:
        job = self._job
        if job.repository is None:
            return ()
        out: list[Manifest] = []
        for store in self._stores.values():
            inputs = [tp for tp in self._inputs if self._readers[tp] == store.subtopology]
            target = CompactTarget(
                place=0,
                application_id=job.application_id,
                form=StoreForm.of(store.spec),
                partition=self._partition,
                facts=cluster.changelog_facts(store.log.topic, [self._partition])[self._partition],
                start=0,
                end=store.end,
                base=None,
                created_ms=job.created_ms,
                input_offsets=tuple((tp.topic, tp.partition, job.starts[tp]) for tp in inputs),
                stream_time_ms=-1,
            )
            entries = ((key, value) for key, value in store.changes.sorted() if value is not None)
            out.append(write_snapshot(open_repository(job.repository), target, entries, FILE_BYTES))
        return tuple(out)
