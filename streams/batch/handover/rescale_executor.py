"""Rescaling inside the executors: the entries of old store partitions go to new ones, and into their changelogs.

An entry keeps its key, value and timestamp. Each new partition is written by one Spark task, in transactions of a
transactional id of its own. A repeated task fences the attempt before it and writes all entries once more. That changes
nothing for who reads the changelog: the old application stands still, so each attempt writes the same last value of the
same keys.

An attempt that was frozen, and wakes when the new application runs, must not write. So a writer first opens its id, then
looks whether the new positions are committed; and the driver commits them, then opens all these ids (``fence_writers``),
and only then lets workers start. A writer that opened its id before the driver did is fenced, and one that opened it
later sees the positions.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic, to_changelog_columns
from penstock.state.serdes.partitioner import partition_for
from penstock.state.snapshots.manifest import Manifest
from penstock.streams.batch.cluster import ClusterAddress, open_consumer, open_transactional, retried
from penstock.streams.batch.compact_executor import ENTRY_SCHEMA, StoreForm
from penstock.streams.batch.handover.rekeying import StorePlacing, misplaced, readdressed
from penstock.streams.batch.handover.rescale_plan import Rescaling
from penstock.streams.batch.row_runs import place_runs
from penstock.streams.batch.snapshot_entries import read_entries
from penstock.streams.batch.sorted_rows import SortedRows
from penstock.streams.ports.log import LogProducer

REPORT_SCHEMA = pa.schema([("place", pa.int32()), ("entries", pa.int64())])
BEFORE_ALL = -1
"""The change of an entry that a snapshot holds."""
_STAMP = struct.Struct(">q")
_ROWS_MAX, _BYTES_MAX = 20_000, 16 << 20
"""The most that one transaction holds."""
_TRANSACTION_MS = 120_000
_TIMEOUT_S = 120.0
STEPS = ("opened", "written")
KeyedEntry = tuple[bytes, bytes]


@dataclasses.dataclass(frozen=True)
class StoreMove:
    """The move of one store: its old and new number of partitions, and how its entries find theirs (``placing``;
    ``None``: they keep them). ``answers``: old and new number of tasks that get the answers of foreign-key subscriptions."""

    partitions: tuple[int, int]
    placing: StorePlacing | None
    answers: tuple[int, int] | None = None

    def check(self, entries: Iterable[KeyedEntry], partition: int) -> None:
        """Raises ``SettingsError`` for an entry that does not belong into its old partition."""
        entries = list(entries)
        if self.placing is not None:
            wrong = misplaced(self.placing, (key for key, _ in entries), partition, self.partitions[0])
            if wrong is not None:
                raise SettingsError(
                    f"store {self.placing.store} holds key {self.placing.key_of(wrong)!r:.80} in partition {partition}, "
                    f"where murmur2 of {self.partitions[0]} partitions does not put it: its topic was written with another "
                    "partitioner, so nothing says where the key belongs now. Nothing was changed; send that topic "
                    "through repartition() first"
                )
        if self.answers is not None:
            for key, value in entries:
                if readdressed(value, self.answers[0]) != value:
                    raise SettingsError(
                        f"the subscription under {key!r:.80} is of another task than its key's, so its answers would go "
                        "astray. Nothing was changed; send the left table's topic through repartition() first"
                    )

    def target(self, store_key: bytes, partition: int) -> int:
        """The new partition of an entry of an old one."""
        if self.placing is None:
            return partition
        return partition_for(self.placing.key_of(store_key), self.partitions[1])

    def value(self, value: bytes) -> bytes:
        """The value as the new partition holds it."""
        return value if self.answers is None else readdressed(value, self.answers[1])


@dataclasses.dataclass(frozen=True)
class Moves:
    """All stores of a rescaling. ``sources``: store and partition of each old place; ``targets``: of each new place."""

    stores: Mapping[str, StoreMove]
    sources: Sequence[tuple[str, int]]
    targets: Sequence[tuple[str, int]]

    def check(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Look at rows of ``ENTRY_SCHEMA`` of old places; how many there were. Raises as ``StoreMove.check``."""
        for place, part in place_runs(batches):
            store, partition = self.sources[place]
            keys, values = part.column("store_key").to_pylist(), part.column("value").to_pylist()
            self.stores[store].check([(k, v) for k, v in zip(keys, values, strict=True) if v is not None], partition)
            yield _report(place, len(keys))

    def moved(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows at their new places."""
        at = {target: place for place, target in enumerate(self.targets)}
        for place, part in place_runs(batches):
            store, partition = self.sources[place]
            move = self.stores[store]
            keys, values = part.column("store_key").to_pylist(), part.column("value").to_pylist()
            places = [at[store, move.target(k, partition)] for k in keys]
            changed = values if move.answers is None else [None if v is None else move.value(v) for v in values]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(places, pa.int32()),
                    part.column("store_key"),
                    part.column("change"),
                    pa.array(changed, pa.binary()),
                ],
                schema=ENTRY_SCHEMA,
            )


def moves_of(plan: Rescaling) -> Moves:
    """The moves of a plan."""
    stores: dict[str, StoreMove] = {}
    for sub, spec in plan.stores():
        left = plan.answers.get(spec.name)
        stores[spec.name] = StoreMove(
            (plan.old.tasks(sub.number), plan.new.tasks(sub.number)),
            plan.placings.get(spec.name),
            None if left is None else (plan.old.tasks(left), plan.new.tasks(left)),
        )
    sources = [(name, p) for name, move in stores.items() for p in range(move.partitions[0])]
    targets = [(name, p) for name, move in stores.items() for p in range(move.partitions[1])]
    return Moves(stores, sources, targets)


def base_entries(
    repository: str, bases: Sequence[tuple[int, Manifest]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The entries of snapshots as rows of ``ENTRY_SCHEMA``. ``bases``: with their old places."""
    places = {(m.store, m.partition): place for place, m in bases}
    for batch in read_entries(repository, [m for _, m in bases], batches):
        if batch.num_rows:
            place = places[batch.column("name")[0].as_py(), batch.column("partition")[0].as_py()]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([place] * batch.num_rows, pa.int32()),
                    batch.column("store_key"),
                    pa.array([BEFORE_ALL] * batch.num_rows, pa.int64()),
                    batch.column("value"),
                ],
                schema=ENTRY_SCHEMA,
            )


