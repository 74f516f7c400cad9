"""Progress bars of a restore, on a terminal."""

from __future__ import annotations

import sys
import threading
from typing import Any

from penstock.state.log import TaskId
from penstock.state.recovery.restore_decision import RestoreProgress


class RestoreBars:
    """``update`` is called from the restore thread; the bars disappear when everything is restored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Any = None
        self._ids: dict[tuple[TaskId, str], Any] = {}

    def __enter__(self) -> RestoreBars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        """Show the progress of a store."""
        if not progress.offsets_total:
            return
        if sys.stderr.isatty():
            with self._lock:
                self._draw(task, store, progress)

    def _draw(self, task: TaskId, store: str, progress: RestoreProgress) -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bars = Progress(
                TextColumn("restoring {task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,}/{task.total:,} offsets"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bars.start()
        key = (task, store)
        if key not in self._ids:
            self._ids[key] = self._bars.add_task(f"{store} of task {task}", total=progress.offsets_total)
        self._bars.update(self._ids[key], completed=progress.offsets_done)
        if progress.done:
            self._bars.remove_task(self._ids.pop(key))
