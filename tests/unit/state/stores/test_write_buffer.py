"""The write buffer of a RocksDB backend: when it is written out, what it saves, and how much memory it takes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.state.errors import StateCorruptedError
from penstock.state.rocksdb import entry_layout, rocksdb_backend
from penstock.state.rocksdb.rocksdb_backend import PENDING_FILE, RocksDBBackend
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.state.stores.entry_cache import EntryMap, WrittenEntries
from penstock.state.stores.store import Puts, StoreWrites

BOUND = 2 << 20
SMALL = RocksDBOptions(entries_bytes=BOUND, block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)


def key(number: int) -> bytes:
    return b"%08d" % number


@pytest.fixture(params=["as built", "in Python"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocksDBBackend]:
    if request.param == "in Python":
        monkeypatch.setattr(rocksdb_backend, "new_entries", WrittenEntries)
    backend = RocksDBBackend(tmp_path / "db", ["a", "b"], SMALL)
    yield backend
    backend.close()


def entries_of(backend: RocksDBBackend) -> list[EntryMap]:
    return [buffer.entries for buffer in backend._buffers.values()]


def table_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.sst"))


def test_commits_reach_no_file_until_they_are_many(opened: RocksDBBackend, tmp_path: Path) -> None:
    for number in range(20):
        opened.commit([StoreWrites("a", [(key(n), b"%d" % number) for n in range(100)], b"p%d" % number)])
    assert table_files(tmp_path / "db") == []
    opened.flush()
    assert len(table_files(tmp_path / "db")) == 1
    assert opened.get_many("a", [key(0), key(99), key(100)]) == [b"19", b"19", None]


def test_to_ask_whether_a_store_is_empty_writes_nothing_out(opened: RocksDBBackend, tmp_path: Path) -> None:
    assert opened.is_empty("a")
    opened.commit([StoreWrites("a", [(key(1), b"v")], b"p")])
    assert not opened.is_empty("a") and opened.is_empty("b")
    assert table_files(tmp_path / "db") == []
    opened.flush()
    assert not opened.is_empty("a")


def test_memory_stays_within_the_bound_while_ten_times_as_much_is_written_and_read(opened: RocksDBBackend) -> None:
    count, part = 100_000, 1_000
    for start in range(0, count, part):
        keys = [key(n) for n in range(start, start + part)]
        opened.commit([StoreWrites("a", Puts(keys, [b"v" * 200] * part), b"p%d" % start)])
        assert sum(e.used_bytes for e in entries_of(opened)) <= BOUND
    for start in range(0, count, part):
        asked = [key(n * 7919 % count) for n in range(start, start + part)]
        assert opened.get_many("a", asked) == [b"v" * 200] * part
        assert sum(e.used_bytes for e in entries_of(opened)) <= BOUND
    assert opened.position("a") == b"p%d" % (count - part)


def test_two_databases_share_one_bound(opened: RocksDBBackend, tmp_path: Path) -> None:
    other = RocksDBBackend(tmp_path / "other", ["a"], SMALL)
    for start in range(0, 20_000, 1_000):
        keys = [key(n) for n in range(start, start + 1_000)]
        for backend in (opened, other):
            backend.commit([StoreWrites("a", Puts(keys, [b"v" * 200] * 1_000), b"p")])
            assert sum(e.used_bytes for e in entries_of(backend)) <= BOUND // 2
    other.close()


def test_a_crash_after_write_outs_leaves_the_store_at_one_of_its_commits(
    opened: RocksDBBackend, tmp_path: Path
) -> None:
    for start in range(0, 15_000, 1_000):
        keys = [key(n) for n in range(start, start + 1_000)]
        opened.commit([StoreWrites("a", Puts(keys, [b"v" * 100] * 1_000), b"%d" % (start + 1_000))])
    opened._db.cancel_all_background(True)  # else a compaction may remove files while they are copied
    shutil.copytree(tmp_path / "db", tmp_path / "as a crash leaves it")
    with suppress(StateCorruptedError):  # a flush when all work in the background has ended
        opened.close()
    left = RocksDBBackend(tmp_path / "as a crash leaves it", ["a", "b"], SMALL)
    stands = int(left.position("a") or 0)
    assert stands in range(1_000, 15_001, 1_000)
    assert [k for k, _ in left.range("a", None, None)] == [key(n) for n in range(stands)]
    left.close()


def test_a_file_that_was_not_taken_in_is_removed(tmp_path: Path) -> None:
    (tmp_path / PENDING_FILE).write_bytes(b"half a file")
    backend = RocksDBBackend(tmp_path, ["a"])
    assert not (tmp_path / PENDING_FILE).exists()
    backend.close()


def table_files_written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Fills with each table file that a backend writes."""
    written: list[Path] = []

    def write_sorted(path: Path, *rest: Any) -> None:
        written.append(path)
        entry_layout.write_sorted(path, *rest)

    monkeypatch.setattr(rocksdb_backend, "write_sorted", write_sorted)
    return written


@pytest.mark.parametrize("make", [rocksdb_backend.new_entries, WrittenEntries])
def test_keys_that_are_put_once_become_files_of_several_commits(
    make: Callable[[], EntryMap], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = table_files_written(monkeypatch)
    monkeypatch.setattr(rocksdb_backend, "new_entries", make)
    backend = RocksDBBackend(tmp_path / "db", ["a"], RocksDBOptions(entries_bytes=8 << 20))
    commits, part = 150, rocksdb_backend.FILE_ENTRIES_MIN  # each of them could be a file
    for start in range(0, commits * part, part):
        keys = [key(n) for n in range(start, start + part)]
        backend.commit([StoreWrites("a", Puts(keys, [b"v" * 10] * part), b"p")])
    assert 0 < len(written) <= commits // 2.5
    backend.close()


def test_no_more_waits_to_be_written_out_than_is_allowed(tmp_path: Path) -> None:
    options = RocksDBOptions(entries_bytes=64 << 20, write_out_bytes=200_000)
    backend = RocksDBBackend(tmp_path / "db", ["a"], options)
    for start in range(0, 20_000, 1_000):
        keys = [key(n) for n in range(start, start + 1_000)]
        backend.commit([StoreWrites("a", Puts(keys, [b"v" * 10] * 1_000), b"p")])
        assert sum(e.written_bytes for e in entries_of(backend)) <= 200_000
    assert table_files(tmp_path / "db")
    asked = [key(n) for n in range(0, 20_000, 7)]
    assert backend.get_many("a", asked) == [b"v" * 10] * len(asked)
    backend.close()


def test_a_bound_below_every_key_still_lets_a_file_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = table_files_written(monkeypatch)
    part = rocksdb_backend.FILE_ENTRIES_MIN
    backend = RocksDBBackend(tmp_path / "db", ["a"])
    for below, files in ((key(0), 1), (key(1), 1), (key(1), 2)):
        start = part * len(written)
        keys = [key(n) for n in range(start, start + part)]
        backend.commit([StoreWrites("a", Puts(keys, [b"v"] * part), b"p", drop_below=below)])
        backend.flush(["a"])
        assert len(written) == files, below
    assert [k for k, _ in backend.range("a", None, None)] == [key(n) for n in range(1, 2 * part)]
    backend.close()
