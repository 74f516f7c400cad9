"""A new project works as it is made."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

import penstock
from penstock.state.errors import SettingsError, UserError
from penstock.streams.cli.main import build_parser, main
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


def test_its_test_passes_inside_another_project_that_uses_pytest(tmp_path: Path) -> None:
    """The tutorial makes the project in the clone, whose settings of pytest are not the project's."""
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --import-mode=importlib\n")
    project = make_project(tmp_path, "shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_its_settings_are_a_workers(tmp_path: Path) -> None:
    settings = load_settings(str(make_project(tmp_path, "shop") / "penstock.toml"), env={})
    assert (settings.application_id, settings.guarantee) == ("shop", "exactly_once")


def test_its_image_runs_its_worker_with_its_settings(tmp_path: Path) -> None:
    project = make_project(tmp_path, "shop")
    dockerfile = (project / "Dockerfile").read_text()
    words = json.loads(re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)[0])
    args = build_parser(words[1:]).parse_args(words[1:])
    assert (args.topology, args.config) == ("shop:topology", "penstock.toml")
    copied = [path for line in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE) for path in line.split()]
    assert [path for path in copied if path != "wheel[s]" and not (project / path).exists()] == []
    assert {"shop.py", "penstock.toml", "requirements.txt"} <= set(copied)
    variables = dict(
        word.split("=") for line in re.findall(r"^ENV (.*)$", dockerfile, re.MULTILINE) for word in line.split()
    )
    settings = load_settings(str(project / "penstock.toml"), env=variables)
    assert (settings.state_dir, settings.metrics_port, settings.metrics_host) == ("/var/lib/shop", 9400, "0.0.0.0")


def test_its_image_passes_the_linter(tmp_path: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    command = [str(hadolint), str(make_project(tmp_path, "shop") / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_its_pipeline_installs_what_it_requires_and_runs_its_test(tmp_path: Path) -> None:
    project = make_project(tmp_path, "shop")
    (job,) = YAML(typ="safe").load(project / ".github" / "workflows" / "test.yaml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["pip install --find-links wheels -r requirements.txt pytest", "python -m pytest"]
    assert Requirement((project / "requirements.txt").read_text().strip()).specifier.contains(penstock.__version__)


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
