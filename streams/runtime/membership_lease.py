"""For how long a worker may take its tasks for its own without asking the group again.

Under at-least-once no broker refuses what a worker writes that is no longer the owner: one that was frozen for longer than
its session would write old values over newer ones. So before it sends anything, the group must have confirmed the
membership a short time ago: each commit of positions does that, and where none was due the last positions are committed once
more. A freeze is noticed by the clock, which goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

LEASE_MAX_S = 10.0


def lease_s(session_timeout_ms: int) -> float:
    """Half of the session, which begins again with each commit."""
    return min(session_timeout_ms / 2000, LEASE_MAX_S)


class MembershipLease:
    """``monotonic_s``: a clock that goes on while the process is stopped. ``stable_token``: the membership token changes
    with assignments only; in the brokers' own group protocol its epoch grows without them."""

    def __init__(self, duration_s: float, monotonic_s: Callable[[], float], *, stable_token: bool = True) -> None:
        self.now_s = monotonic_s
        self.stable_token = stable_token
        self._duration_s = duration_s
        self._granted_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether the group must be asked before anything is sent."""
        return self._granted_s is None or self.now_s() - self._granted_s > self._duration_s

    def grant(self, asked_s: float) -> None:
        """The group has confirmed the membership; it was asked at this time."""
        self._granted_s = asked_s

    def end(self) -> None:
        """What was confirmed is no longer known to hold."""
        self._granted_s = None
