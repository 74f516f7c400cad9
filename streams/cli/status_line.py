"""One line every few seconds, on a terminal, that says how a worker stands."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from penstock.streams.cli.counts import counted
from penstock.streams.worker.worker_pages import WorkerStatus

INTERVAL_S = 5.0
UNCHANGED_INTERVAL_S = 60.0
"""The interval for a worker without work."""


class StatusLine:
    """Prints ``look()`` to standard error from a thread of its own, while it is entered and there is a terminal.
    ``process``: the number of a supervised process, which its lines name."""

    def __init__(self, look: Callable[[], WorkerStatus], process: int | None = None) -> None:
        self._look = look
        self._process = "" if process is None else f"[process {process}] "
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="penstock-status", daemon=True)

    def __enter__(self) -> StatusLine:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        before, shown_s = self._look(), 0.0
        while not self._over.wait(INTERVAL_S):
            now = self._look()
            if changed(before, now) or time.monotonic() - shown_s >= UNCHANGED_INTERVAL_S:
                shown_s = time.monotonic()
                print(f"{time.strftime('%H:%M:%S')} {self._process}{shown(before, now, INTERVAL_S)}", file=sys.stderr)
            before = now


def changed(before: WorkerStatus, now: WorkerStatus) -> bool:
    """Whether anything but the time is another."""
    return (before.state, before.tasks, before.restoring, before.records, before.lag) != (
        now.state,
        now.tasks,
        now.restoring,
        now.records,
        now.lag,
    )


def shown(before: WorkerStatus, now: WorkerStatus, seconds: float) -> str:
    """The line, ``seconds`` after the one before."""
    rate = max(now.records - before.records, 0) / seconds
    age = "never" if now.commit_age_s is None else f"{now.commit_age_s:.1f} s ago"
    restoring = f", {now.restoring} restoring" if now.restoring else ""
    return f"{now.state}: {counted(now.tasks, 'task')}{restoring}, {rate:,.0f} records/s, lag {now.lag:,}, last commit {age}"
