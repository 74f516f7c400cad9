"""The ports to the log: a consumer, a producer and an admin, as protocols in columns.

Two homes implement them: ``penstock.streams.kafka`` (librdkafka) and ``penstock.streams.testing.memory_log`` (an
in-process log, the model, held to the same contract tests as the real broker). Errors are Penstock's:
``RetriableError`` (nothing happened, try again), ``TaskMigratedError`` (fenced or no longer a member),
``AbortableError`` (abort the transaction), ``UnknownOutcomeError`` (the commit may or may not have happened: retire the
producer and read what is committed), ``ProducerRetiredError`` (this handle is unusable). Pure: protocols and values
only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.state.errors import PenstockError, TaskMigratedError
from penstock.state.log import Headers, TopicPartition
from penstock.streams.ports.chunk import Chunk
from penstock.topologies.operator_api.columns import Column, Ints

OnPartitions = Callable[[Sequence[TopicPartition]], None]
"""Called with the partitions that were assigned, revoked or lost."""


class AbortableError(PenstockError):
    """A record was refused or the transaction cannot go on: abort, drop uncommitted work, retire the producer."""


class UnknownOutcomeError(PenstockError):
    """The commit may or may not have happened: retire the producer, then read the committed offsets and decide."""


class ProducerRetiredError(PenstockError):
    """The producer handle has seen a fatal error or was retired; open a new one."""


class StaleEpochError(TaskMigratedError):
    """The membership token is older than the group: the member was removed or, with the broker's own protocol before
    KIP-1251, the group's epoch grew without an assignment for this member."""


class Fetched(NamedTuple):
    """One poll: chunks (at most one per partition), and the partitions whose end (last stable offset) was reached,
    after the chunk of the same poll, with the offset of that end."""

    chunks: list[Chunk]
    ends: dict[TopicPartition, int]


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and the metadata string written with it ("" if none)."""

    offset: int
    metadata: str


class LogConsumer(Protocol):
    """Reads committed records. Used by one thread; callbacks run inside ``poll`` on that thread."""

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        on_assign: OnPartitions,
        on_revoke: OnPartitions,
        on_lost: OnPartitions,
    ) -> None:
        """Join the group. ``on_assign`` gets newly assigned partitions and must ``assign_at`` each of them;
        an exception raised by a callback comes out of ``poll``."""

    def assign_at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Start reading these partitions at these offsets (added to what is assigned already)."""

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""

    def poll(self, max_records: int, timeout_s: float) -> Fetched:
        """Up to ``max_records`` records; returns early when there is something. Raises the consumer's fatal errors."""

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """The next record of this partition is the one at ``offset`` (or the first after it)."""

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Stable committed positions of the group: waits for pending transactions. ``None`` where there is none."""

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit synchronously, as a member. Raises ``TaskMigratedError`` when no longer one."""

    def group_metadata(self) -> Any:
        """Opaque membership token for ``send_offsets``. Take it in ``on_assign`` and keep it until the next one; if
        epochs grow without an assignment, take it before each commit. After the member was lost it has no valid token
        until ``on_lost`` was called."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """First offset still there, and the last stable offset (next to be written)."""

    def leader_epochs(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The epochs of the leaders now; a partition whose leader's is not known is left out. While it stays the same,
        nothing that was acknowledged is lost."""

    def holds(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """Whether the records before ``offset`` are still those that the leader of this epoch had. If not, a later leader
        lacked some of them, and others may stand there now. Only for a consumer without a group."""

    def known_ends(self) -> Mapping[TopicPartition, int]:
        """The last stable offsets of what is read, as last seen, without a request. Safe in any thread."""

    def close(self) -> None:
        """Leave the group and release everything. Idempotent."""


class LogProducer(Protocol):
    """Writes columns of records. With a transactional id everything between ``begin`` and ``commit`` is one unit."""

    def init_transactions(self, timeout_s: float) -> None:
        """Fence older producers of the same transactional id and wait for their transactions to end."""

    def begin(self) -> None: ...

    def send(
        self,
        topic: str,
        keys: Sequence[bytes | None] | Column,
        values: Sequence[bytes | None] | Column,
        timestamps: Sequence[int] | Ints,
        headers: Sequence[Headers] | None = None,
        *,
        partition: int | Sequence[int] | None = None,
    ) -> None:
        """Queue records in order; columns hold ``bytes | None``. ``partition``: one for all, one each (-1: as
        ``None``), or ``None``: murmur2 of the key (null keys: any). A full queue is polled until there is room. A
        record refused locally (too large) raises ``AbortableError`` with its place. Timestamp 0 is written with the
        ``penstock.ts`` header."""

    def flush(self, timeout_s: float) -> dict[TopicPartition, int]:
        """Wait until everything sent is acknowledged. Returns, for each partition that was sent to with an explicit
        ``partition``, the offset after the last acknowledged record since the last flush. Raises ``AbortableError``
        if any record failed (transactional or not), ``RetriableError`` on timeout."""

    def unacknowledged(self) -> int:
        """The number of records without an acknowledgement; if 0, ``flush`` would not wait. Raises the error that
        ended the handle; ``flush`` raises it again."""

    def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: Any, timeout_s: float) -> None:
        """Add input positions to the transaction. ``group`` is a ``group_metadata`` or a plain group id (no fencing by
        membership). ``TaskMigratedError`` if fenced."""

    def commit(self, timeout_s: float) -> None:
        """Commit the transaction. Raises ``UnknownOutcomeError`` if no answer arrives."""

    def abort(self, timeout_s: float) -> None: ...

    def close(self) -> None:
        """Drop what is queued and release everything; an open transaction is left to its timeout. Idempotent."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be created: ``replication_factor`` -1 is the broker's default."""

    name: str
    partitions: int
    replication_factor: int = -1
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)


