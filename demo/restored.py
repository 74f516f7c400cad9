"""A worker that comes back with an empty folder, as an object in this process, so that its restore can be watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from demo.findings import Restored
from penstock.state.errors import PenstockError
from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology

LIMIT_S = 120.0


def restore(
    topology: Topology, settings: WorkerSettings, partitions: int, go_on: Callable[[Worker], None] | None = None
) -> Restored:
    """Start a worker, wait until every store stands, let ``go_on`` use it, and stop it. The seconds are those from the
    first store's begin to the last one's end: joining the group is not counted. Raises ``PenstockError`` when it takes
    longer than ``LIMIT_S``."""
    stores = [s for s in topology.stores if s.changelog or s.source_topic is not None]
    seen = _Seen(len(stores) * partitions)
    worker = Worker(topology, settings, on_progress=seen.note)
    worker.start()
    try:
        if not seen.complete.wait(LIMIT_S):
            worker.stop()
            raise PenstockError(
                f"{len(seen.ended)} of {seen.wanted} store partitions were restored within {LIMIT_S:.0f} s; "
                "see whether the brokers are busy"
            )
        if go_on is not None:
            go_on(worker)
    finally:
        worker.stop()
    return seen.result()


class _Seen:
    """What the restore thread has told; read when it is complete."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.complete = threading.Event()
        self.ended: dict[tuple[TaskId, str], RestoreProgress] = {}
        self._began_s: float | None = None
        self._ended_s = 0.0

    def note(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        now = time.monotonic()
        if self._began_s is None:
            self._began_s = now
        if progress.done and not self.complete.is_set():
            self.ended[task, store] = progress
            self._ended_s = now
            if len(self.ended) == self.wanted:
                self.complete.set()

    def result(self) -> Restored:
        done = self.ended.values()
        return Restored(
            seconds=self._ended_s - (self._began_s or 0.0),
            records=sum(p.records for p in done),
            stores=len(done),
            # What does not begin at the changelog's begin, in an empty folder, began with a snapshot.
            from_snapshots=sum(p.start_offset > 0 for p in done),
        )
