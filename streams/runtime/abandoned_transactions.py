"""Transactions that a dead worker of the group left open, and how the next owner of its tasks ends them.

An open transaction keeps the positions in it, and all that readers of committed records see behind it, until a timeout
of the brokers, which they look for every ten seconds only. So every commit notes with its positions which worker made it
(``CommitMetadata.owner``), and members of the group go by the same name there. Who is given partitions asks first who has
committed last and who is a member now. A worker that is noted but not a member is fenced: a producer of its transactional
id is opened and closed, which ends its transaction, as an abort unless the coordinator has its commit already. Only then
the committed positions are read.

Nothing depends on it but time. A worker that was only frozen has lost its place: when it wakes it is refused, and joins
again with a new producer. Two that fence the same worker at once do no harm, nor does a failure
half-way: the timeout then ends what is left. A worker that stops in order takes its name back (``released``), so that the
next one does not fence its restart.

No member is ever fenced by a mistake about names: a worker that does not see its own name among the members' fences nobody,
and one whose name the group does not show notes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from penstock.state.errors import PenstockError, TaskMigratedError
from penstock.state.log import TopicPartition
from penstock.streams.events.facts import DeadWorkerFenced
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.task.task import Task

LIMIT_S = 5.0
"""The most time that a worker which was given partitions takes to end what others have left."""


class AbandonedTransactions:
    """For one worker of the group. ``own``: its name; ``noted()`` gives what is committed for all inputs, without waiting
    for open transactions; ``members()`` the names of the group's members now; ``fence(name, limit_s)`` ends what that worker
    has open, and refuses what it sends later."""

    def __init__(
        self,
        own: str,
        noted: Callable[[], Mapping[TopicPartition, OffsetAndMetadata | None]],
        members: Callable[[], Iterable[str]],
        fence: Callable[[str, float], None],
        clock_s: Callable[[], float],
        events: EventSink = NO_EVENTS,
    ) -> None:
        self._own = own
        self._noted = noted
        self._members = members
        self._fence = fence
        self._clock_s = clock_s
        self._events = events
        self._fenced: set[str] = set()
        """Those not seen as members since they were fenced: they have nothing open that this one would wait for."""

    def on_joined(self, given: Sequence[TopicPartition]) -> None:
        """These partitions were given, and their positions not read yet. Raises nothing that the brokers say."""
        try:
            gone = self._gone(given)
        except PenstockError:
            return
        until_s = self._clock_s() + LIMIT_S
        for name in gone:
            left_s = until_s - self._clock_s()
            if left_s <= 0:
                return
            try:
                self._fence(name, left_s)
            except TaskMigratedError:
                pass  # another worker has fenced it in the same moment
            except PenstockError:
                continue
            self._fenced.add(name)
            self._events.emit(DeadWorkerFenced(name))

    def _gone(self, given: Sequence[TopicPartition]) -> list[str]:
        """Who is noted but not a member; those first whose partitions were given. The others matter too: a worker that died
        before its first commit of a partition is noted elsewhere only."""
        noted = self._noted()
        owners = {tp: commit_metadata.decode(c.metadata).owner for tp, c in noted.items() if c is not None}
        present = set(self._members())  # asked after the notes: who has noted its name since is a member
        if self._own not in present:
            return []
        self._fenced -= present
        mine = set(given)
        order = sorted(owners, key=lambda tp: (tp not in mine, tp))
        return [
            name for name in dict.fromkeys(owners[tp] for tp in order) if name and name not in present | self._fenced
        ]


def released(tasks: Iterable[Task]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The last positions of these tasks once more, without the name of who committed them, where there is one."""
    out: dict[TopicPartition, OffsetAndMetadata] = {}
    for task in tasks:
        for topic, position in task.own_positions.known.items():
            noted = commit_metadata.decode(position.metadata)
            if noted.owner:
                freed = msgspec.structs.replace(noted, owner="")
                out[TopicPartition(topic, task.id.partition)] = OffsetAndMetadata(
                    position.offset, commit_metadata.encode(freed)
                )
    return out
