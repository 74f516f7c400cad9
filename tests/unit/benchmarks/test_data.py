"""The data sets stay what they are: the published figures rest on them."""

from __future__ import annotations

import hashlib

import pytest

from benchmarks import data

BASE_MS = 1_795_219_200_000

DIGESTS = {
    "ads": "8a118aa22fec8eae",
    "events": "c1ae53f57d394dab",
    "lines": "86397da5d99c241e",
    "users": "93b4a62025d352ee",
    "clicks": "a40dc25f59559faf",
}


def digest(data_set: str, records: int) -> str:
    """Of all keys, values and timestamps."""
    whole = hashlib.sha256()
    for block in data.DATA_SETS[data_set](records, BASE_MS):
        keys = block.keys or [b""] * len(block.values)
        for key, value, timestamp in zip(keys, block.values, block.timestamps, strict=True):
            whole.update(b"%d:%b%d:%b%d" % (len(key), key, len(value), value, timestamp))
    return whole.hexdigest()[:16]


@pytest.mark.parametrize("data_set", DIGESTS)
def test_bytes_are_those_of_the_published_runs(data_set: str) -> None:
    assert digest(data_set, 1_000) == DIGESTS[data_set]


@pytest.mark.parametrize("data_set", ["events", "lines", "clicks", "users"])
def test_a_shorter_set_is_a_prefix_of_a_longer_one(data_set: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "BLOCK", 5_000)  # what is asked is how blocks are cut, not how long they are
    cut = data.BLOCK + 7
    short, long = (list(data.DATA_SETS[data_set](n, BASE_MS)) for n in (cut, cut + 3_000))
    rows = [
        [
            row
            for block in blocks
            for row in zip(block.keys or block.values, block.values, block.timestamps, strict=True)
        ]
        for blocks in (short, long)
    ]
    assert len(rows[0]) == cut
    assert rows[1][:cut] == rows[0]
