"""A line on a terminal that shows that a command still works, once it has taken longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

AFTER_S = 2.0


class WaitingLine:
    """Shows ``what`` and the seconds so far on standard error while it is entered, from ``after_s`` on. What is printed
    meanwhile stands above it; the line is gone in the end."""

    def __init__(self, what: str, *, after_s: float = AFTER_S, console: Console | None = None) -> None:
        self._what = what
        self._begun_s = time.monotonic()
        self._turn = threading.Lock()
        self._over = False
        self._spinner = Spinner("dots")
        # Rich takes standard output over only where it is a terminal too: a file or a pipe gets what is printed.
        self._live = Live(
            get_renderable=self._shown,
            console=console or Console(stderr=True),
            refresh_per_second=4,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )
        self._timer = threading.Timer(after_s, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._turn:
            self._over = True
            if self._live.is_started:
                self._live.stop()

    def _begin(self) -> None:
        with self._turn:
            if not self._over:
                self._live.start()

    def _shown(self) -> Spinner:
        elapsed_s = time.monotonic() - self._begun_s
        self._spinner.update(text=f"{self._what}: {elapsed_s:.0f} s so far; Ctrl-C stops it")
        return self._spinner
