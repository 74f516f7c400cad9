"""A queue of jobs between threads. A job that could not be done yet is returned again after a pause that doubles.

The thread that does the jobs calls ``next`` and ``again``; any thread calls ``put`` and ``close``.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Generic, TypeVar

PAUSE_S = 0.25
PAUSE_MAX_S = 2.0

Job = TypeVar("Job")


class RetryQueue(Generic[Job]):
    """See the module. ``dropped(job)``: whether the job is no longer wanted; such jobs are never returned."""

    def __init__(self, dropped: Callable[[Job], bool]) -> None:
        self._dropped = dropped
        self._fresh: queue.Queue[Job | None] = queue.Queue()
        self._waiting: list[tuple[float, float, Job]] = []
        """When a job is due, how long it paused, and the job."""
        self._pause_s = PAUSE_S

    def put(self, job: Job) -> None:
        """Add a job that was not tried yet."""
        self._fresh.put(job)

    def close(self) -> None:
        """Let ``next`` return ``None`` after the jobs before this call."""
        self._fresh.put(None)

    @property
    def waiting(self) -> bool:
        """Whether jobs wait for another attempt."""
        return bool(self._waiting)

    def again(self, job: Job) -> None:
        """The last job of ``next`` could not be done."""
        self._waiting.append((time.monotonic() + self._pause_s, self._pause_s, job))

    def next(self) -> Job | None:
        """Wait for a job that is new or whose pause is over; ``None``: the queue was closed."""
        while True:
            self._waiting = [entry for entry in self._waiting if not self._dropped(entry[2])]
            soonest = min(self._waiting, key=lambda entry: entry[0], default=None)
            left_s = None if soonest is None else max(soonest[0] - time.monotonic(), 0.0)
            try:
                job = self._fresh.get(timeout=left_s)
                self._pause_s = PAUSE_S
            except queue.Empty:
                if soonest is None:
                    continue
                self._waiting.remove(soonest)
                job = soonest[2]
                self._pause_s = min(soonest[1] * 2, PAUSE_MAX_S)
            if job is None or not self._dropped(job):
                return job
