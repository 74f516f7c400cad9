"""The settings of an embedded cluster and the files that its brokers read. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

from penstock.state.errors import SettingsError

HOST = "127.0.0.1"
BROKERS_MAX = 9  # more JVMs than any one machine wants
# Settings that address and identify the brokers are ours: with other values we could not find or stop the cluster.
_OURS = frozenset(
    {
        "node.id",
        "broker.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "controller.quorum.voters",
        "log.dirs",
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The user's choices. ``port``: of the first broker; the others follow; ``None``: random free ports. ``data_dir``:
    kept and used again; ``None``: temporary. ``configs``: broker settings that override ours."""

    brokers: int = 1
    port: int | None = None
    data_dir: Path | None = None
    heap: str = "512m"
    configs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    start_timeout_s: float = 180.0

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= BROKERS_MAX:
            raise SettingsError(f"brokers is {self.brokers}; choose 1 to {BROKERS_MAX}")
        if self.port is not None and not 1 <= self.port <= 65535 - self.brokers:
            raise SettingsError(f"port is {self.port}; choose 1 to {65535 - self.brokers}")
        if re.fullmatch(r"[1-9]\d*[kmgKMG]", self.heap) is None:
            raise SettingsError(f"heap is {self.heap!r}; write a size such as 512m or 2g")
        if taken := sorted(_OURS & self.configs.keys()):
            raise SettingsError(f"the broker setting {taken[0]} belongs to Penstock; use --brokers, --port and --data")
        for key, value in self.configs.items():
            if not key or any(mark in key + value for mark in "\n\r"):
                raise SettingsError(f"the broker setting {key!r} is not one line of key=value")


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The addresses of one broker. ``node_id`` counts from 0."""

    node_id: int
    port: int
    controller_port: int

    @property
    def bootstrap_server(self) -> str:
        return f"{HOST}:{self.port}"


def server_properties(
    address: BrokerAddress, cluster: tuple[BrokerAddress, ...], log_dir: Path, configs: Mapping[str, str]
) -> str:
    """The text of ``server.properties`` for the broker at ``address``, which is also a controller."""
    size = len(cluster)
    replicas = min(3, size)
    in_sync = max(1, replicas - 1)
    voters = ",".join(f"{node.node_id}@{HOST}:{node.controller_port}" for node in cluster)
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": address.node_id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{address.port},CONTROLLER://{HOST}:{address.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{address.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": log_dir,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # Internal topics: one replica per broker; few partitions, because each costs files and start time.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 2,
        # Groups form at once and lose a dead member within seconds; clients choose their own session timeout.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.session.timeout.ms": 6000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 500,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 500,
        # Brokers judge by the times of records: after a week's default, records of 1970 would vanish within minutes.
        "log.retention.ms": -1,
        # Its default takes a quarter of the heap; this still compacts a million keys in one pass.
        "log.cleaner.dedupe.buffer.size": 32 * 1024 * 1024,
    }
    values.update(configs)
    return "".join(f"{key}={_escape(str(value))}\n" for key, value in values.items())


def log4j_properties(log_file: Path) -> str:
    """Log warnings and errors into two files of at most 10 MB, so a broker left running cannot fill the disk."""
    return (
        "status=error\n"
        "appender.file.type=RollingFile\n"
        "appender.file.name=file\n"
        f"appender.file.fileName={_escape(str(log_file))}\n"
        f"appender.file.filePattern={_escape(str(log_file))}.%i\n"
        "appender.file.layout.type=PatternLayout\n"
        "appender.file.layout.pattern=%d{ISO8601} %p %m (%c)%n\n"
        "appender.file.policies.type=Policies\n"
        "appender.file.policies.size.type=SizeBasedTriggeringPolicy\n"
        "appender.file.policies.size.size=10MB\n"
        "appender.file.strategy.type=DefaultRolloverStrategy\n"
        "appender.file.strategy.max=1\n"
        "rootLogger.level=warn\n"
        "rootLogger.appenderRef.file.ref=file\n"
    )


def diagnose(log: str, address: BrokerAddress, data_dir: Path) -> str:
    """Return why a broker did not start, from its log, and what to do next."""
    if "Address already in use" in log or "Failed to bind" in log:
        return (
            f"a port of broker {address.node_id} ({address.port} or {address.controller_port}) on {HOST} was taken "
            "while it started. Run `penstock up` again, or choose another: penstock up --port N"
        )
    if "No space left on device" in log:
        return f"no space left on the disk of {data_dir}. Free some, or choose another folder: penstock up --data DIR"
    if "Permission denied" in log or "Read-only file system" in log:
        return f"the broker cannot write to {data_dir}. Run: chmod -R u+rwX '{data_dir}', or choose another: --data DIR"
    if "Failed to acquire lock" in log:
        return f"another broker uses {data_dir}. Stop it (penstock down), or choose another folder: --data DIR"
    if "Could not reserve enough space" in log or "OutOfMemoryError" in log or "insufficient memory" in log:
        return "not enough memory for the broker. Free some, or change the heap: penstock up --heap 512m"
    if match := re.search(r"(?:ConfigException|InvalidConfigurationException): (.+)", log):
        return f"the broker refused its settings: {match[1].strip()}. Correct the --config options"
    errors = [line for line in log.splitlines() if re.search(r"\b(ERROR|FATAL|Exception|Error)\b", line)]
    return errors[0].strip() if errors else "its log says nothing"


def _escape(value: str) -> str:
    """A value for a Java properties file, where a backslash escapes."""
    return value.replace("\\", "\\\\")
