"""Files that are there in whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.state.machine.atomic_files import environment_fault, replace_file, sha256_of


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    assert replace_file(tmp_path / "f", b"old")
    assert replace_file(tmp_path / "f", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"new")]


def test_the_first_one_wins_where_only_absent_files_are_made(tmp_path: Path) -> None:
    assert replace_file(tmp_path / "f", b"first", only_if_absent=True)
    assert not replace_file(tmp_path / "f", b"second", only_if_absent=True)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"first")]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(OSError, match="f"):
        replace_file(tmp_path / "f", b"data")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_checksum_is_sha_256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_of(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(("code", "remedy"), [(errno.ENOSPC, "df -h"), (errno.EIO, "check the disk")])
def test_a_fault_says_what_mends_it(code: int, remedy: str) -> None:
    fault = environment_fault(OSError(code, "no"), "write the thing")
    assert "write the thing" in str(fault)
    assert remedy in str(fault)
