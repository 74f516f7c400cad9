"""A new project works as it is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.state.errors import SettingsError, UserError
from penstock.streams.cli.main import main
from penstock.streams.cli.new import make_project
from penstock.streams.worker.load_settings import load_settings


def test_its_test_passes_and_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "shop"]) == 0
    assert "cd shop && python -m pytest" in capsys.readouterr().out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path / "shop", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    module = tmp_path / "shop" / "shop.py"
    module.write_text(module.read_text().replace('!= "test"', '!= "other"'))
    done = subprocess.run(command, cwd=tmp_path / "shop", capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout


def test_its_settings_are_a_workers(tmp_path: Path) -> None:
    settings = load_settings(str(make_project(tmp_path, "shop") / "penstock.toml"), env={})
    assert (settings.application_id, settings.guarantee) == ("shop", "exactly_once")


@pytest.mark.parametrize("name", ["", "Shop", "1shop", "my-shop", "../shop", "penstock", "a" * 51])
def test_a_name_that_no_module_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot name a project"):
        make_project(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with pytest.raises(UserError, match="already exists"):
        make_project(tmp_path, "shop")
    assert list((tmp_path / "shop").iterdir()) == []
