"""Whether the topics of an application are still those that it began with.

A topic that was deleted and created again has the same name and other records: offsets mean nothing in it. So the
topics' ids are compared from time to time while a worker runs, without waiting for the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.state.errors import IncompatibleError, RetriableError
from penstock.streams.ports.log import Asked, LogAdmin

INTERVAL_S = 5.0


def all_topic_ids(admin: LogAdmin, topics: Sequence[str]) -> dict[str, str]:
    """Return the id of every topic. Raises ``RetriableError`` if one is not known: a broker that has just started, or
    lags behind, may not know all of them. State whose topic has no id cannot be verified later."""
    found = admin.topic_ids(topics)
    if missing := sorted(set(topics) - found.keys()):
        raise RetriableError(
            f"no broker that was asked knows topic {', '.join(missing)}; if it stays so, see whether it was deleted"
        )
    return found


class TopicWatch:
    """``ids``: by topic, as of the start; ``ask`` requests those of topics."""

    def __init__(
        self, ids: Mapping[str, str], ask: Callable[[Sequence[str]], Asked], interval_s: float = INTERVAL_S
    ) -> None:
        self._ids = dict(ids)
        self._ask = ask
        self._interval_s = interval_s
        self._asked: Asked | None = None
        self._asked_s: float | None = None
        self._absent: set[str] = set()

    def turn(self, now_s: float) -> None:
        """Check the ids. Call it regularly. Raises ``IncompatibleError`` if a topic is another one, or is missing
        twice: a broker that has just started may not know all of them."""
        if self._asked is not None:
            found = self._asked()
            if found is not None:
                self._asked = None
                self._compare(found)
        elif self._asked_s is None or now_s - self._asked_s >= self._interval_s:
            self._asked_s = now_s
            self._asked = self._ask(sorted(self._ids))

    def _compare(self, found: Mapping[str, str]) -> None:
        if not found:
            return
        absent = self._ids.keys() - found.keys()
        for topic in sorted(absent & self._absent):
            raise IncompatibleError(f"topic {topic} was deleted while it is in use; {_REMEDY}")
        self._absent = absent
        for topic, topic_id in found.items():
            if topic_id != self._ids.get(topic, topic_id):
                raise IncompatibleError(
                    f"topic {topic} was deleted and recreated while it is in use: its id was {self._ids[topic]} and is "
                    f"{topic_id}, so that offsets mean nothing in it; {_REMEDY}"
                )


_REMEDY = (
    "stop the application. If the topic is its input, reset the group's positions; if it is one of its own, delete its "
    "changelog topics and state folder too, so that the stores are built again"
)
