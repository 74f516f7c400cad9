"""A cluster that lives as long as a ``with`` block."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.state.errors import UserError
from penstock.streams.kafka.embedded import launch, processes
from penstock.streams.kafka.embedded.launch import BrokerLayout
from penstock.streams.kafka.embedded.processes import ProcessHandle, kill_processes, stop_processes
from penstock.streams.kafka.embedded.properties import BrokerAddress, ClusterSettings

STOP_TIMEOUT_S = 15.0


class EmbeddedKafka:
    """Real Kafka brokers on 127.0.0.1, for tests and notebooks::

        with EmbeddedKafka() as kafka:
            producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})

    ``brokers`` are numbered from 0. ``port`` is the first broker's (the others follow); ``None`` takes random free
    ports. ``data_dir`` is kept and can be used again; ``None`` is a temporary folder that :meth:`stop` removes.
    ``configs`` are broker settings that override ours (topics are not auto-created unless they enable it). If the
    Python process dies without :meth:`stop`, its brokers are killed. Not thread-safe.

    Raises ``SettingsError`` when constructed with a value out of bounds.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        port: int | None = None,
        data_dir: Path | str | None = None,
        heap: str = "512m",
        configs: Mapping[str, str] | None = None,
        start_timeout_s: float = 180.0,
    ) -> None:
        folder = None if data_dir is None else Path(data_dir)
        self._settings = ClusterSettings(brokers, port, folder, heap, dict(configs or {}), start_timeout_s)
        self._layout: BrokerLayout | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._handles: dict[int, ProcessHandle] = {}

    def start(self) -> None:
        """Start all brokers and return when they serve. Raises ``EnvironmentFault``, saying what the machine lacks,
        with nothing left running."""
        if self._layout is not None:
            raise UserError("this cluster is started already; stop() it first or create another EmbeddedKafka")
        self._layout = self._prepare()
        try:
            removed = [str(self._layout.data_dir)] if self._layout.temporary else []
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", processes.__file__, *removed],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            for address in self._layout.addresses:
                self._spawn(address)
            self._await(self._layout.addresses)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGTERM, wait, SIGKILL; remove temporary data. Does nothing if the cluster is not started."""
        if self._layout is None:
            return
        layout, self._layout = self._layout, None
        stop_processes(self._handles.values(), timeout_s=STOP_TIMEOUT_S)
        self._handles.clear()
        if self._guard is not None:
            self._tell_guard("done")
            self._guard.communicate()
            self._guard = None
        layout.remove_if_temporary()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, killed ones included."""
        return self._started().bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The folder with each broker's data, settings and log."""
        return self._started().data_dir

    def pid(self, broker: int) -> int:
        """The process id of a running broker."""
        return self._running(broker).pid

    def kill_broker(self, broker: int) -> None:
        """Kill a broker with SIGKILL, like a crash; return when the process is gone. Its data stay."""
        kill_processes([self._running(broker)])
        del self._handles[broker]

    def stop_broker(self, broker: int) -> None:
        """Stop a broker with SIGTERM (SIGKILL if that takes too long); return when the process is gone. Its data
        stay."""
        stop_processes([self._running(broker)], timeout_s=STOP_TIMEOUT_S)
        del self._handles[broker]

    def start_broker(self, broker: int) -> None:
        """Start a broker that was killed or stopped, on its old ports and data; returns when it serves."""
        address = self._address(broker)
        if broker in self._handles and self._handles[broker].is_running:
            raise UserError(f"broker {broker} is running already; kill_broker({broker}) first")
        self._spawn(address)
        self._await((address,))

    def _prepare(self) -> BrokerLayout:
        """Make the brokers' folders; a cluster with more listeners adds them to the files here."""
        return launch.prepare(self._settings)

    def _started(self) -> BrokerLayout:
        if self._layout is None:
            raise UserError("this cluster is not started; use it in a with block or call start() first")
        return self._layout

    def _address(self, broker: int) -> BrokerAddress:
        addresses = self._started().addresses
        if not 0 <= broker < len(addresses):
            raise UserError(f"there is no broker {broker}; this cluster has 0 to {len(addresses) - 1}")
        return addresses[broker]

    def _running(self, broker: int) -> ProcessHandle:
        self._address(broker)
        if broker not in self._handles:
            raise UserError(f"broker {broker} is not running; start_broker({broker}) first")
        return self._handles[broker]

    def _spawn(self, address: BrokerAddress) -> None:
        handle = launch.spawn(self._started(), address)
        self._handles[address.node_id] = handle
        self._tell_guard(f"{handle.pid}\t{handle.identity}")

    def _await(self, addresses: tuple[BrokerAddress, ...]) -> None:
        launch.await_serving(self._started(), [(node, self._handles[node.node_id]) for node in addresses])

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None and self._guard.poll() is None:
            self._guard.stdin.write(line + "\n")
            self._guard.stdin.flush()
