"""Consumer groups of the in-memory log: eager ``range`` assignment with generations, driven by the members' polls.

A change of membership starts a round. Each member takes part at its next poll, where it first gives up what it has;
when all have, the generation grows and each gets its new partitions at its next poll. Until then the old generation may
still commit, as in Kafka. A member that does not poll in time is removed, and learns of it at its next poll.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from penstock.state.log import TopicPartition
from penstock.streams.ports.log import OffsetAndMetadata, StaleEpochError


@dataclasses.dataclass(frozen=True, slots=True)
class GroupToken:
    """Membership at one generation; an empty ``member_id`` names the group alone and fences nothing."""

    group: str
    generation: int
    member_id: str


@dataclasses.dataclass(eq=False)
class Member:
    """One consumer in a group. ``assignment`` is what it was given last, ``taken`` whether it has accepted it."""

    member_id: str
    topics: tuple[str, ...]
    poll_interval_max_ms: int
    last_poll_ms: int
    client_id: str = ""
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
        self._joins = 0

    def join(self, topics: Sequence[str], poll_interval_max_ms: int, now_ms: int, client_id: str = "") -> Member:
        """A new member; starts a round."""
        self._joins += 1
        name = f"{self.name}-{self._joins}"
        member = Member(name, tuple(sorted(topics)), poll_interval_max_ms, now_ms, client_id)
        self.members[member.member_id] = member
        self.round += 1
        return member

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
        """Kafka's range assignor: each topic's partitions in order, in runs, over the members in order."""
        out: dict[Member, list[TopicPartition]] = {m: [] for m in self.members.values()}
        for topic, count in sorted(partition_counts.items()):
            readers = [m for _, m in sorted(self.members.items()) if topic in m.topics]
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

    def check(self, token: GroupToken) -> None:
        """Raises ``StaleEpochError`` for a membership that is over."""
        if not token.member_id:
            return
        if token.member_id not in self.members or token.generation != self.generation:
            raise StaleEpochError(
                f"member {token.member_id} of generation {token.generation} is no longer one of group {self.name}, which "
                f"is at generation {self.generation}; discard uncommitted work and join the group again"
            )
