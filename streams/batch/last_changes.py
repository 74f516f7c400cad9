"""The last change of each key of a changelog, sorted by key, in bounded memory.

Changes are put into a map as they come, as columns where that is possible. When it is full, it is written to a local
file, sorted; in the end the files are merged, and of a key's changes the newest is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.state.recovery.changelog import History
from penstock.state.stores.entry_cache import EntryMap, new_entries
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.write_buffer import put_entries
from penstock.streams.ports.changelog_entries import entries_of
from penstock.streams.ports.chunk import Chunk

MEMORY_BYTES = 128 << 20
_PART = 8_192
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
        put_entries(self._entries, entries_of(self._spec, self._history, chunk))
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