def _report(place: int, entries: int) -> pa.RecordBatch:
    columns = [pa.array([place], pa.int32()), pa.array([entries], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=REPORT_SCHEMA)


# -- writing -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WriteJob:
    """Values that the writers need. ``inputs``: all input partitions of the new application, whose id is the group;
    ``forms``: of its stores; ``targets``: see ``Moves``; ``on_step`` is called, by a name of ``STEPS``, when a writer has
    fenced the one before it, and after each of its transactions: failpoints. The addresses may hold secrets."""

    application_id: str
    reading: ClusterAddress = dataclasses.field(repr=False)
    writing: ClusterAddress = dataclasses.field(repr=False)
    inputs: Sequence[TopicPartition]
    forms: Mapping[str, StoreForm]
    targets: Sequence[tuple[str, int]]
    on_step: Callable[[str], None] | None = None

    def step(self, step: str) -> None:
        """Tell ``on_step``."""
        if self.on_step is not None:
            self.on_step(step)

    def open_writer(self, place: int) -> LogProducer:
        """A producer that fences the earlier ones of this place."""
        store, partition = self.targets[place]
        name = f"{self.application_id}-rescale-{store}-{partition}"
        producer = open_transactional(self.writing, name, timeout_ms=_TRANSACTION_MS)
        try:
            retried(lambda: producer.init_transactions(_TIMEOUT_S))
        except BaseException:
            producer.close()
            raise
        return producer

    def refuse_handed_over(self) -> None:
        """Raises ``SettingsError`` if the new application has positions. Call it when the own id is open."""
        consumer = open_consumer(self.reading, self.application_id)
        try:
            found = retried(lambda: consumer.committed(self.inputs))
        finally:
            consumer.close()
        if any(at is not None for at in found.values()):
            raise SettingsError(f"another run of this job has handed {self.application_id} over already")


def fence_writers(job: WriteJob) -> None:
    """End the writers of all places, for good: the new positions are committed."""
    for place in range(len(job.targets)):
        job.open_writer(place).close()


def write_changelogs(job: WriteJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of new places, sorted by place, store key and change; how many entries each got. Every place must occur,
    so that an earlier attempt is fenced everywhere."""
    rows = SortedRows(batches)
    while (place := rows.place) is not None:
        live = ((key, value) for key, value in rows.entries(place) if value is not None)
        yield _report(place, _write(job, place, live))


def _write(job: WriteJob, place: int, entries: Iterator[KeyedEntry]) -> int:
    store, partition = job.targets[place]
    spec = job.forms[store].spec()
    topic = changelog_topic(job.application_id, spec)
    producer = job.open_writer(place)
    count = 0
    try:
        job.refuse_handed_over()
        job.step(STEPS[0])
        for group in _groups(entries):
            keys, values = to_changelog_columns(spec, *map(list, zip(*group, strict=True)))
            times = [_STAMP.unpack_from(value)[0] for _, value in group]
            producer.begin()
            producer.send(topic, keys, values, times, partition=partition)
            producer.flush(_TIMEOUT_S)
            producer.commit(_TIMEOUT_S)
            count += len(group)
            job.step(STEPS[1])
    finally:
        producer.close()
    return count


def _groups(entries: Iterator[KeyedEntry]) -> Iterator[list[KeyedEntry]]:
    """The entries of one transaction each."""
    group: list[KeyedEntry] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += sum(map(len, entry))
        if len(group) == _ROWS_MAX or size >= _BYTES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group
