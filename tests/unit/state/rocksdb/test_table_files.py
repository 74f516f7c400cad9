"""Table files: order is checked, files split by size, and what goes in comes out of a database."""

from __future__ import annotations

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
