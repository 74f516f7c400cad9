"""Progress bars of a restore, on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress

AFTER_S = 2.0
"""A restore that is over sooner shows none."""


class RestoreBars:
    """``update`` is called from the restore thread. Bars appear once stores have been restoring for ``AFTER_S``, and
    are gone when none is. ``console``: a terminal to draw on instead of standard error."""

    def __init__(self, console: Any = None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._begun_s = self._seen_s = -AFTER_S
        self._open: set[tuple[TaskId, str]] = set()
        self._bars: Any = None
        self._ids: dict[tuple[TaskId, str], Any] = {}

    def __enter__(self) -> RestoreBars:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ids.clear()
            self._hide()

    def update(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        """Show the progress of a store."""
        if progress.offsets_total and (self._console is not None or sys.stderr.isatty()):
            with self._lock:
                self._draw((task, store), progress)

    def _draw(self, key: tuple[TaskId, str], progress: RestoreProgress) -> None:
        now_s = self._monotonic_s()
        if now_s - self._seen_s >= AFTER_S and not self._open:
            self._begun_s = now_s
        self._seen_s = now_s
        self._open.add(key)
        if progress.done:
            self._open.remove(key)
            if key in self._ids:
                self._bars.remove_task(self._ids.pop(key))
            self._hide()
        elif now_s - self._begun_s >= AFTER_S:
            if self._bars is None:
                self._bars = self._shown()
            if key not in self._ids:
                self._ids[key] = self._bars.add_task(f"{key[1]} of task {key[0]}", total=progress.offsets_total)
            self._bars.update(self._ids[key], completed=progress.offsets_done)

    def _hide(self) -> None:
        if self._bars is not None and not self._ids:
            self._bars.stop()
            self._bars = None

    def _shown(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        bars = Progress(
            TextColumn("restoring {task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}/{task.total:,} offsets"),
            TimeRemainingColumn(),
            console=self._console or Console(stderr=True),
            transient=True,
        )
        bars.start()
        return bars
