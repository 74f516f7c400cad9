"""A lease in a repository, so that two scheduled jobs do not do the same work at once.

It saves work but is not a lock: concurrent jobs are safe because they write under unique names. The holder writes its
name and until when it holds the lease; a holder that died keeps it no longer than that, and on the same machine it does not
keep it at all. Storage has no compare-and-set, so a writer reads again a moment later, and the last writer holds the lease.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from penstock.state.errors import PenstockError
from penstock.state.machine.state_directory import safe_name
from penstock.state.snapshots.storage import Storage, open_storage
from penstock.streams.batch.background import in_background

HOLD_MS = 60_000
_SETTLE_S = 1.0
_NAME = "compaction.lease"


class Holder(msgspec.Struct, frozen=True):
    """Who has the lease, until when. ``host`` and ``pid``: its process, if it wrote them."""

    name: str
    until_ms: int
    host: str = ""
    pid: int = 0

    def is_dead(self) -> bool:
        """Whether it was a process of this machine, and is there no longer."""
        if not self.pid or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # another user's
            return False
        return False


class CompactionLease:
    """The lease of an application's compaction in a repository. ``name``: unique to this process."""

    def __init__(
        self,
        repository: str,
        application_id: str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = f"{socket.gethostname()} process {os.getpid()} ({uuid.uuid4().hex[:8]})"
        self._storage: Storage = open_storage(repository)
        self._path = f"{safe_name(application_id)}/{_NAME}"
        self._now_ms = now_ms
        self._sleep = sleep

    def holder(self) -> Holder | None:
        """The current holder; ``None`` if there is none, it is dead, or the file cannot be read."""
        data = self._storage.read(self._path)
        if data is None:
            return None
        try:
            found = msgspec.json.decode(data, type=Holder)
        except msgspec.MsgspecError:
            return None
        return found if found.until_ms > self._now_ms() and not found.is_dead() else None

    def acquire(self) -> Holder | None:
        """Acquire the lease. Returns ``None`` if this process now holds it, else the other holder."""
        other = self.holder()
        if other is not None and other.name != self.name:
            return other
        self._write()
        self._sleep(_SETTLE_S)
        now = self.holder()
        return None if now is not None and now.name == self.name else now

    def release(self) -> None:
        """Release the lease, if this process holds it."""
        held = self.holder()
        if held is not None and held.name == self.name:
            self._storage.delete(self._path)

    @contextmanager
    def held(self) -> Iterator[Holder | None]:
        """Acquire the lease, renew it while inside, and release it. Yields the other holder, or ``None``."""
        other = self.acquire()
        if other is not None:
            yield other
            return
        try:
            with in_background(self._renew, "lease"):
                yield None
        finally:
            self.release()

    def _renew(self, stop: threading.Event) -> None:
        while not stop.wait(HOLD_MS / 3000):
            try:
                self._write()
            except PenstockError:
                continue  # the storage may answer next time; the work is safe without the lease

    def _write(self) -> None:
        mine = Holder(self.name, self._now_ms() + HOLD_MS, socket.gethostname(), os.getpid())
        self._storage.write(self._path, msgspec.json.encode(mine))
