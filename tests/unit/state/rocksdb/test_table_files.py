"""Table files: order is checked, files split by size, and what goes in comes out of a database."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.machine.atomic_files import sha256_of
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.table_files import write_sst, write_ssts

ENTRIES = [(b"%06d" % i, b"%050d" % (i * i)) for i in range(3000)]


def test_a_store_split_over_files_is_one_store_again(tmp_path: Path) -> None:
    files = write_ssts(tmp_path, "s", iter(ENTRIES), position=b"p", file_bytes=20_000)
    assert len(files) > 3
    assert sum(f.entries for f in files) == len(ENTRIES)
    assert [f.name for f in files[:2]] == ["s-00000.sst", "s-00001.sst"]
    assert (files[0].first_key, files[-1].last_key) == (ENTRIES[0][0], ENTRIES[-1][0])
    for file in files:
        assert (file.size_bytes, file.sha256) == (
            (tmp_path / file.name).stat().st_size,
            sha256_of(tmp_path / file.name),
        )
    backend = RocksDBBackend(tmp_path / "db", ["a"])
    backend.ingest("a", [tmp_path / f.name for f in files])
    assert (backend.position("a"), list(backend.range("a", None, None))) == (b"p", ENTRIES)
    backend.close()


def test_a_large_store_is_split_into_as_many_files_as_it_takes(tmp_path: Path) -> None:
    """An entry passes through the same few frames in the last file as in the first one."""
    depths: list[int] = []

    def entries() -> Iterator[tuple[bytes, bytes]]:
        for i in range(60):
            frame, depth = inspect.currentframe(), 0
            while frame is not None:
                frame, depth = frame.f_back, depth + 1
            depths.append(depth)
            yield b"%06d" % i, b"v"

    files = write_ssts(tmp_path, "s", entries(), position=b"p", file_bytes=14)
    assert [file.entries for file in files] == [2] * 30
    assert depths[2] == depths[-2], "the way of an entry grows with every file"


def test_an_empty_store_is_a_file_with_the_position(tmp_path: Path) -> None:
    (file,) = write_ssts(tmp_path, "s", [], position=b"p")
    assert (file.entries, file.first_key, file.last_key) == (0, None, None)
    backend = RocksDBBackend(tmp_path / "db", ["a"])
    backend.ingest("a", [tmp_path / file.name], move=True)
    assert (backend.position("a"), list(backend.range("a", None, None))) == (b"p", [])
    assert not (tmp_path / file.name).exists()
    backend.close()


@pytest.mark.parametrize("keys", [[b"a", b"a"], [b"b", b"a"], [b"\x80", b"\x7f"], [b"a\x00", b"a"]])
def test_keys_that_do_not_ascend_are_refused_and_leave_no_file(tmp_path: Path, keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="ascend strictly"):
        write_sst(tmp_path / "s.sst", [(k, b"v") for k in keys])
    assert not (tmp_path / "s.sst").exists()


def test_a_file_that_begins_before_the_last_one_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ascend strictly"):
        write_ssts(tmp_path, "s", [(b"b", b"v"), (b"a", b"v")], position=b"p", file_bytes=1)


def test_a_file_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to write"):
        write_sst(tmp_path / "s.sst", [])
