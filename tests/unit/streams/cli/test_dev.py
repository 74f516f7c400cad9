"""Which files ``penstock dev`` watches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.streams.cli import dev
from penstock.streams.cli.dev import _command, changed, watched
from penstock.streams.cli.main import build_parser


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an environment, caches and data in it."""
    for name in (
        "shop.py",
        "penstock.toml",
        "lib/rates.py",
        "README.md",
        ".venv/x.py",
        "env/x.py",
        "lib/__pycache__/y.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    return tmp_path


def test_code_and_settings_are_watched_and_what_others_write_is_not(folder: Path) -> None:
    assert sorted(watched(folder)) == ["lib/rates.py", "penstock.toml", "shop.py"]


def test_application_is_named_by_the_option_the_environment_the_file_or_is_dev(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_APPLICATION_ID", raising=False)
    file = folder / "penstock.toml"

    def named(*options: str) -> str:
        args = build_parser(["dev"]).parse_args(["dev", "shop:topology", *options])
        command = _command(args, "b:1", "state")
        return command[command.index("--application-id") + 1]

    assert named() == named("--config", str(file)) == named("--config", "absent.toml") == "dev"
    file.write_text('[penstock]\napplication_id = "of-file"\n')
    assert named("--config", str(file)) == "of-file"
    monkeypatch.setenv("PENSTOCK_APPLICATION_ID", "of-environment")
    assert named("--config", str(file)) == "of-environment"
    assert named("--config", str(file), "--application-id", "given") == "given"


def test_files_that_are_written_made_and_removed_are_changes(folder: Path) -> None:
    before = watched(folder)
    assert changed(before, watched(folder)) == []
    os.utime(folder / "shop.py", ns=(1, 1))
    (folder / "lib" / "rates.py").unlink()
    (folder / "new.py").write_text("")
    assert changed(before, watched(folder)) == ["lib/rates.py", "new.py", "shop.py"]


def test_a_folder_without_end_is_not_read_to_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "WATCHED_MAX", 2)
    assert len(watched(folder)) == 2
