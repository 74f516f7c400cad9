"""How long to wait for what does not answer, and what to say meanwhile. Pure: it waits for nothing itself.

Pauses double from ``PAUSE_S`` to ``PAUSE_MAX_S``. One line when the wait begins, one each ``SAY_AGAIN_S`` while it goes on,
and one when it is over: whoever reads the log sees an outage as three lines, however many attempts it took.
"""

from __future__ import annotations

from collections.abc import Callable

PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
SAY_AGAIN_S = 60.0

Say = Callable[[str], None]


class Patience:
    """See the module. ``doing``: what is tried, such as ``restoring task 0_1``. ``say`` is given the lines."""

    def __init__(self, doing: str, say: Say, *, pause_s: float = PAUSE_S, pause_max_s: float = PAUSE_MAX_S) -> None:
        self._doing = doing
        self._say = say
        self._first_s = self._next_s = pause_s
        self._most_s = pause_max_s
        self._since_s: float | None = None
        self._said_s = 0.0

    @property
    def waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._since_s is not None

    def failed(self, why: object, now_s: float) -> float:
        """An attempt failed; returns how long to wait before the next."""
        if self._since_s is None:
            self._since_s = self._said_s = now_s
            self._say(f"{self._doing} waits, and tries again until it works: {why}")
        elif now_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = now_s
            self._say(f"{self._doing} has waited for {now_s - self._since_s:.0f} s: {why}")
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, self._most_s)
        return pause_s

    def succeeded(self, now_s: float) -> None:
        """It works, or works again."""
        if self._since_s is not None:
            self._say(f"{self._doing} goes on after {now_s - self._since_s:.1f} s")
        self._since_s, self._next_s = None, self._first_s
