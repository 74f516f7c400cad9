"""Start the processes of one cluster: folders, storage format, Java, and the wait until it serves.

Brokers start in a session of their own and are not child processes, so Ctrl-C at the terminal does not reach them and
the command that started them may end. The caller that starts them holds their :class:`ProcessHandle`.
"""

from __future__ import annotations

import base64
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.kafka.embedded.java import JavaRuntime, find_java
from penstock.streams.kafka.embedded.paths import ensure_dir, exclusive_lock
from penstock.streams.kafka.embedded.ports import choose_addresses, require_free
from penstock.streams.kafka.embedded.processes import (
    ProcessHandle,
    kill_processes,
    process_identity,
    stop_processes,
)
from penstock.streams.kafka.embedded.properties import (
    BrokerAddress,
    ClusterSettings,
    diagnose,
    log4j_properties,
    server_properties,
)
from penstock.streams.kafka.embedded.ready import brokers_serving
from penstock.streams.kafka.embedded.resolve import kafka_jars

# Internal topics, the metadata log and their indexes, before any record of the user.
FREE_MIN_BYTES = 128 * 1024 * 1024
_FORMAT_TIMEOUT_S = 180.0
_ARCHIVE_TIMEOUT_S = 120.0
_POLL_S = 0.05
_PROCESS_FILE = "process"
_PORT_TIMEOUT_S = 30.0  # a broker killed a moment ago may not have released its ports yet
_LOG_TAIL_BYTES = 64 * 1024
# A small serial collector and shared classes start fastest; a broker on one machine never needs a parallel
# one.
_JVM = ("-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData", "-Djava.awt.headless=true")
# sh prints the id of the broker that it leaves behind; $0 is the file for what Java itself prints.
_SPAWN = '"$@" </dev/null >>"$0" 2>&1 & echo $!'


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerLayout:
    """Everything needed to start a broker of this cluster, now or again."""

    data_dir: Path
    temporary: bool
    addresses: tuple[BrokerAddress, ...]
    java: Path
    jars: Path
    jvm_options: tuple[str, ...]
    settings: ClusterSettings

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(address.bootstrap_server for address in self.addresses)

    def broker_dir(self, address: BrokerAddress) -> Path:
        return self.data_dir / f"broker-{address.node_id}"

    def remove_if_temporary(self) -> None:
        if self.temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)


def prepare(settings: ClusterSettings) -> BrokerLayout:
    """Find Java, fetch the jars if need be, choose ports, make and format the folders. Starts nothing.

    Raises ``EnvironmentFault`` for Java, network, ports and disk; raises ``SettingsError`` if the data are of another
    number of brokers.
    """
    java = find_java()
    jars = kafka_jars(java.path)
    archive = _class_archive(java, jars, settings.start_timeout_s)
    options = (f"-XX:SharedArchiveFile={archive}",) if archive is not None else ()
    return _lay_out(settings, java.path, jars, options)


def _lay_out(settings: ClusterSettings, java: Path, jars: Path, jvm_options: tuple[str, ...]) -> BrokerLayout:
    addresses = choose_addresses(settings.brokers, settings.port)
    temporary = settings.data_dir is None
    if settings.data_dir is None:
        data_dir = _temporary_dir()
    else:
        data_dir = ensure_dir(settings.data_dir.expanduser().absolute())
    layout = BrokerLayout(data_dir, temporary, addresses, java, jars, jvm_options, settings)
    try:
        _require_unused(layout)
        _require_space(data_dir)
        _format(layout)
    except BaseException:
        layout.remove_if_temporary()
        raise
    return layout


