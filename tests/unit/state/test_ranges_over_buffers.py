"""Ranges of a RocksDB backend whose buffer has entries: the same as those of the memory backend, from the buffer and the
database together, without a write-out."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.state.rocksdb import rocksdb_backend
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.tuning import RocksDBOptions
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
    monkeypatch.setattr(rocksdb_backend, "FIRST_PART", rng.choice([1, 3, 32]))
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


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_stays_of_one_state(reverse: bool, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read, entries are looked up and forgotten, other ranges are read, and buffers are written out."""
    rng = random.Random(seed)
    monkeypatch.setattr(rocksdb_backend, "FIRST_PART", rng.choice([1, 2, 32]))
    monkeypatch.setattr(rocksdb_backend, "LAST_PART", rng.choice([1, 3, 4_096]))
    model, real = MemoryBackend(STORES), RocksDBBackend(tmp_path / "db", STORES, RocksDBOptions(entries_bytes=1 << 20))
    for number in range(8):
        write = some_writes(rng, number, drops=number % 4 == 3)
        model.commit([write])
        real.commit([write])
        found = []
        for entry in real.range("s", None, None, reverse=reverse):
            found.append(entry)
            action = rng.random()
            if action < 0.1:
                real.flush()
            elif action < 0.3:
                real.get_many("s", [b"%02d" % rng.randrange(42)])
            elif action < 0.4:
                real._buffers["s"].entries.shrink(0)
            elif action < 0.6:
                next(real.range("s", b"%02d" % rng.randrange(42), None), None)
        assert found == list(model.range("s", None, None, reverse=reverse))
    real.close()


def test_a_reader_that_stops_early_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    buffered = RocksDBBackend._buffered

    def counting(self: RocksDBBackend, *args: Any) -> Any:
        found = buffered(self, *args)
        asked.append(len(found[0]))
        return found

    monkeypatch.setattr(RocksDBBackend, "_buffered", counting)
    real = RocksDBBackend(tmp_path / "db", STORES)
    keys = [b"%05d" % number for number in range(20_000)]
    real.commit([StoreWrites("s", Puts(keys, keys), b"1", None)])
    assert next(real.range("s", None, None)) == (keys[0], keys[0])
    assert next(real.range("s", None, None, reverse=True)) == (keys[-1], keys[-1])
    assert asked == [32, 32]
    assert [key for key, _ in real.range("s", None, None)] == keys
    assert max(asked) == 4_096 and sum(asked[2:]) == len(keys)
    real.close()
