"""The state file, in which ``down`` and ``status`` find a cluster that ``up`` left running."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.state.errors import SettingsError, UserError
from penstock.state.machine.atomic_files import replace_file
from penstock.streams.kafka.embedded.paths import cache_dir, ensure_dir
from penstock.streams.kafka.embedded.processes import ProcessHandle

VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One broker as it was started."""

    node_id: int
    bootstrap_server: str
    process: ProcessHandle


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterRecord:
    """A cluster as it was started. ``temporary``: its data folder is removed when it is stopped."""

    data_dir: Path
    temporary: bool
    brokers: tuple[BrokerRecord, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_server for broker in self.brokers)

    @property
    def running(self) -> tuple[BrokerRecord, ...]:
        """The brokers that run now; a later process with the same id does not count."""
        return tuple(broker for broker in self.brokers if broker.process.is_running)


def state_path(name: str) -> Path:
    """Return the path of the state file of the cluster ``name``. Raises ``SettingsError`` if the name is not a file
    name."""
    if _NAME.fullmatch(name) is None:
        raise SettingsError(
            f"{name!r} cannot be a cluster's name; use at most 64 letters, digits, dots, dashes and underscores"
        )
    return cache_dir() / "clusters" / f"{name}.json"


def write_state(path: Path, record: ClusterRecord) -> None:
    """Replace the file with one rename."""
    ensure_dir(path.parent)
    replace_file(path, encode(record))


def read_state(path: Path) -> ClusterRecord | None:
    """Read the state file; ``None`` if it does not exist. Raises ``UserError`` if it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return decode(data)
    except (ValueError, KeyError, TypeError) as exc:
        raise UserError(
            f"{path} cannot be understood ({exc}); another version of Penstock may have written it. Stop its brokers "
            f"with that version, or by hand, and run: rm '{path}'"
        ) from exc


def encode(record: ClusterRecord) -> bytes:
    """Return the bytes of a state file."""
    brokers = [
        {
            "node_id": broker.node_id,
            "bootstrap_server": broker.bootstrap_server,
            "pid": broker.process.pid,
            "identity": broker.process.identity,
        }
        for broker in record.brokers
    ]
    value = {
        "version": VERSION,
        "data_dir": str(record.data_dir),
        "temporary": record.temporary,
        "broker_count": len(brokers),
        "brokers": brokers,
    }
    return (json.dumps(value, indent=2) + "\n").encode()


def decode(data: bytes) -> ClusterRecord:
    """Read the bytes of :func:`encode`. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for anything else."""
    value: Mapping[str, Any] = json.loads(data)
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']}, not {VERSION}")
    brokers = tuple(
        BrokerRecord(int(b["node_id"]), str(b["bootstrap_server"]), ProcessHandle(int(b["pid"]), str(b["identity"])))
        for b in value["brokers"]
    )
    if len(brokers) != value["broker_count"] or not brokers:
        raise ValueError(f"{len(brokers)} brokers, not {value['broker_count']}")
    return ClusterRecord(Path(value["data_dir"]), bool(value["temporary"]), brokers)
