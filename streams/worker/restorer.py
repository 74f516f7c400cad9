"""Restores the stores of tasks in a thread of its own, so that the poll loop never waits for it.

Jobs run one after the other. A job that must wait for another process or for the brokers is retried later.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Sequence

from penstock.state.errors import RetriableError
from penstock.state.log import TaskId
from penstock.state.stores.store import StoreSpec
from penstock.streams.runtime.retry_backoff import REPORT_AGAIN_S
from penstock.streams.task.task_stores import CommittedPositions, TaskStores
from penstock.streams.worker.retry_queue import RetryQueue
from penstock.streams.worker.task_opener import Cancelled, TaskOpener

CLOSE_LIMIT_S = 30.0
ASKING_LIMIT_S = 1.0
"""How long ``close`` waits for a job to end: longer while a database is being written, which must be closed properly, and
shorter while it waits for brokers that may never answer."""


@dataclasses.dataclass
class _Restore:
    task: TaskId
    stores: Sequence[StoreSpec]
    reached: CommittedPositions
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)
    failed_s: float | None = None
    """When the job failed for the first time."""
    reported_s: float = 0.0


class Restorer:
    """Runs ``TaskOpener.open`` in one thread, so that the poll loop never waits for it. A task that cannot be opened
    yet (``RetriableError``) is retried for as long as it takes, while the others continue; this is reported when it
    begins, and once a minute."""

    def __init__(self, opener: TaskOpener) -> None:
        self._opener = opener
        self._jobs = RetryQueue[_Restore](lambda job: job.cancelled.is_set())
        self._done: queue.Queue[tuple[_Restore, TaskStores | BaseException]] = queue.Queue()
        self._open: dict[TaskId, _Restore] = {}
        self._thread: threading.Thread | None = None

    def submit(self, task: TaskId, stores: Sequence[StoreSpec], reached: CommittedPositions) -> None:
        """Request a task's stores; ``finished`` will return them."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-restore", daemon=True)
            self._thread.start()
        job = _Restore(task, stores, reached)
        self._open[task] = job
        self._jobs.put(job)

    def cancel(self, task: TaskId) -> None:
        """Give up the restore of a task. Its stores are closed as soon as they are ready."""
        job = self._open.pop(task, None)
        if job is not None:
            self._cancel(job)

    def _cancel(self, job: _Restore) -> None:
        job.cancelled.set()
        self._opener.cancelled(job.task)

    def finished(self) -> list[tuple[TaskId, TaskStores | BaseException]]:
        """Return what was restored since the last call. Closes the stores of tasks that were cancelled meanwhile."""
        out: list[tuple[TaskId, TaskStores | BaseException]] = []
        while True:
            try:
                job, result = self._done.get_nowait()
            except queue.Empty:
                return out
            if self._open.get(job.task) is job:
                del self._open[job.task]
                out.append((job.task, result))
            elif isinstance(result, TaskStores):
                result.close()

    @property
    def busy(self) -> bool:
        """Whether any task is still being restored."""
        return bool(self._open)

    def _work(self) -> None:
        while (job := self._jobs.next()) is not None:
            try:
                state = self._opener.open(job.task, job.stores, job.reached, job.cancelled.is_set)
            except Cancelled:
                continue
            except RetriableError as exc:
                self._put_off(job, exc, time.monotonic())
                continue
            except BaseException as exc:
                self._done.put((job, exc))
                continue
            if job.cancelled.is_set():
                state.close()
                self._opener.cancelled(job.task)
            else:
                self._done.put((job, state))

    def _put_off(self, job: _Restore, cause: RetriableError, now_s: float) -> None:
        if job.failed_s is None or now_s - job.reported_s >= REPORT_AGAIN_S:
            job.failed_s, job.reported_s = now_s if job.failed_s is None else job.failed_s, now_s
            self._opener.put_off(job.task, cause, now_s - job.failed_s)
        self._jobs.again(job)

    def close(self) -> None:
        """Cancel all remaining jobs and end the thread."""
        for job in self._open.values():
            self._cancel(job)
        self._open.clear()
        self._jobs.close()
        began_s = time.monotonic()
        while self._thread is not None and self._thread.is_alive():
            waited_s = time.monotonic() - began_s
            if waited_s > (ASKING_LIMIT_S if self._opener.asking else CLOSE_LIMIT_S):
                break
            self._thread.join(timeout=0.05)
        self.finished()
