"""The systems under test: each is a program that gets its orders from the environment, made ready on first use.

Every program reads ``APP_ID``, ``STATE_DIR``, ``BOOTSTRAP``, ``TOPIC_IN``, ``TOPIC_TABLE``, ``TOPIC_OUT``,
``GUARANTEE`` (``at_least_once`` or ``exactly_once_v2``), ``COMMIT_MS`` and ``THREADS``, takes the workload as its
argument, and ends on SIGTERM. A directory of peers holds ``kafka-streams/`` (Maven), ``quix/app.py`` and
``faust/app.py``; ``benchmarks/peers`` is one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import oracle

PEERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[1]
GUARANTEES = {"ALO": "at_least_once", "EOS": "exactly_once_v2"}
WORKLOADS = ("ysb", "wordcount", "enrich", "keyed-count")
DATA_SETS = {"ysb": "events", "wordcount": "lines", "enrich": "clicks", "keyed-count": "clicks"}
TABLES = {"ysb": ("ads", 1_000), "enrich": ("users", 1_000_000)}
REQUIREMENTS = {
    "quix": ["quixstreams==3.28.1"],
    "faust": ["faust-streaming[rocksdict]==0.15.3", "cramjam", "lz4"],
}
JVM = ["-Xms1g", "-Xmx2g"]

Sizes = tuple[int, int]
Command = list[str]


class UnavailableError(Exception):
    """A system cannot be run here; the message says why and what to do. Its rows are void."""


@dataclasses.dataclass(frozen=True)
class System:
    """One system. ``make_ready(work, peers)`` builds what it needs under ``work`` and returns its command, to which
    the workload's name in ``words`` is added. ``sizes`` names the workloads that it is run on."""

    name: str
    make_ready: Callable[[Path, Path], Command]
    sizes: dict[str, Sizes]
    guarantees: tuple[str, ...] = ("ALO", "EOS")
    words: dict[str, str] = dataclasses.field(default_factory=dict)
    count_key: Callable[[bytes], str] = oracle.text_key
    count_value: Callable[[bytes], int] = oracle.big_endian


def _execute(command: list[str], log: Path, advice: str) -> None:
    with log.open("ab") as output:
        if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode:
            raise UnavailableError(f"'{' '.join(command[:4])} …' failed, see {log}: {advice}")


def _penstock(work: Path, peers: Path) -> Command:
    return [sys.executable, "-m", "benchmarks.penstock_app"]


def _kafka_streams(work: Path, peers: Path) -> Command:
    """Built once per state of the sources, in a copy, so that a directory of peers may be read-only."""
    source = peers / "kafka-streams"
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise UnavailableError("no mvn or java found: install Maven and a JDK of 17 or 21")
    files = sorted(
        path for path in source.rglob("*") if path.suffix in {".java", ".xml"} and "target" not in path.parts
    )
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    build = work / "kafka-streams" / mark
    if not (build / "ready").exists():
        shutil.rmtree(build, ignore_errors=True)
        for path in files:
            copy = build / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        command = ["mvn", "-q", "-B", "-f", str(build / "pom.xml"), "package"]
        _execute(command, work / "kafka-streams.log", "check the network and Maven's settings, then run it again")
        (build / "ready").touch()
    return ["java", *JVM, "-cp", f"{build}/target/lib/*:{build}/target/classes", "peers.Main"]


def _python_peer(name: str) -> Callable[[Path, Path], Command]:
    def make_ready(work: Path, peers: Path) -> Command:
        environment = work / "venvs" / name
        python = environment / "bin" / "python"
        if not (environment / "ready").exists():
            shutil.rmtree(environment, ignore_errors=True)
            log = work / f"{name}.log"
            _execute([sys.executable, "-m", "venv", str(environment)], log, "install Python's venv module")
            install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *REQUIREMENTS[name]]
            _execute(install, log, "check the network and pip's settings, then run it again")
            (environment / "ready").touch()
        return [str(python), str(peers / name / "app.py")]

    return make_ready


LARGE: dict[str, Sizes] = {
    "ysb": (1_000_000, 4_000_000),
    "wordcount": (125_000, 500_000),
    "enrich": (500_000, 2_000_000),
    "keyed-count": (500_000, 2_000_000),
}
SMALL: dict[str, Sizes] = {
    "ysb": (50_000, 200_000),
    "wordcount": (12_500, 50_000),
    "keyed-count": (50_000, 200_000),
}
PENSTOCK = System("penstock", _penstock, LARGE)
KAFKA_STREAMS = System("kafka-streams", _kafka_streams, LARGE, words={"keyed-count": "count"})
QUIX = System(
    "quix",
    _python_peer("quix"),
    SMALL,
    ("ALO",),
    words={"keyed-count": "count"},
    count_key=oracle.piped_key,
    count_value=oracle.json_count,
)
FAUST = System(
    "faust",
    _python_peer("faust"),
    {"keyed-count": (20_000, 80_000)},
    ("ALO",),
    words={"keyed-count": "count"},
    count_value=oracle.json_count,
)
SYSTEMS = {system.name: system for system in (PENSTOCK, KAFKA_STREAMS, QUIX, FAUST)}
