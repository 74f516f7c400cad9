"""Many records in one: how partial aggregates travel through a repartition topic.

A record of the log costs a client 2 to 3 µs on either side, whatever is in it, and a partial is a few bytes. Packed, a
partial of a count costs 0.4 µs to write and 0.5 µs to read, its serdes included, so that a task may send one for every
key that it has seen since the last commit. Rows keep their order, and each its own timestamp.

Layout, big-endian: version (1) | count (4) | timestamps (8 each) | key lengths (4 each) | value lengths (4 each) | keys |
values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

from penstock.state.errors import SerdeError

VERSION = 1
ROWS_MAX = 500
"""Rows in one record: few enough that a batch of such records stays small, many enough that the record costs nothing."""
_HEAD = struct.Struct(">BI")


def pack(keys: Sequence[bytes], values: Sequence[bytes], timestamps: Sequence[int]) -> bytes:
    """The rows as one value."""
    count = len(keys)
    return b"".join(
        (
            _HEAD.pack(VERSION, count),
            struct.pack(f">{count}q", *timestamps),
            struct.pack(f">{2 * count}I", *map(len, keys), *map(len, values)),
            *keys,
            *values,
        )
    )


def unpack(data: bytes | None) -> tuple[list[bytes], list[bytes], list[int]]:
    """Keys, values and timestamps of what ``pack`` made. Raises ``SerdeError`` for anything else."""
    try:
        if data is None:
            raise ValueError("it is null")
        version, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise ValueError(f"its version is {version}")
        at = _HEAD.size
        timestamps = list(struct.unpack_from(f">{count}q", data, at))
        at += 8 * count
        lengths = struct.unpack_from(f">{2 * count}I", data, at)
        ends = list(accumulate(lengths, initial=at + 8 * count))
        if ends[-1] != len(data):
            raise ValueError(f"it has {len(data)} bytes, not {ends[-1]}")
    except (struct.error, ValueError) as exc:
        raise SerdeError(
            f"a record of partial aggregates cannot be read ({exc}): {data!r:.100}; something else wrote to this topic, or "
            "another version of Penstock"
        ) from exc
    parts = [data[a:b] for a, b in pairwise(ends)]
    return parts[:count], parts[count:], timestamps
