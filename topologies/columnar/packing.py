"""Pack many records into one: how partial aggregates travel through a repartition topic.

Each record of the log has a fixed cost for clients on both sides, and a partial aggregate is only a few bytes. Packed,
partials cost a fraction of that, so a task may send one for every key that it has seen since the last commit. Rows keep
their order and their own timestamps.

Layout, big-endian: version (1) | count (4) | timestamps (8 each) | key lengths (4 each) | value lengths (4 each) | keys |
values.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from penstock.state.errors import SerdeError
from penstock.topologies.operator_api.columns import BytesColumn, Ints

VERSION: Final = 1
ROWS_MAX: Final = 1_000
"""Rows in one record: few enough to keep a batch of such records small, enough to make the cost per record
negligible."""
_HEAD = struct.Struct(">BI")


class PackedRecord(NamedTuple):
    """The rows of one record."""

    keys: BytesColumn
    values: BytesColumn
    times: Ints


def pack(keys: BytesColumn, values: BytesColumn, times: Ints) -> bytes:
    """Pack the rows, none of which is null, into one value."""
    return b"".join(
        (
            _HEAD.pack(VERSION, len(times)),
            times.astype(">i8").tobytes(),
            np.diff(keys.offsets).astype(">u4").tobytes(),
            np.diff(values.offsets).astype(">u4").tobytes(),
            _data(keys),
            _data(values),
        )
    )


def _data(column: BytesColumn) -> memoryview:
    return memoryview(column.data)[int(column.offsets[0]) : int(column.offsets[-1])]


def unpack(data: bytes | None) -> PackedRecord:
    """Unpack what ``pack`` made. Raises ``SerdeError`` for anything else."""
    try:
        if data is None:
            raise ValueError("it is null")
        version, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"its version is {version}")
        times = np.frombuffer(data, ">i8", count, _HEAD.size).astype(np.int64)
        at = _HEAD.size + 8 * count
        ends = np.zeros(2 * count + 1, np.int64)
        np.cumsum(np.frombuffer(data, ">u4", 2 * count, at), out=ends[1:])
        ends += at + 8 * count
        if ends[-1] != len(data):
            raise ValueError(f"it has {len(data)} bytes, not {ends[-1]}")
    except (struct.error, ValueError) as exc:
        raise SerdeError(
            f"a record of partial aggregates cannot be read ({exc}): {data!r:.100}; something else wrote to this topic, or "
            "another version of Penstock"
        ) from exc
    return PackedRecord(BytesColumn(data, ends[: count + 1]), BytesColumn(data, ends[count:]), times)
