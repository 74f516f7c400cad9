"""murmur2 equals Kafka's, by the published vectors."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.state.serdes.partitioner import murmur2, partition_for, partitions_for, partitions_in

VECTORS = {
    b"": 275646681,
    b"21": -973932308,
    b"foobar": -790332482,
    b"abc": 479470107,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_partition_is_the_positive_hash_modulo_the_count() -> None:
    assert partition_for(b"foobar", 12) == 6
    assert partition_for(b"", 7) == 275646681 % 7
    assert {partition_for(b"%d" % i, 5) for i in range(100)} == set(range(5))


def test_many_keys_at_once_are_as_one_by_one() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.randrange(12)) for _ in range(500)] + list(VECTORS)
    for some in (keys, keys[:3], []):
        assert partitions_for(some, 7) == [partition_for(k, 7) for k in some]


@pytest.mark.parametrize(("start", "stop"), [(0, 500), (3, 490), (5, 9), (2, 2)])
def test_keys_in_one_buffer_are_as_one_by_one(start: int, stop: int) -> None:
    rng = random.Random(2)
    keys = [rng.randbytes(rng.randrange(12)) for _ in range(500)]
    offsets = np.cumsum([0, *map(len, keys)])[start : stop + 1]
    assert partitions_in(b"".join(keys), offsets, 7).tolist() == [partition_for(k, 7) for k in keys[start:stop]]
