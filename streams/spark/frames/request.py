"""The data to read, decided by the driver and shipped to the executors: one value that can be pickled."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import from_changelog
from penstock.state.recovery.position import Position, encode_position
from penstock.state.rocksdb.scratch import open_scratch
from penstock.state.serdes.serde import Serde, serde_of
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import Puts, StateBackend, StoreSpec, StoreWrites
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.batch.compact_executor import CompactTarget, to_entries
from penstock.streams.batch.reading import binary, read_range
from penstock.streams.batch.shipping import ShippedTopology, ShippedValue
from penstock.streams.kafka.native import choose
from penstock.streams.ports.chunk import Chunk
from penstock.streams.spark.frames.store_columns import StoreColumns
from penstock.streams.spark.frames.topic_columns import TopicColumns
from penstock.topologies.graph.topology import Topology

OPTION = "request"


@dataclasses.dataclass(frozen=True)
class ReaderConnection:
    """Where an executor reads. May hold secrets, so it is never shown."""

    bootstrap_servers: str = dataclasses.field(repr=False)
    client: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    group: str = "penstock-frames"


class _Carried:
    """Ships only the fields; cached values are computed again in the executor."""

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]  # of dataclasses


@dataclasses.dataclass(frozen=True)
class TopicRequest(_Carried):
    """Ranges of one topic. Its serdes are those by which the ``topology`` knows it, or what ``key`` and ``value`` mean
    (``serde_of``). ``only``: these columns."""

    cluster: ReaderConnection
    topic: str
    ranges: Mapping[int, tuple[int, int]]
    topology: ShippedTopology | None
    application_id: str
    key: ShippedValue | None
    value: ShippedValue | None
    only: tuple[str, ...] | None

    @cached_property
    def _columns(self) -> TopicColumns:
        known = None if self.topology is None else serdes_of(self.topology.load(), self.application_id, self.topic)
        return TopicColumns(*chosen_serdes(self.topic, known, self.key, self.value), self.only)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""
        return self._columns.schema

    @property
    def parts(self) -> list[int]:
        """The partitions that have something to read."""
        return [p for p, (start, stop) in sorted(self.ranges.items()) if start < stop]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """One partition, in offset order."""
        start, stop = self.ranges[part]
        for chunk in read_chunks(self.cluster, TopicPartition(self.topic, part), start, stop):
            yield self._columns.batch(chunk)


@dataclasses.dataclass(frozen=True)
class ChangelogRequest(_Carried):
    """Ranges of a store's changelog: each change that the log still has. ``only``: these columns."""

    cluster: ReaderConnection
    store: str
    topic: str
    ranges: Mapping[int, tuple[int, int]]
    topology: ShippedTopology
    only: tuple[str, ...] | None

    @cached_property
    def _spec(self) -> StoreSpec:
        return store_of(self.topology.load(), self.store)

    @cached_property
    def _columns(self) -> StoreColumns:
        return StoreColumns(self._spec, self.only, changes=True)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""
        return self._columns.schema

    @property
    def parts(self) -> list[int]:
        """The partitions that have something to read."""
        return [p for p, (start, stop) in sorted(self.ranges.items()) if start < stop]

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """One partition, in offset order. Records without a key, which a table ignores, are left out."""
        for chunk in read_chunks(self.cluster, TopicPartition(self.topic, part), *self.ranges[part]):
            rows = zip(chunk.offsets, chunk.keys, chunk.values, chunk.timestamps, strict=True)
            found = [(o, from_changelog(self._spec, k, v, ms), ms) for o, k, v, ms in rows if k is not None]
            if found:
                offsets, entries, stamps = zip(*found, strict=True)
                yield self._columns.changes(part, offsets, entries, stamps)


