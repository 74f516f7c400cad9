"""When a worker that lost its membership rejoins: at once the first time, later each further time, and not forever.

A worker loses its membership when it is fenced or excluded from the group. If another process has taken its place,
that is the end of it; but two processes with the same identity fence each other again and again. So the pauses
double, and ``REJOINS_MAX`` losses, each less than ``STABLE_S`` after the one before, end the run with the reason. If
brokers do not answer, it waits for as long as it takes. Pure.
"""

from __future__ import annotations

from penstock.state.errors import PenstockError, TaskMigratedError
from penstock.streams.events.facts import Rejoining
from penstock.streams.events.port import EventSink
from penstock.streams.runtime.group_wait import GroupWait
from penstock.streams.runtime.retry_backoff import RetryBackoff

REJOINS_MAX = 10
STABLE_S = 60.0
PAUSE_S = 0.5
PAUSE_MAX_S = 30.0


class RejoinPacing:
    """See the module. ``events`` receives the facts. ``whole``: the group takes back all partitions and then assigns some;
    a group that takes some need not assign others."""

    def __init__(
        self, application_id: str, events: EventSink, session_timeout_s: float = 45.0, *, whole: bool = True
    ) -> None:
        self._application_id = application_id
        self._events = events
        self._silence = RetryBackoff("joining the group again", events)
        self._wait = GroupWait(events, session_timeout_s)
        self._whole = whole
        self.losses = 0
        """In a row."""
        self._joined_s = 0.0
        self._due_s: float | None = None
        self._turn_s: float | None = None
        self._took_s = 0.0

    def turn(self, now_s: float) -> None:
        """Another turn of the worker's loop begins."""
        self._took_s = self._since_turn_s(now_s)
        self._turn_s = now_s
        self._wait.turn(now_s)

    def _since_turn_s(self, now_s: float) -> float:
        return 0.0 if self._turn_s is None else now_s - self._turn_s

    @property
    def due_s(self) -> float | None:
        """When to rejoin; ``None``: it is a member."""
        return self._due_s

    def lost(self, cause: PenstockError, now_s: float) -> None:
        """The membership was lost, or the group could not be joined. Raises ``TaskMigratedError`` if that happened
        too often."""
        turn_s = max(self._since_turn_s(now_s), self._took_s)
        if not isinstance(cause, TaskMigratedError):
            before = self._silence.waiting
            pause_s = self._silence.failed(cause, now_s, Rejoining(cause, 0.0, self.losses, turn_s))
            self._due_s = now_s + (pause_s if before else 0.0)
            return
        if now_s - self._joined_s > STABLE_S + PAUSE_MAX_S:
            self.losses = 0
        self.losses += 1
        if self.losses > REJOINS_MAX:
            raise TaskMigratedError(
                f"this worker joined group {self._application_id} {REJOINS_MAX} times, and lost its place each time: {cause}"
                ". Another process may have the same identity: stop one of the two. Give each process its own "
                "group_instance_id, share no state_dir between machines, and remove identity.json from a copied state folder"
            )
        pause_s = 0.0 if self.losses == 1 else min(PAUSE_S * 2.0 ** (self.losses - 2), PAUSE_MAX_S)
        self._due_s = now_s + pause_s
        self._events.emit(Rejoining(cause, pause_s, self.losses, turn_s))

    def asked(self, now_s: float) -> None:
        """The worker has asked to join; the group's answer comes later."""
        self._due_s = None
        self._wait.began(now_s)

    def gave_back(self, now_s: float) -> None:
        """The worker gave its partitions back, or lost them, and waits for the new assignment."""
        if self._due_s is None and self._whole:
            self._wait.began(now_s)

    def settled(self, now_s: float) -> None:
        """Partitions were taken."""
        self._due_s = None
        self._silence.succeeded(now_s)
        self._wait.ended(now_s)
        self._joined_s = now_s
