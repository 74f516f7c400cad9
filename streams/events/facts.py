"""The facts that a worker reports: a closed set of values, emitted once each by the code that knows them.

``Fact`` is the union of them all. Whoever handles facts matches on every class of it; mypy then finds the place that lacks a
new one. Facts carry no record contents, except in ``detail`` and in the text of a ``cause``, which adapters show only when
asked. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

from penstock.state.log import TaskId, TopicPartition

Outcome = Literal["committed", "not_committed"]
StopReason = Literal["requested", "shutdown", "error"]
BadRecord = Literal["deserialization", "processing", "timestamp"]

# -- the worker ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WorkerStarted:
    """The process has begun: what runs, and the settings that differ from the defaults. No secrets."""

    version: str
    application: str
    guarantee: str
    compiled: bool
    state_dir: str
    settings: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ClusterFound:
    """A broker has answered for the first time."""

    cluster: str
    servers: str


@dataclasses.dataclass(frozen=True)
class WaitingForBrokers:
    """No broker can be reached, or none answers what a worker asks when it starts (``cause``)."""

    servers: str
    cause: BaseException | None = None


@dataclasses.dataclass(frozen=True)
class BrokersFound:
    """A broker can be reached again. ``repeated_lines``: how many lines of the client's own log said the same as others
    meanwhile, and were left out."""

    servers: str
    away_s: float
    repeated_lines: int


@dataclasses.dataclass(frozen=True)
class Waiting:
    """What the worker tries (``doing``) has not been answered for ``waited_s``; it is tried until it works. Reported once a
    minute after the fact with which the wait began."""

    doing: str
    cause: BaseException
    waited_s: float


@dataclasses.dataclass(frozen=True)
class WaitEnded:
    """A wait is over: what the worker tried works again."""

    doing: str
    waited_s: float


@dataclasses.dataclass(frozen=True)
class WorkerStopped:
    """The worker has ended: by a request, because the topology asked for it, or with an error."""

    reason: StopReason
    cause: BaseException | None


@dataclasses.dataclass(frozen=True)
class ProcessEnded:
    """A supervised process has ended by itself. ``restart_s``: started again after this pause; ``None``: not started
    again."""

    process: int
    pid: int
    status: int
    restart_s: float | None


# -- the group and its tasks -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TasksAssigned:
    """The group, or the setting of fixed partitions, gave these tasks."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class TasksRevoked:
    """The group takes these tasks; what they did is committed first where that is possible."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class TasksLost:
    """The group has taken these tasks already; what they did since the last commit is discarded."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class Rejoining:
    """Fenced, no longer a member, or without an answer half-way: everything uncommitted is discarded and the group is joined
    again in ``pause_s``. ``losses``: how often in a row this worker was fenced or excluded."""

    cause: BaseException
    pause_s: float
    losses: int


@dataclasses.dataclass(frozen=True)
class Fenced:
    """Another worker has these tasks now, and this one gives way."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class TaskRunning:
    """The task's stores are ready and it processes from these offsets, by topic."""

    task: TaskId
    positions: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class TaskReopened:
    """The task is closed and opened again: its stores are damaged or lack a commit that took place."""

    task: TaskId
    reason: str


@dataclasses.dataclass(frozen=True)
class TaskCaughtUp:
    """The task has read its inputs to their ends, for the first time since it runs or since it fell behind."""

    task: TaskId


@dataclasses.dataclass(frozen=True)
class FallingBehind:
    """The task had caught up, and has not reached the ends of its inputs for ``behind_s`` since."""

    task: TaskId
    lag: int
    behind_s: float


# -- stores ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LockAwaited:
    """Another process still holds the task's folder. Reported when it is met, and once a minute."""

    task: TaskId
    waited_s: float


@dataclasses.dataclass(frozen=True)
class RestoreStarted:
    """A store is brought to the end of its changelog: ``[from_offset, to_offset)`` is read."""

    task: TaskId
    store: str
    from_offset: int
    to_offset: int
    reason: str


@dataclasses.dataclass(frozen=True)
class RestoreProgressed:
    """A restore goes on."""

    task: TaskId
    store: str
    offset: int
    to_offset: int
    records_per_s: float


@dataclasses.dataclass(frozen=True)
class RestoreFinished:
    """A store stands at the end of its changelog, ``offset``. ``records``: how many were read for it; 0: none was needed."""

    task: TaskId
    store: str
    offset: int
    records: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class RestoreRetried:
    """Brokers did not answer a restore; it is tried again and goes on where it stands. Reported when that begins, and once a
    minute."""

    task: TaskId
    cause: BaseException
    waited_s: float


@dataclasses.dataclass(frozen=True)
class RestoreCancelled:
    """The task was taken away while its stores were restored."""

    task: TaskId