Deletion = Callable[[], Mapping[TopicPartition, str] | None]
"""A deletion under way: ``None`` while it is, then what went wrong, by partition. Never raises."""


Asked = Callable[[], Mapping[str, str] | None]
"""A pending request: ``None`` until it is answered, then the ids of existing topics; empty if nobody answered."""


class LogAdmin(Protocol):
    """Looks at and creates topics and groups."""

    def require_answer(self) -> None:
        """Raises ``EnvironmentFault`` if the log does not answer soon, and ``UserError`` if it refuses to."""

    def cluster_id(self) -> str: ...

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """Partition count of each topic that exists; absent topics are left out."""

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The topic ids of existing topics."""

    def ask_topic_ids(self, topics: Sequence[str]) -> Asked:
        """Ask for topic ids without waiting."""

    def topic_config(self, topic: str) -> dict[str, str]:
        """The topic's effective settings."""

    def set_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Change these settings of a topic, and only these."""

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Create what is missing. Raises ``IncompatibleError`` if a topic exists with another partition count."""

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Deletion:
        """Start deleting the records before these offsets; returns at once."""

    def topics(self, prefix: str) -> dict[str, int]:
        """The partition count of every topic whose name has this prefix."""

    def groups(self, prefix: str) -> list[str]:
        """The groups whose id has this prefix."""

    def group_members(self, group: str) -> int:
        """How many members the group has now."""

    def group_clients(self, group: str) -> list[str]:
        """The ``client.id`` of each member that the group has now."""

    def group_member_ids(self, group: str) -> dict[str, str]:
        """The ``client.id`` of each member by the member's id, which is another one when an excluded member joins again."""

    def set_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the committed offsets of a group that has no members."""


class Log(Protocol):
    """The log that a worker runs on, as ``Worker(open_log=…)`` takes it: opens clients, which the caller closes."""

    @property
    def epochs_grow(self) -> bool:
        """Whether the epoch of a group grows without an assignment, so that a membership token is taken before each
        commit."""

    @property
    def names_members(self) -> bool:
        """Whether ``LogAdmin.group_clients`` shows members by the ``client_id`` that ``member`` was given."""

    def admin(self, *, request_timeout_s: float | None = None) -> LogAdmin:
        """An admin. Its calls give up after ``request_timeout_s``, or after the log's own default."""

    def member(self, group: str, client_id: str | None = None) -> LogConsumer:
        """The consumer that takes part in the application's group."""

    def reader(self, group: str) -> LogConsumer:
        """A consumer for committed records, or to join a group that is not the application's."""

    def position_reader(self, group: str, *, request_timeout_s: float) -> LogConsumer:
        """A consumer that joins nothing and whose ``committed`` does not wait for open transactions."""

    def producer(self, transactional_id: str | None = None, *, bulk: bool = False) -> LogProducer:
        """``bulk``: the outputs and changelogs of tasks go through it."""
