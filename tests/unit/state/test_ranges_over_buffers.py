"""Ranges of a RocksDB backend whose buffer has entries: the same as those of the memory backend, from the buffer and the
database together, without a write-out."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.state.rocksdb import rocksdb_backend
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import Puts, StoreWrites

STORES = ["s"]


def some_writes(rng: random.Random, number: int, *, drops: bool) -> StoreWrites:
    keys = sorted({b"%02d" % rng.randrange(40) for _ in range(rng.randrange(1, 15))})
    values = [rng.choice([None, b"%d" % number]) for _ in keys]
    return StoreWrites("s", Puts(keys, values), b"%d" % number, b"%02d" % rng.randrange(12) if drops else None)


@pytest.mark.parametrize("seed", range(40))
def test_ranges_join_buffer_and_database(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(rocksdb_backend, "SEARCHES_MAX", 1_000)
    model, real = MemoryBackend(STORES), RocksDBBackend(tmp_path / "db", STORES)
    written_out = 0
    write_out = RocksDBBackend._write_out

    def counting(self: RocksDBBackend, stores: list[str]) -> None:
        nonlocal written_out
        written_out += 1
        write_out(self, stores)

    monkeypatch.setattr(RocksDBBackend, "_write_out", counting)
    for number in range(12):
        write = some_writes(rng, number, drops=number % 4 == 3)
        model.commit([write])
        real.commit([write])
        if rng.random() < 0.3:
            real.flush()
        before = written_out
        for _ in range(20):
            low, high = (rng.choice([None, b"%02d" % rng.randrange(42), b"0", b"1"]) for _ in range(2))
            reverse = rng.random() < 0.5
            found = list(real.range("s", low, high, reverse=reverse))
            assert found == list(model.range("s", low, high, reverse=reverse)), (low, high, reverse)
        assert written_out == before
    real.close()


@pytest.mark.parametrize("setting", ["SEARCHES_MAX", "SEARCHED_MAX"])
def test_many_ranges_and_long_ones_write_the_buffer_out(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_backend, setting, 2)
    real = RocksDBBackend(tmp_path / "db", STORES)
    real.commit([StoreWrites("s", Puts([b"a", b"b", b"c"], [b"1", b"2", b"3"]), b"1", None)])
    buffer = real._buffers["s"]
    assert list(real.range("s", b"a", b"c")) == [(b"a", b"1"), (b"b", b"2")]
    assert buffer.changed
    assert list(real.range("s", b"b", None)) == [(b"b", b"2"), (b"c", b"3")]
    assert buffer.changed
    assert len(list(real.range("s", None, None))) == 3
    assert not buffer.changed
    real.close()
