"""``penstock.ports.Log`` on the in-memory log: a worker with threads and clocks, and without a broker."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

from penstock.streams.ports.log import Log
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer, MemoryProducer
from penstock.streams.testing.memory_log import MemoryLog

_IDLE_S = 0.005


class MemoryWorkerLog:
    """Clients of one ``MemoryLog``. A worker's threads share it, so each call of a client holds one lock."""

    epochs_grow = False
    names_members = True

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._lock = threading.RLock()
        self.opened: list[str] = []

    def _locked(self, kind: str, client: Any) -> Any:
        self.opened.append(kind)
        return _Locked(client, self._lock)

    def admin(self, *, request_timeout_s: float | None = None) -> Any:
        return self._locked("admin", MemoryAdmin(self._log))

    def member(self, group: str, client_id: str | None = None) -> Any:
        return self._locked("member", MemoryConsumer(self._log, group, client_id=client_id or ""))

    def reader(self, group: str) -> Any:
        return self._locked("reader", MemoryConsumer(self._log, group))

    def position_reader(self, group: str, *, request_timeout_s: float) -> Any:
        return self._locked("position reader", MemoryConsumer(self._log, group, stable_positions=False))

    def producer(self, transactional_id: str | None = None, *, bulk: bool = False) -> Any:
        return self._locked("producer", MemoryProducer(self._log, transactional_id=transactional_id))


class _Locked:
    """A client whose calls exclude those of others. An empty poll takes a moment, as a real one does."""

    def __init__(self, client: Any, lock: threading.RLock) -> None:
        self._client, self._lock = client, lock

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **named: Any) -> Any:
        with self._lock:
            answer = getattr(self._client, name)(*args, **named)
        if name == "poll" and not answer.chunks:
            time.sleep(_IDLE_S)
        return answer


def accepted(log: MemoryWorkerLog) -> Log:
    """The same, as the port: for the type checker."""
    return log
