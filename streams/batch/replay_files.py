"""The Parquet files of one replayed task: written locally as rows come, then put where the replay's files lie, under
names that no other attempt has."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.state.log import TaskId
from penstock.state.machine.state_directory import safe_name
from penstock.state.serdes.partitioner import partition_for
from penstock.state.snapshots.storage import open_storage
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.published import OutputFile
from penstock.streams.task.output import Output
from penstock.streams.task.sink_operator import BY_KEY

ANY_PARTITION = -1
_ROWS_PER_GROUP = 50_000
_LONG = struct.Struct(">q")
_START_BYTES = 8
_NEVER = -(1 << 62)
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
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
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
_partition_for = lru_cache(maxsize=1 << 16)(partition_for)


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
                )
            )
        return out


class _TopicFile:
    """One topic's rows."""

    def __init__(self, path: Path, task: TaskId, partitions: int | None) -> None:
        self.path = path
        self.rows = 0
        self.partitions: set[int] = set()
        self._task = task
        self._partitions = partitions
        self._writer = pq.ParquetWriter(path, OUTPUT_SCHEMA, compression="lz4")
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._running_max_ms = _NEVER

    def add(self, output: Output) -> None:
        seq, count = self.rows, len(output.keys)
        running: list[int] = []
        for ms in output.timestamps:
            self._running_max_ms = max(self._running_max_ms, ms)
            running.append(self._running_max_ms)
        placed = self._placed(output)
        self.partitions.update(placed)
        headers = None
        if output.headers is not None:
            headers = [[{"key": k, "value": v} for k, v in h] if h else None for h in output.headers]
        columns = [
            [self._task.subtopology] * count,
            [self._task.partition] * count,
            list(range(seq, seq + count)),
            placed,
            running,
            output.keys,
            output.values,
            output.timestamps,
            headers if headers is not None else [None] * count,
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, OUTPUT_SCHEMA, strict=True)]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=OUTPUT_SCHEMA))
        self._waiting_rows += count
        self.rows += count
        if self._waiting_rows >= _ROWS_PER_GROUP:
            self._flush()

    def _placed(self, output: Output) -> list[int]:
        """The partition of each record, as the producer chooses it."""
        explicit, count = output.partition, self._partitions
        if isinstance(explicit, int):
            return [explicit] * len(output.keys)
        chosen = explicit if explicit is not None else [BY_KEY] * len(output.keys)
        return [
            p if p != BY_KEY else (ANY_PARTITION if k is None or count is None else _partition_for(k, count))
            for p, k in zip(chosen, output.keys, strict=True)
        ]

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
        for group in _groups(iter(entries)):
            writer.write_batch(_store_rows(spec, group))
            rows += len(group)
    return _put(output, f"runs/{run}/stores/{safe_name(spec.name)}", task, path), rows


def _groups(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    while group := list(islice(entries, _ROWS_PER_GROUP)):
        yield group


def _store_rows(spec: StoreSpec, entries: list[tuple[bytes, bytes]]) -> pa.RecordBatch:
    windowed = spec.kind == "window"
    skip = _START_BYTES if windowed else 0
    columns = [
        [k for k, _ in entries],
        [k[skip:] for k, _ in entries],
        [_LONG.unpack_from(k)[0] if windowed else None for k, _ in entries],
        [v[8:] for _, v in entries],
        [_LONG.unpack_from(v)[0] for _, v in entries],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, STORE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=STORE_SCHEMA)


def _put(output: str, folder: str, task: TaskId, local: Path) -> str:
    place = f"{folder}/{task}-{uuid.uuid4().hex}.parquet"
    open_storage(output).put(local, place)
    local.unlink()
    return place
