"""Three real brokers whose clients come through a proxy."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.embedded.launch import BrokerLayout
from penstock.streams.kafka.embedded.ports import choose_addresses
from tests.chaos.proxy import HOST, Network

BROKERS = 3
HEAP = "288m"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
}


class ChaosCluster(EmbeddedKafka):
    """``clients``: the bootstrap servers behind the proxy, for what is tested. ``bootstrap_servers`` are those of the
    brokers themselves, for whoever writes the input and judges the output."""

    def __init__(
        self,
        brokers: int = BROKERS,
        configs: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        client_protocol: str = "PLAINTEXT",
    ) -> None:
        super().__init__(brokers, heap=HEAP, data_dir=data_dir, configs={**SETTINGS, **(configs or {})})
        self._frozen: set[int] = set()
        self._brokers = brokers
        self._client_protocol = client_protocol

    def _prepare(self) -> BrokerLayout:
        layout = super()._prepare()
        addresses = choose_addresses(self._brokers, None)
        ports = {a.node_id: (a.controller_port, a.port) for a in addresses}
        for own, behind in zip(layout.addresses, addresses, strict=True):
            listeners = (
                f"PLAINTEXT://{HOST}:{own.port},CONTROLLER://{HOST}:{own.controller_port},CLIENT://{HOST}:{behind.port}"
            )
            advertised = f"PLAINTEXT://{HOST}:{own.port},CLIENT://{HOST}:{behind.controller_port}"
            protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENT:{self._client_protocol}"
            with (layout.broker_dir(own) / "server.properties").open("a") as file:  # the last line of a name counts
                file.write(f"listeners={listeners}\nadvertised.listeners={advertised}\n")
                file.write(f"listener.security.protocol.map={protocols}\n")
        self.network = Network(ports)
        self.clients = ",".join(f"{HOST}:{listen}" for listen, _ in ports.values())
        return layout

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.network.__enter__()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.thaw()
        self.network.__exit__()
        super().__exit__(kind, error, traceback)

    def freeze(self, broker: int) -> None:
        """SIGSTOP."""
        os.kill(self.pid(broker), signal.SIGSTOP)
        self._frozen.add(broker)

    def thaw(self, broker: int | None = None) -> None:
        """SIGCONT, to one broker or to all frozen ones."""
        for each in list(self._frozen) if broker is None else [broker]:
            self._frozen.discard(each)
            with contextlib.suppress(Exception):
                os.kill(self.pid(each), signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self, broker: int) -> Iterator[None]:
        """One broker is frozen inside the block."""
        self.freeze(broker)
        try:
            yield
        finally:
            self.thaw(broker)

    def heal(self) -> None:
        """No faults, no weather, and every broker runs."""
        self.network.sky.clear()
        self.thaw()
        for broker in range(self._brokers):
            if not self.is_running(broker):
                self.start_broker(broker)

    def is_running(self, broker: int) -> bool:
        """Whether the process of the broker is there."""
        return broker in self._handles and self._handles[broker].is_running