def spawn(layout: BrokerLayout, address: BrokerAddress) -> ProcessHandle:
    """Start one broker and return at once.

    Raises ``EnvironmentFault`` if one of its ports is busy, or Java cannot be started.
    """
    require_free(address.port, timeout_s=_PORT_TIMEOUT_S)
    require_free(address.controller_port, timeout_s=_PORT_TIMEOUT_S)
    folder = layout.broker_dir(address)
    command = _java(layout, folder, heap=layout.settings.heap, options=layout.jvm_options)
    command += ["kafka.Kafka", str(folder / "server.properties")]
    done = subprocess.run(
        ["/bin/sh", "-c", _SPAWN, str(folder / "stdout.log"), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
        start_new_session=True,
    )
    identity = process_identity(int(done.stdout)) if done.stdout.strip().isdigit() else None
    if identity is None:
        raise EnvironmentFault(_why(layout, address))
    handle = ProcessHandle(int(done.stdout), identity)
    try:
        (folder / _PROCESS_FILE).write_text(f"{handle.pid}\t{handle.identity}")
    except OSError as exc:
        kill_processes([handle])  # no caller holds its handle yet
        raise EnvironmentFault(
            f"cannot write to {folder}: {exc.strerror or exc}. Free some space or make it writable, or choose another "
            "folder: penstock up --data DIR"
        ) from exc
    return handle


def await_serving(layout: BrokerLayout, running: Sequence[tuple[BrokerAddress, ProcessHandle]]) -> None:
    """Return when every broker of ``running`` answers and is in the metadata of the first of them.

    Raises ``EnvironmentFault`` if one of them ended, or ``start_timeout_s`` went by.
    """
    until = time.monotonic() + layout.settings.start_timeout_s
    wanted = {address.node_id for address, _ in running}
    for address, _ in running:
        while not wanted <= brokers_serving(address.bootstrap_server):
            for other, handle in running:
                if not handle.is_running:
                    raise EnvironmentFault(f"broker {other.node_id} did not start: {_why(layout, other)}")
            if time.monotonic() > until:
                raise EnvironmentFault(
                    f"broker {address.node_id} did not answer on {address.bootstrap_server} within "
                    f"{layout.settings.start_timeout_s:g} s: {_why(layout, address)}. A busy machine needs longer: "
                    "penstock up --start-timeout 300"
                )
            time.sleep(_POLL_S)


def _temporary_dir() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
    except OSError as exc:
        raise EnvironmentFault(
            f"cannot make a temporary folder ({exc.strerror or exc}). Free some space, or choose a folder: "
            "penstock up --data DIR"
        ) from exc


def _require_unused(layout: BrokerLayout) -> None:
    """Refuse a second broker. Kafka's own lock would too, but only after changing files that the first one reads."""
    for path in layout.data_dir.glob(f"broker-*/{_PROCESS_FILE}"):
        pid, _, identity = path.read_text().partition("\t")
        if pid.isdigit() and ProcessHandle(int(pid), identity).is_running:
            raise EnvironmentFault(
                f"another broker, process {pid}, uses {layout.data_dir}. Stop it (penstock down), or choose another "
                "folder: penstock up --data DIR"
            )


def _require_space(data_dir: Path) -> None:
    free = shutil.disk_usage(data_dir).free
    if free < FREE_MIN_BYTES:
        raise EnvironmentFault(
            f"not enough disk space: {free // 2**20} MB free on the disk of {data_dir}, and a broker needs "
            f"{FREE_MIN_BYTES // 2**20} MB to start. Free some, or choose another folder: penstock up --data DIR"
        )


def _format(layout: BrokerLayout) -> None:
    """Write every broker's files; format the storage of a new cluster, accept that of an old one."""
    known = {path.parents[1].name for path in layout.data_dir.glob("broker-*/data/meta.properties")}
    wanted = {layout.broker_dir(address).name for address in layout.addresses}
    if known and known != wanted:
        raise SettingsError(
            f"{layout.data_dir} holds the data of {len(known)} broker(s), {len(wanted)} asked for. "
            f"Run: penstock up --brokers {len(known)} --data '{layout.data_dir}', or choose an empty folder"
        )
    try:
        for address in layout.addresses:
            folder = ensure_dir(layout.broker_dir(address))
            configs = layout.settings.configs
            properties = server_properties(address, layout.addresses, folder / "data", configs)
            (folder / "server.properties").write_text(properties)
            (folder / "log4j2.properties").write_text(log4j_properties(folder / "server.log"))
    except OSError as exc:
        raise EnvironmentFault(
            f"cannot write to {layout.data_dir}: {exc.strerror or exc}. Free some space or make it writable, "
            "or choose another folder: penstock up --data DIR"
        ) from exc
    if not known:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with ThreadPoolExecutor(len(layout.addresses)) as pool:
            list(pool.map(lambda address: _format_one(layout, address, cluster_id), layout.addresses))


def _format_one(layout: BrokerLayout, address: BrokerAddress, cluster_id: str) -> None:
    folder = layout.broker_dir(address)
    command = _java(layout, folder, heap="128m", options=("-XX:TieredStopAtLevel=1",))
    command += ["kafka.tools.StorageTool", "format"]
    command += [f"--cluster-id={cluster_id}", "--config", str(folder / "server.properties")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise EnvironmentFault(f"cannot format {folder}: {exc}. Check the Java at {layout.java}") from exc
    if done.returncode != 0:
        why = diagnose(done.stderr + done.stdout, address, folder)
        raise EnvironmentFault(f"cannot format {folder} (exit code {done.returncode}): {why}")


def _java(layout: BrokerLayout, folder: Path, *, heap: str, options: tuple[str, ...]) -> list[str]:
    config = (folder / "log4j2.properties").as_uri()
    # Sorted, because a class archive is valid for one order of the jars only.
    class_path = ":".join(str(jar) for jar in sorted(layout.jars.glob("*.jar")))
    flags = [f"-Xmx{heap}", *_JVM, *options, f"-Dlog4j2.configurationFile={config}"]
    return [str(layout.java), *flags, "-cp", class_path]


def _class_archive(java: JavaRuntime, jars: Path, start_timeout_s: float) -> Path | None:
    """Return an archive of the broker's classes as this Java has loaded them, which makes later starts faster. It is
    created once, by a broker that is started and stopped for it; ``None`` if this Java cannot create one."""
    archive = jars / f"classes-{java.build}.jsa"
    with exclusive_lock(jars.parent / f"{jars.name}.lock"):
        if not archive.is_file():
            print("penstock: preparing Kafka's classes for faster starts (once)", file=sys.stderr)
            part = jars / f"classes-{uuid.uuid4().hex}.part"
            settings = ClusterSettings(start_timeout_s=start_timeout_s)
            try:
                _run_once(_lay_out(settings, java.path, jars, (f"-XX:ArchiveClassesAtExit={part}",)))
                part.touch()  # an empty file records that this Java has no base archive
                part.replace(archive)
            except OSError as exc:
                raise EnvironmentFault(
                    f"cannot write to {jars}: {exc.strerror or exc}. Free some space there (50 MB), or name another "
                    "folder: PENSTOCK_CACHE=/path penstock up"
                ) from exc
            finally:
                part.unlink(missing_ok=True)
    return archive if archive.stat().st_size > 0 else None


def _run_once(layout: BrokerLayout) -> None:
    address = layout.addresses[0]
    try:
        handle = spawn(layout, address)
        try:
            await_serving(layout, [(address, handle)])
        finally:
            stop_processes([handle], timeout_s=_ARCHIVE_TIMEOUT_S)
    finally:
        layout.remove_if_temporary()


def _why(layout: BrokerLayout, address: BrokerAddress) -> str:
    folder = layout.broker_dir(address)
    why = diagnose("\n".join(_tails(folder)), address, folder)
    # A temporary folder is removed with the failed cluster, so do not point to its log.
    return why if layout.temporary else f"{why} (log: {folder / 'server.log'})"


def _tails(folder: Path) -> Iterator[str]:
    for name in ("server.log", "stdout.log"):
        path = folder / name
        if path.is_file():
            yield path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
