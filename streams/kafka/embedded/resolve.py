"""Resolve Maven coordinates to a folder of verified jars.

Rules: a complete folder needs no network. Jars appear in the cache by one rename, after every sum was checked. Two
processes that resolve at once take turns. A jar with a different sum is never passed to Java.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka.embedded.jars import COORDINATES, JAR_SHA256, KAFKA_VERSION
from penstock.streams.kafka.embedded.java import find_java
from penstock.streams.kafka.embedded.paths import cache_dir, ensure_dir, exclusive_lock

_RESOLVE_TIMEOUT_S = 900.0
_CHECKED = ".checked"
# Ivy's cache and the jars are there at the same time for a moment; the class archive follows.
FREE_MIN_BYTES = 160 * 1024 * 1024


def kafka_jars(java: Path) -> Path:
    """Return the folder with the broker's jars, fetched on first use (about 45 MB).

    Sizes are compared at every call, sums if the folder is new or a jar changed since.

    Raises ``EnvironmentFault`` without Ivy, network or space, or if a jar's sum is not the recorded one.
    """
    folder = cache_dir() / f"kafka-{KAFKA_VERSION}"
    with exclusive_lock(cache_dir() / f"kafka-{KAFKA_VERSION}.lock"):
        if folder.is_dir():
            _check_once(folder)
        else:
            _fetch(java, folder)
    return folder


def check_sums(folder: Path, expected: Mapping[str, str]) -> None:
    """Check that ``folder`` holds exactly the jars of ``expected``, with these SHA-256 sums.

    Raises ``EnvironmentFault`` with the first difference and the command that fixes it.
    """
    remedy = f"Run: rm -r '{folder}' and try again; if it comes back, the repository served another file"
    found = {path.name for path in folder.glob("*.jar")}
    if missing := sorted(expected.keys() - found):
        raise EnvironmentFault(f"{folder} lacks {', '.join(missing)}. {remedy}")
    if foreign := sorted(found - expected.keys()):
        raise EnvironmentFault(f"{folder} holds jars that do not belong there: {', '.join(foreign)}. {remedy}")
    for name, wanted in sorted(expected.items()):
        with (folder / name).open("rb") as handle:
            seen = hashlib.file_digest(handle, "sha256").hexdigest()
        if seen != wanted:
            raise EnvironmentFault(f"{folder / name} has the SHA-256 sum {seen}, not the recorded {wanted}. {remedy}")


def _fingerprint(folder: Path) -> str:
    stats = ((path.name, path.stat()) for path in sorted(folder.glob("*.jar")))
    seen = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    wanted = "\n".join(f"{name} {digest}" for name, digest in sorted(JAR_SHA256.items()))
    return hashlib.sha256(f"{seen}\n{wanted}".encode()).hexdigest()


def _check_once(folder: Path) -> None:
    """Check sums once: hashing all jars would slow every start, so a marker records what was checked."""
    marker = folder / _CHECKED
    fingerprint = _fingerprint(folder)
    if marker.is_file() and marker.read_text() == fingerprint:
        return
    check_sums(folder, JAR_SHA256)
    try:
        marker.write_text(fingerprint)
    except OSError as exc:
        raise EnvironmentFault(
            f"cannot write to {folder}: {exc.strerror or exc}. Make it writable or free some space, or name another "
            "folder: PENSTOCK_CACHE=/path penstock up"
        ) from exc


def _fetch(java: Path, folder: Path) -> None:
    ensure_dir(folder.parent)
    if shutil.disk_usage(folder.parent).free < FREE_MIN_BYTES:
        raise EnvironmentFault(_no_space())
    print(f"penstock: fetching Apache Kafka {KAFKA_VERSION} (45 MB, once) into {folder}", file=sys.stderr)
    scratch = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
    try:
        jars = scratch / "jars"
        _run_ivy(java, scratch, jars)
        _check_once(jars)
        os.replace(jars, folder)
    except OSError as exc:
        raise EnvironmentFault(
            f"cannot fetch Kafka's jars into {folder.parent}: {exc.strerror or exc}. Free some space there (160 MB "
            "while fetching), or name another folder: PENSTOCK_CACHE=/path penstock up"
        ) from exc
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run_ivy(java: Path, scratch: Path, jars: Path) -> None:
    """Run Ivy with its caches and user folder in ``scratch``, so a broken download cannot spoil a later run."""
    dependencies = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(rev)} conf='default->default'/>"
        for org, name, rev in COORDINATES
    )
    module = scratch / "ivy.xml"
    module.write_text(
        "<ivy-module version='2.0'><info organisation='penstock' module='embedded-kafka'/>"
        f"<configurations><conf name='default'/></configurations><dependencies>{dependencies}</dependencies>"
        "</ivy-module>"
    )
    command = [str(java), "-Xmx256m", f"-Divy.default.ivy.user.dir={scratch / 'user'}"]
    command += ["-jar", str(_ivy_jar())]
    command += ["-cache", str(scratch / "cache")]
    command += ["-ivy", str(module), "-confs", "default", "-warn"]
    command += ["-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]"]
    if settings := os.environ.get("PENSTOCK_IVY_SETTINGS"):
        command += ["-settings", settings]
    log = scratch / "ivy.log"
    with log.open("wb") as out:
        try:
            code = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, timeout=_RESOLVE_TIMEOUT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code != 0 or not jars.is_dir():
        raise EnvironmentFault(_ivy_failure(log.read_text(errors="replace"), code))


def _ivy_failure(log: str, code: int) -> str:
    if "No space left on device" in log:
        return _no_space()
    hints = ("UnknownHost", "refused", "timed out", "unreachable", "SSL", "Server access", "not found")
    lines = [line.strip() for line in log.splitlines() if any(hint in line for hint in hints)]
    why = lines[0] if lines else f"exit code {code}"
    return (
        f"could not fetch Apache Kafka {KAFKA_VERSION} by Maven coordinates ({why}). The first start needs the network; "
        "connect and run `penstock up` again. Behind a proxy: JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST "
        "-Dhttps.proxyPort=PORT' penstock up. With a mirror: PENSTOCK_IVY_SETTINGS=/path/ivysettings.xml penstock up. "
        f"Offline: copy {cache_dir() / f'kafka-{KAFKA_VERSION}'} from a machine that has it"
    )


def _no_space() -> str:
    return (
        f"no space in {cache_dir()} for Kafka's jars. Free {FREE_MIN_BYTES // 2**20} MB there, or name another folder: "
        "PENSTOCK_CACHE=/path penstock up"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # found, not imported: only the jar next to it is needed
    if spec is None or spec.origin is None:
        raise EnvironmentFault(
            "the first start fetches Kafka with the Ivy that ships inside pyspark, which is not installed. "
            "Run: pip install 'penstock[spark]'"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise EnvironmentFault(
            f"no jars/ivy-*.jar in {Path(spec.origin).parent}. Run: pip install --force-reinstall 'pyspark>=4.0,<4.1'"
        )
    return jars[-1]


def _print_sums() -> None:
    """Resolve without the cache and print the table for ``jars.py``."""
    with tempfile.TemporaryDirectory(prefix="penstock-sums-") as scratch:
        jars = Path(scratch) / "jars"
        _run_ivy(find_java().path, Path(scratch), jars)
        for path in sorted(jars.glob("*.jar")):
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


if __name__ == "__main__":
    _print_sums()
