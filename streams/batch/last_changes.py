"""The last change of each key of a changelog, sorted by key, in bounded memory.

Changes are put into a map as they come, as columns where that is possible. When it is full, it is written to a local
file, sorted; in the end the files are merged, and of a key's changes the newest is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.recovery.changelog import History, from_changelog_columns
from penstock.state.stores.entry_cache import EntryMap, new_entries
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.reading import binary, bytes_column
from penstock.streams.ports.chunk import Chunk

MEMORY_BYTES = 128 << 20
_PART = 8_192
_START_BYTES, _SUFFIX_BYTES = 8, 12
_SEQUENCE = b"\x00" * (_SUFFIX_BYTES - _START_BYTES)
_FILE = pa.schema([("key", pa.binary()), ("value", pa.binary())])
LastChange = tuple[bytes, bytes | None]
"""A store key and the stored value; ``None``: deleted."""


class LastChanges:
    """See the module. ``folder``: for its files, made when it is needed."""

    def __init__(self, spec: StoreSpec, history: History, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._spec = spec
        self._history = history
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._entries: EntryMap = new_entries()
        self._files: list[Path] = []

    def put(self, chunk: Chunk) -> None:
        """Records of the changelog that follow those before. Raises ``IncompatibleError`` for one that no such store
        wrote."""
        put_rows = getattr(self._entries, "put_rows", None)
        columns = None if put_rows is None else _columns(self._spec, chunk)
        if put_rows is not None and columns is not None:
            put_rows(*columns)
        else:
            rows: list[list[Any]] = [chunk.keys, chunk.values, chunk.timestamps]
            if (taken := self._history.taken(chunk.keys, chunk.timestamps)) is not None:
                rows = [list(compress(column, taken)) for column in rows]
            if entries := from_changelog_columns(self._spec, *rows):
                self._entries.put_many([k for k, _ in entries], [v for _, v in entries])
        if self._entries.written_bytes > self._memory_bytes:
            self._spill()

    def sorted(self) -> Iterator[LastChange]:
        """Each key once, ascending. Call it after the last ``put``, as often as it is needed."""
        if not self._files:
            yield from self._in_memory()
            return
        # Of equal keys the one of the first source comes first: the newest.
        newest_first = [self._in_memory(), *map(_read, reversed(self._files))]
        last: bytes | None = None
        for change in heapq.merge(*newest_first, key=_key):
            if change[0] != last:
                last = change[0]
                yield change

    def _in_memory(self) -> Iterator[LastChange]:
        for start in range(0, self._entries.sort_written(), _PART):
            keys, values = self._entries.written_part(b"", start, start + _PART)
            yield from zip(keys, values, strict=True)

    def _spill(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"changes-{len(self._files)}.arrow"
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, _FILE) as writer:
            for start in range(0, self._entries.sort_written(), _PART):
                keys, values = self._entries.written_part(b"", start, start + _PART)
                writer.write_batch(
                    pa.RecordBatch.from_arrays([pa.array(c, pa.binary()) for c in (keys, values)], schema=_FILE)
                )
        self._files.append(path)
        self._entries.clear()


def _key(change: LastChange) -> bytes:
    return change[0]


def _read(path: Path) -> Iterator[LastChange]:
    with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield from zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)


def _columns(spec: StoreSpec, chunk: Chunk) -> tuple[Any, Any, Any, Any] | None:
    """Keys and values of the entries, as data and ends; ``None`` where records must be looked at one by one."""
    keys, values = chunk.key_column, chunk.value_column
    if keys is None or values is None or keys.nulls is not None or values.nulls is not None:
        return None
    logged = binary(keys)
    if spec.kind == "window":
        lengths = pc.min(pc.binary_length(logged)).as_py()
        if lengths is None or lengths < _SUFFIX_BYTES:
            return None
        if not pc.all(pc.equal(pc.binary_slice(logged, -len(_SEQUENCE)), _SEQUENCE)).as_py():
            return None
        starts = pc.binary_slice(logged, -_SUFFIX_BYTES, -len(_SEQUENCE))
        stored = pc.binary_join_element_wise(starts, pc.binary_slice(logged, 0, -_SUFFIX_BYTES), b"")
    elif spec.kind == "key_value":
        stored = logged
    else:
        return None
    stamps = np.asarray(chunk.times, np.int64).astype(">i8").tobytes()
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(chunk), [None, pa.py_buffer(stamps)])
    with_times = bytes_column(pc.binary_join_element_wise(fixed.cast(pa.binary()), binary(values), b""))
    entries = bytes_column(stored)
    return entries.data, entries.offsets, with_times.data, with_times.offsets