@dataclasses.dataclass(frozen=True)
class StoreRequest(_Carried):
    """A store at an offset of each changelog partition: a snapshot, if there is one, and the changelog after it.
    ``only``: these columns."""

    cluster: ReaderConnection
    store: str
    targets: tuple[CompactTarget, ...]
    repository: str | None
    topology: ShippedTopology
    only: tuple[str, ...] | None

    @cached_property
    def _spec(self) -> StoreSpec:
        return store_of(self.topology.load(), self.store)

    @cached_property
    def _columns(self) -> StoreColumns:
        return StoreColumns(self._spec, self.only)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns."""
        return self._columns.schema

    @property
    def parts(self) -> list[int]:
        """The store partitions, by their place."""
        return list(range(len(self.targets)))

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """One store partition, in the order of its keys. It is merged on disk, so memory holds one batch."""
        target, name = self.targets[part], self.store
        with TemporaryDirectory(prefix="penstock-frame-") as folder:
            backend = open_scratch(Path(folder) / "db", [name])
            try:
                if target.base is not None:
                    assert self.repository is not None
                    files = open_repository(self.repository).fetch(target.base, Path(folder) / "files")
                    backend.ingest(name, files, move=True)
                self._follow(backend, target)
                yield from self._columns.batches(target.partition, backend.range(name, None, None))
            finally:
                backend.close()

    def _follow(self, backend: StateBackend, target: CompactTarget) -> None:
        """Write what the changelog has after the snapshot."""
        chunks = read_chunks(self.cluster, target.log, target.start, target.end)
        facts = target.facts
        for batch in to_entries({target.log: [target]}, map(_logged, chunks), repository=self.repository):
            at = Position(
                batch.column("change")[-1].as_py() + 1 if batch.num_rows else target.start,
                {},
                facts.cluster_id,
                {facts.topic: facts.topic_id},
                target.created_ms,
                target.stream_time_ms,
                segment_ms=target.form.spec().segment_ms,
            )
            puts = Puts(batch.column("store_key").to_pylist(), batch.column("value").to_pylist())
            backend.commit([StoreWrites(self.store, puts, encode_position(at))])


Request = TopicRequest | ChangelogRequest | StoreRequest


def read_chunks(cluster: ReaderConnection, tp: TopicPartition, start: int, stop: int) -> Iterator[Chunk]:
    """A range of a partition, as an executor reads it."""
    choose("auto")
    return read_range(ClusterAddress(cluster.bootstrap_servers, cluster.client), cluster.group, tp, start, stop)


def _logged(chunk: Chunk) -> pa.RecordBatch:
    """A chunk as ``to_entries`` takes it."""
    count = len(chunk)
    keys, values = (
        binary(rows if column is None else column)
        for rows, column in ((chunk.keys, chunk.key_column), (chunk.values, chunk.value_column))
    )
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat(chunk.topic, count),
            "partition": pa.repeat(pa.scalar(chunk.partition, pa.int32()), count),
            "offset": pa.array(chunk.offsets, pa.int64()),
            "timestamp_ms": pa.array(chunk.times, pa.int64()),
            "key": keys,
            "value": values,
        }
    )


def serdes_of(topology: Topology, application_id: str, topic: str) -> tuple[Serde[Any], Serde[Any]] | None:
    """The serdes with which a topology reads or writes a topic; ``None`` when it does neither."""
    for sub in topology.subtopologies:
        for name in sub.sources:
            source = topology.source(name)
            if source.topic_name(application_id) == topic and not source.packed:
                return source.key_serde, source.value_serde
        for name in sub.sinks:
            sink = topology.sink(name)
            if topic in (sink.topics or (sink.topic_name(application_id),)) and not sink.packs:
                return sink.key_serde, sink.value_serde
    return None


def chosen_serdes(
    topic: str,
    known: tuple[Serde[Any], Serde[Any]] | None,
    key: ShippedValue | None,
    value: ShippedValue | None,
) -> tuple[Serde[Any], Serde[Any]]:
    """The given serde, else the known one. Raises ``SettingsError`` if there is neither."""
    given = [None if like is None else serde_of(like.load()) for like in (key, value)]
    found = [serde or (None if known is None else known[i]) for i, serde in enumerate(given)]
    if found[0] is None or found[1] is None:
        raise SettingsError(
            f"the topology neither reads nor writes {topic}, so its serdes are not known; give key= and value="
        )
    return found[0], found[1]


def store_of(topology: Topology, name: str) -> StoreSpec:
    """A store by name. Raises ``SettingsError``."""
    found = next((s for s in topology.stores if s.name == name), None)
    if found is None:
        known = ", ".join(s.name for s in topology.stores) or "none"
        raise SettingsError(f"the topology has no store {name!r}; there are: {known}")
    return found


def packed(request: Any) -> str:
    """A request as the text of an option."""
    return base64.b64encode(cloudpickle.dumps(request)).decode()  # type: ignore[no-untyped-call]  # PySpark does not type it


def unpacked(text: str) -> Any:
    """Read the text that ``packed`` wrote."""
    return cloudpickle.loads(base64.b64decode(text))
