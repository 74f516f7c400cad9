"""Clusters that outlive the command that starts them, found again by name.

Rules: one name, one cluster. The state file is written before the wait for the brokers, so an interrupted start can
still be stopped. ``start`` and ``stop`` of one name take turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from penstock.state.errors import UserError
from penstock.streams.kafka.embedded import launch
from penstock.streams.kafka.embedded.cluster import STOP_TIMEOUT_S
from penstock.streams.kafka.embedded.launch import BrokerLayout
from penstock.streams.kafka.embedded.paths import exclusive_lock
from penstock.streams.kafka.embedded.processes import stop_processes
from penstock.streams.kafka.embedded.properties import BrokerAddress, ClusterSettings
from penstock.streams.kafka.embedded.state_file import (
    BrokerRecord,
    ClusterRecord,
    read_state,
    state_path,
    write_state,
)

DEFAULT_NAME = "default"


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterStatus:
    """``running``: every broker runs; ``degraded``: some do; ``dead``: none does, and the state file is stale;
    ``down``: the cluster does not exist (``record`` is ``None``)."""

    name: str
    state: Literal["running", "degraded", "dead", "down"]
    record: ClusterRecord | None


def status_of(name: str = DEFAULT_NAME) -> ClusterStatus:
    """Return what runs under this name now."""
    record = read_state(state_path(name))
    if record is None:
        return ClusterStatus(name, "down", None)
    running = len(record.running)
    if running == 0:
        return ClusterStatus(name, "dead", record)
    return ClusterStatus(name, "running" if running == len(record.brokers) else "degraded", record)


def running_bootstrap_servers(name: str = DEFAULT_NAME) -> str | None:
    """Return ``host:port`` of a cluster's brokers if at least one runs, else ``None``."""
    status = status_of(name)
    return status.record.bootstrap_servers if status.record and status.state in ("running", "degraded") else None


def start_detached(settings: ClusterSettings, name: str = DEFAULT_NAME) -> ClusterRecord:
    """Start a cluster and return when it serves; it lives on when this process ends.

    If all brokers of a former cluster are gone, its stale state file and temporary data are removed.

    Raises ``UserError`` if a cluster of this name runs, and ``EnvironmentFault`` if the machine lacks something;
    nothing is left running then.
    """
    with _turn(name) as path:
        status = status_of(name)
        if status.record is not None:
            if status.state != "dead":
                raise UserError(
                    f"the cluster {name!r} is {status.state} already at {status.record.bootstrap_servers}. Stop it "
                    f"with: penstock down --name {name}, or start another one: penstock up --name OTHER"
                )
            _forget(path, status.record)
        layout = launch.prepare(settings)
        record = ClusterRecord(layout.data_dir, layout.temporary, ())
        try:
            for address in layout.addresses:
                record = _spawn(layout, address, record)
                write_state(path, record)
            launch.await_serving(
                layout, [(a, b.process) for a, b in zip(layout.addresses, record.brokers, strict=True)]
            )
        except BaseException:
            stop_processes([broker.process for broker in record.brokers], timeout_s=STOP_TIMEOUT_S)
            _forget(path, record)
            raise
        return record


def stop_detached(name: str = DEFAULT_NAME) -> ClusterStatus:
    """Stop the cluster, remove its temporary data and its state file. Returns its former status; ``down`` is fine."""
    with _turn(name) as path:
        status = status_of(name)
        if status.record is not None:
            stop_processes([broker.process for broker in status.record.brokers], timeout_s=STOP_TIMEOUT_S)
            _forget(path, status.record)
        return status


@contextlib.contextmanager
def _turn(name: str) -> Iterator[Path]:
    path = state_path(name)
    with exclusive_lock(path.with_suffix(".lock")):
        yield path


def _spawn(layout: BrokerLayout, address: BrokerAddress, record: ClusterRecord) -> ClusterRecord:
    broker = BrokerRecord(address.node_id, address.bootstrap_server, launch.spawn(layout, address))
    return dataclasses.replace(record, brokers=(*record.brokers, broker))


def _forget(path: Path, record: ClusterRecord) -> None:
    path.unlink(missing_ok=True)
    if record.temporary:
        shutil.rmtree(record.data_dir, ignore_errors=True)
