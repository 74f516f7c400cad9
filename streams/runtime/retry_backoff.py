"""How long to wait before a retry, and what to report meanwhile. Pure: it does not wait itself.

Pauses double from ``PAUSE_S`` to ``PAUSE_MAX_S``. One fact is reported when the wait begins, one every
``REPORT_AGAIN_S`` while it lasts, and one when it is over: an outage is three log lines, however many attempts it
took.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.streams.events.facts import Fact, WaitEnded, Waiting
from penstock.streams.events.port import EventSink

PAUSE_S = 0.5
PAUSE_MAX_S = 30.0
REPORT_AGAIN_S = 60.0


class RetryBackoff:
    """See the module. ``doing``: the request, such as ``committing``. ``over(waited_s)``: the fact that ends the
    wait."""

    def __init__(self, doing: str, events: EventSink, over: Callable[[float], Fact] | None = None) -> None:
        self._doing = doing
        self._events = events
        self._over = over or (lambda waited_s: WaitEnded(doing, waited_s))
        self._next_s = PAUSE_S
        self._since_s: float | None = None
        self._reported_s = 0.0

    @property
    def waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._since_s is not None

    def failed(self, cause: BaseException, now_s: float, begun: Fact | None) -> float:
        """An attempt failed; returns how long to wait before the next. ``begun``: reported if the wait begins with it;
        ``None``: that was reported already."""
        if self._since_s is None:
            self._since_s = self._reported_s = now_s
            if begun is not None:
                self._events.emit(begun)
        elif now_s - self._reported_s >= REPORT_AGAIN_S:
            self._reported_s = now_s
            self._events.emit(Waiting(self._doing, cause, now_s - self._since_s))
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, PAUSE_MAX_S)
        return pause_s

    def succeeded(self, now_s: float) -> None:
        """The request was answered."""
        if self._since_s is not None:
            self._events.emit(self._over(now_s - self._since_s))
        self._since_s, self._next_s = None, PAUSE_S
