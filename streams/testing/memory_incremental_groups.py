"""Consumer groups of the in-memory log under the broker's own protocol (KIP-848, ``group.protocol=consumer``).

The coordinator keeps a group epoch and a target: who is to have which partitions. A change of membership makes a new one of
both. Each member moves towards the target by its heartbeats, alone: it learns what to give up and goes on with the rest.
It reaches the group's epoch with the heartbeat that acknowledges this. A partition comes to its new owner only then, or
when the member that had it was removed; until then the new owner waits for it, in the new epoch.

A heartbeat may change a member's epoch without changing what it has. Brokers before KIP-1251 refuse a commit with an
epoch of before (``strict_epochs``). Later ones accept it for partitions that the member has had since then.

While a static member is in the group, another one with its id is refused: also the same process, started again after it
was killed, until the time of its former self is over. The client library lets static members leave when they close.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import StaleEpochError
from penstock.streams.testing.memory_groups import GroupToken, Member, MemoryGroup


@dataclasses.dataclass(eq=False)
class IncrementalMember(Member):
    """``generation`` is its own epoch, and ``assignment`` what it may read. ``revoking``: what it has still to give up;
    ``since``: the epoch in which each partition was given to it."""

    revoking: tuple[TopicPartition, ...] = ()
    since: dict[TopicPartition, int] = dataclasses.field(default_factory=dict)


class IncrementalGroup(MemoryGroup):
    """See the module. ``generation`` is the group's epoch."""

    strict_epochs = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.target: dict[str, tuple[TopicPartition, ...]] = {}
        self._counts: Mapping[str, int] = {}
        self._given = Counter[TopicPartition]()

    def join(
        self,
        topics: Sequence[str],
        poll_interval_max_ms: int,
        now_ms: int,
        client_id: str = "",
        instance_id: str = "",
    ) -> IncrementalMember:
        """A new member, which has nothing yet. Raises ``RetriableError`` where another one has this instance id."""
        if self._static(instance_id) is not None:
            raise RetriableError(
                f"the group_instance_id {instance_id!r} is in use in group {self.name}: by another process with the same "
                "one, or by this one's former self until its time is over; try again"
            )
        self._joins += 1
        member = IncrementalMember(
            f"{self.name}-{self._joins}", tuple(sorted(topics)), poll_interval_max_ms, now_ms, client_id, instance_id
        )
        self.members[member.member_id] = member
        self._aim()
        return member

    def leave(self, member: Member) -> None:
        """Remove a member. What it had is free for the others."""
        if self.members.pop(member.member_id, None) is not None:
            self.target.pop(member.member_id, None)
            self._aim()

    def expire(self, now_ms: int) -> None:
        """Remove the members that have not polled in time; for the others the client's heartbeats go on."""
        super().expire(now_ms)
        for member in list(self.members.values()):
            if isinstance(member, IncrementalMember) and member.generation >= 0:
                self._move(member, None)

    def _aim(self) -> None:
        self.generation += 1
        self.target = {m.member_id: given for m, given in self._ranges(self._counts).items()}

    def heartbeat(
        self,
        member: IncrementalMember,
        owned: Collection[TopicPartition],
        partition_counts: Mapping[str, int],
    ) -> None:
        """A member tells what it has, and learns its epoch, what it may read and what it must give up."""
        if dict(partition_counts) != self._counts:
            self._counts = dict(partition_counts)
            self._aim()
        self._move(member, owned)

    def _move(self, member: IncrementalMember, owned: Collection[TopicPartition] | None) -> None:
        """One member's step towards the target. ``owned`` is ``None`` where the heartbeat says nothing of it."""
        target = self.target.get(member.member_id, ())
        if member.generation == self.generation and len(member.assignment) == len(target) and not member.revoking:
            return
        if member.revoking and (owned is None or not set(owned).isdisjoint(member.revoking)):
            return
        member.revoking = ()
        revoking = tuple(tp for tp in member.assignment if tp not in target)
        member.assignment = tuple(tp for tp in member.assignment if tp in target)
        if revoking:
            member.revoking = revoking
            return
        member.generation = self.generation
        taken = self._taken()
        fresh = [tp for tp in target if tp not in taken]
        self._given.update(fresh)
        member.assignment = tuple(sorted((*member.assignment, *fresh)))
        member.since = {tp: member.since.get(tp, self.generation) for tp in member.assignment}

    def _taken(self) -> set[TopicPartition]:
        """Return the partitions that members have, or have not yet given up."""
        members = [m for m in self.members.values() if isinstance(m, IncrementalMember)]
        return {tp for m in members for tp in (*m.assignment, *m.revoking)}

    def grow(self) -> None:
        """Raise the group's epoch without changing the target, and let the members' next heartbeats pass."""
        self.generation += 1
        for member in self.members.values():
            if isinstance(member, IncrementalMember) and member.generation >= 0:
                self._move(member, None)

    def check(self, token: GroupToken, partitions: Iterable[TopicPartition] = ()) -> None:
        """Raises ``StaleEpochError`` for a membership that is over, or an epoch with which these partitions may not be
        committed."""
        if not token.member_id:
            return
        member = self.members.get(token.member_id)
        if isinstance(member, IncrementalMember):
            if token.generation == member.generation:
                return
            had = all(token.generation >= member.since.get(tp, self.generation + 1) for tp in partitions)
            if token.generation < member.generation and had and not self.strict_epochs:
                return
        raise StaleEpochError(
            f"member {token.member_id} of epoch {token.generation} is no longer one of group {self.name}, which is at epoch "
            f"{self.generation}; discard uncommitted work and join the group again"
        )

    def tenures(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """See the base class: how often each partition was given."""
        return defaultdict(lambda: (0, 0), {tp: (times, self.replaced) for tp, times in self._given.items()})
