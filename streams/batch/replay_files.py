"""The Parquet files of one replayed task: written locally as rows come, then put where the replay's files lie, under
names that no other attempt has."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from penstock.state.log import TaskId
from penstock.state.machine.state_directory import safe_name
from penstock.state.snapshots.storage import open_storage
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.published import NO_FLOOR_MS, OutputFile
from penstock.streams.batch.reading import binary
from penstock.streams.ports.chunk import running_highest
from penstock.streams.task.output import Output
from penstock.streams.task.sink_operator import BY_KEY
from penstock.topologies.columnar.kernels import partitions_of
from penstock.topologies.operator_api.columns import BytesColumn

ANY_PARTITION = -1
_ROWS_PER_GROUP = 50_000
_ENTRIES_AT_ONCE = 5_000
"""How many entries are Python objects at a time: as such they take several times the memory."""
_LONG_BYTES = 8
_LONGEST = 1 << 31
"""A stop behind every value: without one, Arrow expects a size that does not fit into 64 bits."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OUTPUT_SCHEMA = pa.schema(
    [
        ("subtopology", pa.int32()),
        ("task", pa.int32()),
        ("seq", pa.int64()),
        ("partition", pa.int32()),
        ("running_max_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("headers", HEADERS),
    ]
)
STORE_SCHEMA = pa.schema(
    [
        ("store_key", pa.binary()),
        ("key", pa.binary()),
        ("window_start_ms", pa.int64()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
    ]
)


class OutputFiles:
    """The outputs of one task, a file per topic."""

    def __init__(self, folder: Path, output: str, run: str, task: TaskId, partition_counts: Mapping[str, int]) -> None:
        self._folder = folder
        self._output = output
        self._run = run
        self._task = task
        self._counts = partition_counts
        self._files: dict[str, _TopicFile] = {}

    def add(self, output: Output) -> None:
        """Append records of one topic."""
        file = self._files.get(output.topic)
        if file is None:
            path = self._folder / f"out-{len(self._files)}.parquet"
            file = self._files[output.topic] = _TopicFile(path, self._task, self._counts.get(output.topic))
        file.add(output)

    def finish(self) -> list[OutputFile]:
        """Close and put the files in place."""
        out: list[OutputFile] = []
        for topic, file in self._files.items():
            file.close()
            place = _put(self._output, f"runs/{self._run}/outputs/{safe_name(topic)}", self._task, file.path)
            out.append(
                OutputFile(
                    topic=topic,
                    subtopology=self._task.subtopology,
                    task=self._task.partition,
                    path=place,
                    rows=file.rows,
                    partitions=tuple(sorted(file.partitions)),
                    highest_ms=file.highest_ms,
                )
            )
        return out


class _TopicFile:
    """One topic's rows."""

    def __init__(self, path: Path, task: TaskId, partitions: int | None) -> None:
        self.path = path
        self.rows = 0
        self.partitions: set[int] = set()
        self.highest_ms = NO_FLOOR_MS
        self._task = task
        self._partitions = partitions
        self._writer = pq.ParquetWriter(path, OUTPUT_SCHEMA, compression="lz4")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def add(self, output: Output) -> None:
        seq, count = self.rows, len(output)
        if not count:
            return
        running = running_highest(output.times, 0, count, self.highest_ms)
        self.highest_ms = int(running[-1])
        placed = self._placed(output)
        self.partitions.update(np.unique(placed).tolist())
        headers = None
        if output.headers is not None:
            headers = [[{"key": k, "value": v} for k, v in h] if h else None for h in output.headers]
        columns = [
            np.full(count, self._task.subtopology, np.int32),
            np.full(count, self._task.partition, np.int32),
            np.arange(seq, seq + count, dtype=np.int64),
            placed,
            running,
            binary(output.keys if output.key_column is None else output.key_column),
            binary(output.values if output.value_column is None else output.value_column),
            np.asarray(output.times, np.int64),
            headers if headers is not None else pa.nulls(count, HEADERS),
        ]
        arrays = [
            c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, OUTPUT_SCHEMA, strict=True)
        ]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA))
        self._waiting_rows += count
        self.rows += count
        if self._waiting_rows >= _ROWS_PER_GROUP:
            self._flush()

    def _placed(self, output: Output) -> NDArray[np.int32]:
        """The partition of each record, as the producer chooses it."""
        explicit, count, rows = output.partition, self._partitions, len(output)
        if isinstance(explicit, int):
            return np.full(rows, explicit, np.int32)
        placed = np.full(rows, BY_KEY, np.int32) if explicit is None else np.array(explicit, np.int32)
        if not (by_key := placed == BY_KEY).any():
            return placed
        if count is None:
            found = np.full(rows, ANY_PARTITION, np.int32)
        else:
            column = output.key_column
            keys = column if isinstance(column, BytesColumn) else BytesColumn.of(output.keys)
            found = partitions_of(keys, count)
        return np.where(by_key, found, placed)

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_rows = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()


def store_file(
    folder: Path, output: str, run: str, task: TaskId, spec: StoreSpec, entries: Iterable[tuple[bytes, bytes]]
) -> tuple[str, int]:
    """Write one store partition, sorted by store key; returns the file's place and its rows."""
    path = folder / f"store-{uuid.uuid4().hex}.parquet"
    rows = 0
    with pq.ParquetWriter(path, STORE_SCHEMA, compression="lz4") as writer:
        for group in _groups(spec, iter(entries)):
            writer.write_table(group)
            rows += group.num_rows
    return _put(output, f"runs/{run}/stores/{safe_name(spec.name)}", task, path), rows


def _groups(spec: StoreSpec, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[pa.Table]:
    """The rows of one row group after another."""
    pieces = iter(lambda: list(islice(entries, _ENTRIES_AT_ONCE)), [])
    rows = (_store_rows(spec, piece) for piece in pieces)
    while group := list(islice(rows, _ROWS_PER_GROUP // _ENTRIES_AT_ONCE)):
        yield pa.Table.from_batches(group)


def _store_rows(spec: StoreSpec, entries: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    windowed = spec.kind == "window"
    stored = pa.array([k for k, _ in entries], pa.binary())
    values = pa.array([v for _, v in entries], pa.binary())
    arrays = [
        stored,
        _rest(stored) if windowed else stored,
        first_longs(stored) if windowed else pa.nulls(len(entries), pa.int64()),
        _rest(values),
        first_longs(values),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STORE_SCHEMA)


def _rest(data: pa.Array) -> pa.Array:
    """Each value without its first eight bytes."""
    return pc.binary_slice(data, _LONG_BYTES, _LONGEST)


def first_longs(data: pa.Array) -> pa.Array:
    """The number in the first eight bytes of each value, big-endian."""
    (_, _, heads) = pc.binary_slice(data, 0, _LONG_BYTES).buffers()
    return pa.array(np.frombuffer(heads or b"", ">i8", len(data)).astype(np.int64))


def _put(output: str, folder: str, task: TaskId, local: Path) -> str:
    place = f"{folder}/{task}-{uuid.uuid4().hex}.parquet"
    open_storage(output).put(local, place)
    local.unlink()
    return place
