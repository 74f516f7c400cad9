"""How long the group has left a worker without an assignment, and what to say of it. Pure.

A rebalance ends when each member has joined again. A member that was killed never does, so the others wait until its
session is over: many seconds in which nothing is processed and no request fails. ``REPORT_S`` into such a wait one
``Waiting`` names that cause, another follows every ``REPORT_AGAIN_S``, and ``WaitEnded`` ends what was reported.
"""

from __future__ import annotations

from penstock.state.errors import RetriableError
from penstock.streams.events.facts import WaitEnded, Waiting
from penstock.streams.events.port import EventSink

DOING = "joining the group"
# Longer than a group waits for its first members (3 s), and than members need to answer a rebalance.
REPORT_S = 10.0
REPORT_AGAIN_S = 60.0


class GroupWait:
    """See the module. ``session_timeout_s`` is this worker's own; the others usually have the same."""

    def __init__(self, events: EventSink, session_timeout_s: float) -> None:
        self._events = events
        self._session_timeout_s = session_timeout_s
        self._since_s: float | None = None
        self._due_s = 0.0
        self._reported = False

    def began(self, now_s: float) -> None:
        """The worker asks its group for partitions. A wait that has begun goes on."""
        if self._since_s is None:
            self._since_s, self._due_s = now_s, now_s + REPORT_S

    def turn(self, now_s: float) -> None:
        """Report the wait if it is time to."""
        if self._since_s is None or now_s < self._due_s:
            return
        self._due_s, self._reported = now_s + REPORT_AGAIN_S, True
        cause = RetriableError(
            "the group has not assigned partitions yet. It waits for each member: one that was killed or stands still "
            f"counts until its session is over ({self._session_timeout_s:g} s, session_timeout_ms). If a line "
            "before says that no broker answers, it waits for the brokers"
        )
        self._events.emit(Waiting(DOING, cause, now_s - self._since_s))

    def ended(self, now_s: float) -> None:
        """The group has answered."""
        if self._since_s is not None and self._reported:
            self._events.emit(WaitEnded(DOING, now_s - self._since_s))
        self._since_s, self._reported = None, False
