"""The systems under test: each is a program that gets its orders from the environment, made ready on first use.

Every program reads ``APP_ID``, ``STATE_DIR``, ``BOOTSTRAP``, ``TOPIC_IN``, ``TOPIC_TABLE``, ``TOPIC_OUT``,
``GUARANTEE`` (``at_least_once`` or ``exactly_once_v2``), ``COMMIT_MS`` and ``THREADS``, takes the workload as its
argument, and ends on SIGTERM. A directory of peers holds ``kafka-streams/`` and ``flink/`` (Maven), ``quix/app.py``,
``faust/app.py`` and ``spark/app.py``; ``benchmarks/peers`` is one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import platformdirs

from benchmarks import oracle

PEERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).parents[1]
GUARANTEES = {"ALO": "at_least_once", "EOS": "exactly_once_v2"}
REQUIREMENTS = {
    "quix": ["quixstreams==3.28.1"],
    "faust": ["faust-streaming[rocksdict]==0.15.3", "cramjam", "lz4"],
}
Command = list[str]


class UnavailableError(Exception):
    """A system cannot be run here; the message says why and what to do. Its rows are void."""


@dataclasses.dataclass(frozen=True)
class System:
    """One system. ``make_ready(work, peers)`` builds what it needs under ``work`` and returns its command, to which
    the workload's name in ``words`` is added. ``program`` is how workloads name it, one for all its settings;
    ``environment`` holds these."""

    name: str
    program: str
    make_ready: Callable[[Path, Path], Command]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
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


def _spark(work: Path, peers: Path) -> Command:
    if importlib.util.find_spec("pyspark") is None:
        raise UnavailableError("no pyspark found: install penstock[spark]")
    return [sys.executable, str(peers / "spark" / "app.py")]


def _maven_peer(name: str, *java: str) -> Callable[[Path, Path], Command]:
    """Built once per state of the sources, in a copy, so that a directory of peers may be read-only. ``java``: options, and
    the class that runs."""

    def make_ready(work: Path, peers: Path) -> Command:
        source = peers / name
        if shutil.which("mvn") is None or shutil.which("java") is None:
            raise UnavailableError("no mvn or java found: install Maven and a JDK of 17 or 21")
        files = sorted(
            path for path in source.rglob("*") if path.suffix in {".java", ".xml"} and "target" not in path.parts
        )
        mark = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
        build = work / name / mark
        if not (build / "ready").exists():
            shutil.rmtree(build, ignore_errors=True)
            for path in files:
                copy = build / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
            command = ["mvn", "-q", "-B", "-f", str(build / "pom.xml"), "package"]
            _execute(command, work / f"{name}.log", "check the network and Maven's settings, then run it again")
            (build / "ready").touch()
        return ["java", "-cp", f"{build}/target/lib/*:{build}/target/classes", *java]

    return make_ready


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


# What Kafka Streams' own documents advise for throughput: a cache for the whole working set (memory management), larger
# batches and fetches (configs of clients), RocksDB's buffers and block cache (RocksDBConfigSetter), a heap that holds it.
KAFKA_STREAMS_TUNED = {
    "CACHE_BYTES": str(256 << 20),
    "KS_EXTRA": ";".join(
        (
            "producer.linger.ms=100",
            "producer.batch.size=262144",
            "producer.buffer.memory=134217728",
            "consumer.max.poll.records=5000",
            "consumer.fetch.min.bytes=65536",
            "consumer.max.partition.fetch.bytes=8388608",
            "buffered.records.per.partition=20000",
            "rocksdb.config.setter=peers.LargerBuffers",
        )
    ),
    "JDK_JAVA_OPTIONS": "-Xms2g -Xmx3g",
}
PENSTOCK_ROWS = {"FUNCTIONS": "rows", "PENSTOCK_NATIVE": "off", "PENSTOCK_COLUMNS": "off"}
_COUNT = {"keyed-count": "count"}
PENSTOCK = System("penstock", "penstock", _penstock)
KAFKA_STREAMS = System(
    "kafka-streams",
    "kafka-streams",
    _maven_peer("kafka-streams", "peers.Main"),
    {"JDK_JAVA_OPTIONS": "-Xms1g -Xmx2g"},
    words=_COUNT,
)
FLINK = System(
    "flink",
    "flink",
    _maven_peer(
        "flink",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "peers.FlinkSql",
    ),
    {"JDK_JAVA_OPTIONS": "-Xms1g -Xmx3g", "FLINK_BACKEND": "hashmap"},
    guarantees=("ALO",),
)
"""Nexmark and the shop only (``flink_sql``). The heap holds its state unless that is in RocksDB."""
QUIX = System(
    "quix",
    "quix",
    _python_peer("quix"),
    guarantees=("ALO",),
    words=_COUNT,
    count_key=oracle.piped_key,
    count_value=oracle.json_count,
)
FAUST = System(
    "faust", "faust", _python_peer("faust"), guarantees=("ALO",), words=_COUNT, count_value=oracle.json_count
)
_IVY = str(platformdirs.user_cache_path("penstock") / "ivy")
SPARK = System("spark", "spark", _spark, {"IVY_DIR": _IVY}, guarantees=("ALO",))
SYSTEMS = {
    system.name: system
    for system in (
        PENSTOCK,
        dataclasses.replace(PENSTOCK, name="penstock-rows", environment=PENSTOCK_ROWS),
        KAFKA_STREAMS,
        dataclasses.replace(KAFKA_STREAMS, name="kafka-streams-tuned", environment=KAFKA_STREAMS_TUNED),
        QUIX,
        dataclasses.replace(QUIX, name="quix-tuned", environment={"LINGER_MS": "50", "QUEUED_MESSAGES": "200000"}),
        FAUST,
        SPARK,
    )
}
DEFAULT_SYSTEMS = ("penstock", "penstock-rows", "kafka-streams", "kafka-streams-tuned", "quix", "faust")
