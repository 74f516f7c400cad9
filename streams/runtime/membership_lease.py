"""For how long a worker may assume that it owns its tasks without asking the group again.

Under at-least-once no broker refuses the writes of a worker that is no longer the owner: if it was frozen for longer
than its session, it would write old values over newer ones. So before it sends anything, the group must have
confirmed the membership recently. Each commit of positions does that; if none was due, the last positions are
committed once more, the first time with where the changelogs end (``penstock.streams.task.begun_positions``). A freeze
shows in the clock, which advances meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

LEASE_MAX_S = 10.0


def lease_s(session_timeout_ms: int) -> float:
    """Half of the session timeout, which restarts with each commit."""
    return min(session_timeout_ms / 2000, LEASE_MAX_S)


class MembershipLease:
    """``monotonic_s``: a clock that advances while the process is stopped. ``stable_token``: the membership token
    changes only with assignments; in the brokers' own group protocol its epoch grows without them."""

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
        """The group has confirmed the membership; the request was sent at this time."""
        self._granted_s = asked_s

    def end(self) -> None:
        """The confirmation is no longer valid."""
        self._granted_s = None
