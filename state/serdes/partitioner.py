"""Which partition a key belongs to: murmur2, as Kafka's Java producer and librdkafka's ``murmur2_random`` choose it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_FEW = 8
"""For fewer keys arrays cost more than they save."""
_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """The 32-bit hash, signed as in Java."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for(key: bytes, partitions: int) -> int:
    """The partition of a key that is not null; an empty key is hashed like any other."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_for(keys: Sequence[bytes], partitions: int) -> list[int]:
    """``partition_for`` for many keys at once, many times faster than a loop."""
    if len(keys) < _FEW:
        return [partition_for(k, partitions) for k in keys]
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)), out=offsets[1:])
    found: list[int] = partitions_in(b"".join(keys), offsets, partitions).tolist()
    return found


def partitions_in(
    data: bytes | bytearray | memoryview, offsets: NDArray[np.int64], partitions: int
) -> NDArray[np.uint32]:
    """``partitions_for`` for keys in one buffer, each from its offset to the next one."""
    if len(offsets) <= _FEW:
        spans = pairwise(offsets.tolist())
        return np.array([partition_for(bytes(data[a:b]), partitions) for a, b in spans], np.uint32)
    starts, lengths = offsets[:-1], np.diff(offsets)
    cells = np.frombuffer(data, np.uint8)
    hashes = np.empty(len(lengths), np.uint32)
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        hashes[places] = _murmur2_rows(cells[starts[places][:, None] + np.arange(length)])
    return (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)


def _murmur2_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The unsigned hashes of byte strings of equal length, one per row."""
    count, length = rows.shape
    whole = length & ~3
    m = np.uint32(_M)
    h = np.full(count, _SEED ^ length, np.uint32)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    for i in range(whole // 4):
        k = words[:, i] * m
        h = (h * m) ^ ((k ^ (k >> np.uint32(24))) * m)
    if whole < length:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : length - whole] = rows[:, whole:]
        h = (h ^ rest.view("<u4")[:, 0]) * m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))