@dataclasses.dataclass(frozen=True)
class StoreQuarantined:
    """The task's local state cannot be used and was put aside."""

    task: TaskId
    reason: str


@dataclasses.dataclass(frozen=True)
class SnapshotUsed:
    """A snapshot was loaded into an empty store; it reaches ``offset`` of the changelog."""

    task: TaskId
    store: str
    snapshot: str
    offset: int


@dataclasses.dataclass(frozen=True)
class SnapshotRefused:
    """A snapshot was not used."""

    task: TaskId
    store: str
    reason: str


# -- commits ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Committed:
    """The log has the commit of these tasks. ``seconds``: from its begin until then."""

    tasks: tuple[TaskId, ...]
    records: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class CommitLate:
    """A commit came ``seconds`` after the one before it, with ``interval_s`` between them wanted."""

    seconds: float
    interval_s: float


@dataclasses.dataclass(frozen=True)
class CommitAborted:
    """What was done since the last commit is discarded and done again."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class AbortDelayed:
    """An abort is not answered; it is tried again before anything else."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class CommitDelayed:
    """A commit was not answered. It is tried again until it works; only the first failure is reported."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class ForeignWritesReplaced:
    """At-least-once: a worker that no longer owns the task wrote to a store's changelog. The owner wrote its own
    values of these ``keys`` again, so that the changelog matches the store
    (``penstock.streams.runtime.foreign_writes``)."""

    task: TaskId
    store: str
    keys: int


@dataclasses.dataclass(frozen=True)
class TransactionInDoubt:
    """The answer to a commit was lost, and the committed offsets showed the outcome."""

    outcome: Outcome


@dataclasses.dataclass(frozen=True)
class ProducerRetired:
    """A producer was given up; a new one takes its place."""

    cause: BaseException


# -- records ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RecordFailed:
    """A record cannot be processed, and the policy is ``fail``: the worker stops. ``place``: topic, partition and offset;
    ``None``: the clock or a commit emitted it."""

    task: TaskId
    kind: BadRecord
    operator: str
    place: tuple[str, int, int] | None
    error: str
    detail: str


@dataclasses.dataclass(frozen=True)
class RecordSkipped:
    """As ``RecordFailed``, with the policy ``skip``: the worker goes on without the record."""

    task: TaskId
    kind: BadRecord
    operator: str
    place: tuple[str, int, int] | None
    error: str
    detail: str


@dataclasses.dataclass(frozen=True)
class RecordDeadLettered:
    """As ``RecordFailed``, with the policy ``dead_letter``: the record goes to the dead letter topic."""

    task: TaskId
    kind: BadRecord
    operator: str
    place: tuple[str, int, int] | None
    error: str
    detail: str


@dataclasses.dataclass(frozen=True)
class TimestampsClamped:
    """The policy ``clamp`` gave records of one poll the stream time of their partition."""

    task: TaskId
    partition: TopicPartition
    records: int


# -- flow ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PartitionPaused:
    """Enough of this partition is buffered; it is not read for now."""

    partition: TopicPartition
    buffered: int


@dataclasses.dataclass(frozen=True)
class PartitionResumed:
    """The partition is read again."""

    partition: TopicPartition
    paused_s: float


@dataclasses.dataclass(frozen=True)
class SourceIdle:
    """No record of this input came for its idle time; the watermark goes on without it."""

    task: TaskId
    topic: str


@dataclasses.dataclass(frozen=True)
class PurgeFailed:
    """Records that nobody needs any more could not be deleted from a topic of this application; it is tried again."""

    partition: TopicPartition
    cause: str


WorkerFact: TypeAlias = (
    WorkerStarted | ClusterFound | WaitingForBrokers | BrokersFound | Waiting | WaitEnded | WorkerStopped | ProcessEnded
)
TaskFact: TypeAlias = (
    TasksAssigned
    | TasksRevoked
    | TasksLost
    | Rejoining
    | Fenced
    | TaskRunning
    | TaskReopened
    | TaskCaughtUp
    | FallingBehind
)
StoreFact: TypeAlias = (
    LockAwaited
    | RestoreStarted
    | RestoreProgressed
    | RestoreFinished
    | RestoreRetried
    | RestoreCancelled
    | StoreQuarantined
    | SnapshotUsed
    | SnapshotRefused
)
CommitFact: TypeAlias = (
    Committed
    | CommitLate
    | CommitAborted
    | AbortDelayed
    | CommitDelayed
    | ForeignWritesReplaced
    | TransactionInDoubt
    | ProducerRetired
)
RecordFact: TypeAlias = RecordFailed | RecordSkipped | RecordDeadLettered | TimestampsClamped
FlowFact: TypeAlias = PartitionPaused | PartitionResumed | SourceIdle | PurgeFailed
Fact: TypeAlias = WorkerFact | TaskFact | StoreFact | CommitFact | RecordFact | FlowFact
