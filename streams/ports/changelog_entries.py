"""Records of a changelog, as a reader took them from the log, as the entries of a store."""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np

from penstock.state.recovery.changelog import History, from_changelog_columns, from_packed_changelog
from penstock.state.stores.store import PackedPuts, StoreSpec
from penstock.streams.ports.chunk import Chunk


def entries_of(spec: StoreSpec, history: History, chunk: Chunk) -> PackedPuts | list[tuple[bytes, bytes | None]]:
    """The entries in log order: as columns where the chunk has columns and the store's kind allows it, so that no record
    becomes an object. ``history``: what the store has taken before. Raises ``IncompatibleError`` for a record that no such
    store wrote."""
    if chunk.key_column is not None and chunk.value_column is not None:
        times_ms = np.ascontiguousarray(chunk.times, np.int64)
        packed = from_packed_changelog(spec, chunk.key_column.raw(), chunk.value_column.raw(), times_ms)
        if packed is not None:
            return packed
    rows: list[list[Any]] = [chunk.keys, chunk.values, chunk.timestamps]
    if (taken := history.taken(chunk.keys, chunk.timestamps)) is not None:
        rows = [list(compress(column, taken)) for column in rows]
    return from_changelog_columns(spec, *rows)
