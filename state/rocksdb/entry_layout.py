"""The layout of a store's entries in a column family, and the loops that write sorted entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocksdict import SstFileWriter, WriteBatch

from penstock.state.rocksdb.tuning import RocksDBOptions, table_options

USER_PREFIX = b"\x01"
USER_END = b"\x02"
POSITION_KEY = b"\x00position"


def fill(target: WriteBatch | SstFileWriter, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
    """Put entries whose keys include the prefix; delete those without a value."""
    if None not in values:
        deque(map(target.__setitem__, keys, values), maxlen=0)  # the loop in C
        return
    for key, value in zip(keys, values, strict=True):
        if value is None:
            del target[key]
        else:
            target[key] = value


def write_sorted(
    path: Path,
    parts: Iterable[tuple[Sequence[bytes], Sequence[bytes | None]]],
    position: bytes,
    options: RocksDBOptions,
) -> None:
    """Write a table file of the position and of entries. Their keys include the prefix and ascend strictly."""
    writer = SstFileWriter(table_options(options))
    writer.open(str(path))
    writer[POSITION_KEY] = position
    for keys, values in parts:
        fill(writer, keys, values)
    writer.finish()
