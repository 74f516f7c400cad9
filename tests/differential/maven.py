"""The other systems' programs: built with Maven once for all clones, and again when their sources change; Beam's Python is
installed. Both are in Penstock's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from penstock.streams.kafka.embedded.java import find_java
from penstock.streams.kafka.embedded.paths import cache_dir

HERE = Path(__file__).parent

BEAM_VERSION = "2.77.0"


class CannotBuild(Exception):
    """Why a Java program cannot be built here, and what to do."""


def java_command(project: str, main: str, *options: str) -> list[str]:
    """The command that runs a project of this folder, which is built first if it has to be. Raises ``CannotBuild``."""
    # Named by what it is built of: what a process of another clone runs stays as it is.
    folder = _built() / f"{project}-{_digest(HERE / project)[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:  # several processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists() or not all(Path(jar).exists() for jar in _jars(folder)):
            _build(HERE / project, folder)
            (folder / "built").touch()
    path = os.pathsep.join([str(folder / "classes"), *_jars(folder)])
    return [str(find_java().path), *options, "-cp", path, main]


def beam_command(*, version: str = BEAM_VERSION) -> list[str]:
    """The command that runs Beam's side: Beam has a Python environment of its own, as its dependencies are many. Raises
    ``CannotBuild``."""
    folder = _built() / f"beam-{version}-{sys.implementation.cache_tag}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "installed"
        if not stamp.exists():
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run([str(folder / "bin" / "pip"), "install", "--quiet", f"apache-beam=={version}"])
            stamp.write_text(version)
    return [str(folder / "bin" / "python"), str(HERE / "beam" / "main.py")]


def _built() -> Path:
    return cache_dir() / "differential"


def _jars(folder: Path) -> list[str]:
    """In Maven's own cache, which may have been emptied since."""
    return (folder / "classpath.txt").read_text().strip().split(os.pathsep)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise CannotBuild(
            f"{' '.join(command)} failed (it fetches packages from PyPI or Maven Central):\n{done.stdout}"
        )


def _digest(project: Path) -> str:
    files = sorted(p for p in project.rglob("*") if p.suffix in (".java", ".xml"))
    return hashlib.sha256(b"\0".join(str(p.name).encode() + p.read_bytes() for p in files)).hexdigest()


def _build(project: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotBuild(
            f"no mvn on the search path, which builds {project}; install it (Debian: apt-get install maven; macOS: brew "
            "install maven)"
        )
    shutil.rmtree(folder / "classes", ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(project / "pom.xml"), f"-Dbuild.folder={folder}", "compile"]
    command += ["dependency:build-classpath", f"-Dmdep.outputFile={folder / 'classpath.txt'}"]
    _run(command)
