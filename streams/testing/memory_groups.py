"""Consumer groups of the in-memory log: eager ``range`` assignment with generations, driven by the members' polls.

A change of membership starts a round. Each member takes part at its next poll, where it first gives up what it has;
when all have, the generation grows and each gets its new partitions at its next poll. Until then the old generation may
still commit, as in Kafka. A member that does not poll in time is removed, and learns of it at its next poll.

A static member has an ``instance_id``. Whoever joins with the id of a member takes its place: the same partitions in the
same generation, without a round (KIP-345). The older one is fenced. Closing does not end a static membership.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from penstock.state.errors import UserError
from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata, StaleEpochError


@dataclasses.dataclass(frozen=True, slots=True)
class GroupToken:
    """Membership at one generation; an empty ``member_id`` names the group alone and fences nothing."""

    group: str
    generation: int
    member_id: str
    instance_id: str = ""


@dataclasses.dataclass(eq=False)
class Member:
    """One consumer in a group. ``assignment`` is what it was given last, ``taken`` whether it has accepted it."""

    member_id: str
    topics: tuple[str, ...]
    poll_interval_max_ms: int
    last_poll_ms: int
    client_id: str = ""
    instance_id: str = ""
    round: int = -1
    generation: int = -1
    assignment: tuple[TopicPartition, ...] = ()
    taken: bool = True


class MemoryGroup:
    """Members, generation and committed positions of one group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.generation = 0
        self.round = 0
        self.members: dict[str, Member] = {}
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.replaced = 0
        """How often the place of a static member was taken."""
        self._joins = 0

    def join(
        self,
        topics: Sequence[str],
        poll_interval_max_ms: int,
        now_ms: int,
        client_id: str = "",
        instance_id: str = "",
    ) -> Member:
        """A new member; starts a round. If a static member has this id already, it is replaced, without a round."""
        self._joins += 1
        name = f"{self.name}-{self._joins}"
        member = Member(name, tuple(sorted(topics)), poll_interval_max_ms, now_ms, client_id, instance_id)
        before = self._static(instance_id)
        if before is None:
            self.round += 1
        else:
            self._replace(before, member)
        self.members[member.member_id] = member
        return member

    def _static(self, instance_id: str) -> Member | None:
        return next((m for m in self.members.values() if instance_id and m.instance_id == instance_id), None)

    def _replace(self, before: Member, member: Member) -> None:
        """Between rounds the new one has what the one before had. In a round it takes part as any other."""
        settled = all(m.round == self.round for m in self.members.values())
        del self.members[before.member_id]
        self.replaced += 1
        if settled and before.topics == member.topics:
            member.round, member.generation = before.round, before.generation
            member.assignment, member.taken = before.assignment, False
        elif settled:
            self.round += 1

    def leave(self, member: Member) -> None:
        """Remove a member; starts a round for the others."""
        if self.members.pop(member.member_id, None) is not None:
            self.round += 1

    def expire(self, now_ms: int) -> None:
        """Remove the members that have not polled in time."""
        for member in list(self.members.values()):
            if now_ms - member.last_poll_ms > member.poll_interval_max_ms:
                self.leave(member)

    def has(self, member: Member) -> bool:
        """Whether this is still a member."""
        return self.members.get(member.member_id) is member

    def check_instance(self, member_id: str, instance_id: str) -> None:
        """Raises ``UserError`` for a static member whose place was taken."""
        current = self._static(instance_id)
        if current is not None and current.member_id != member_id:
            raise UserError(
                f"member {member_id} of group {self.name} was fenced: another process has the same group_instance_id, "
                f"{instance_id!r}; give each process an id of its own"
            )

    def take_part(self, member: Member, partition_counts: Mapping[str, int]) -> None:
        """The member has given up what it had. The last one to do so completes the round."""
        member.round = self.round
        member.assignment = ()
        member.taken = True
        if all(m.round == self.round for m in self.members.values()):
            self.generation += 1
            for m, assignment in self._ranges(partition_counts).items():
                m.generation, m.assignment, m.taken = self.generation, assignment, False

    def _ranges(self, partition_counts: Mapping[str, int]) -> dict[Member, tuple[TopicPartition, ...]]:
        """Kafka's range assignor: each topic's partitions in order, in runs, over the members in order; of static members
        that is the order of their instance ids."""
        out: dict[Member, list[TopicPartition]] = {m: [] for m in self.members.values()}
        in_order = sorted(self.members.items(), key=lambda item: item[1].instance_id or item[0])
        for topic, count in sorted(partition_counts.items()):
            readers = [m for _, m in in_order if topic in m.topics]
            start = 0
            for i, member in enumerate(readers):
                share = count // len(readers) + (1 if i < count % len(readers) else 0)
                out[member] += [TopicPartition(topic, p) for p in range(start, start + share)]
                start += share
        return {member: tuple(partitions) for member, partitions in out.items()}

    def grow(self) -> None:
        """Raise the epoch without changing any assignment: as with the broker's own protocol before KIP-1251, when a
        member joins and no partition is left for it. Not in the middle of a round."""
        if all(m.round == self.round for m in self.members.values()):
            self.generation += 1
            for member in self.members.values():
                member.generation = self.generation

    def tenures(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """For each partition a value that changes when its owner may be another."""
        now = (self.generation, self.replaced)
        return defaultdict(lambda: now)

    def check(self, token: GroupToken, partitions: Iterable[TopicPartition] = ()) -> None:
        """Raises ``StaleEpochError`` for a membership that is over, ``UserError`` where a twin has taken its place."""
        if not token.member_id:
            return
        self.check_instance(token.member_id, token.instance_id)
        if token.member_id not in self.members or token.generation != self.generation:
            raise StaleEpochError(
                f"member {token.member_id} of generation {token.generation} is no longer one of group {self.name}, which "
                f"is at generation {self.generation}; discard uncommitted work and join the group again"
            )
