"""The facts that a worker reports: a closed set of values. Each is emitted once, by the code that knows it.

``Fact`` is the union of all of them. Code that handles facts matches on every class, so mypy finds the places that
miss a new one. Facts carry no record contents, except in ``detail`` and in the text of a ``cause``, which adapters
show only on request. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

from penstock.state.log import TaskId, TopicPartition

CommitOutcome = Literal["committed", "not_committed"]
StopReason = Literal["requested", "shutdown", "error"]
BadRecord = Literal["deserialization", "processing", "timestamp"]
Null = Literal["null_key", "null_value", "null_foreign_key"]

# -- the worker ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WorkerStarted:
    """The process has started: what it runs, and the settings that differ from the defaults. No secrets."""

    version: str
    application: str
    guarantee: str
    compiled: bool
    state_dir: str
    settings: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class ClusterFound:
    """A broker has answered for the first time. ``client``: the worker's ``client.id``, if Penstock gave it one."""

    cluster: str
    servers: str
    client: str | None = None


@dataclasses.dataclass(frozen=True)
class TopologyChanged:
    """The topology is not the one that last ran as this application, and its state can be used. ``changes`` names what
    changed, from what to what, and what happens to it."""

    application: str
    changes: str


@dataclasses.dataclass(frozen=True)
class WaitingForBrokers:
    """No broker can be reached, or none answers the requests that a worker makes when it starts (``cause``)."""

    servers: str
    cause: BaseException | None = None


@dataclasses.dataclass(frozen=True)
class BrokersFound:
    """A broker can be reached again. ``repeated_lines``: how many repeated lines of the client's own log were left
    out meanwhile."""

    servers: str
    away_s: float
    repeated_lines: int


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A request (``doing``) has not been answered for ``waited_s``; the worker retries until it is. Reported once a
    minute after the fact with which the wait began."""

    doing: str
    cause: BaseException
    waited_s: float


@dataclasses.dataclass(frozen=True)
class WaitEnded:
    """A wait is over: the request was answered, or was given up with the tasks that it was for."""

    doing: str
    waited_s: float


@dataclasses.dataclass(frozen=True)
class WorkerStopped:
    """The worker has stopped: on request, because the topology asked for it, or with an error."""

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
    """The group, or the setting of fixed partitions, assigned these tasks."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class TasksRevoked:
    """The group revokes these tasks; their work is committed first if possible."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class TasksLost:
    """The group has already given these tasks to others; their work since the last commit is discarded."""

    tasks: tuple[TaskId, ...]


@dataclasses.dataclass(frozen=True)
class Rejoining:
    """The worker was fenced or excluded from the group, or a rebalance was not answered: everything uncommitted is
    discarded, and the worker joins the group again in ``pause_s``. ``losses``: how often in a row it was fenced or
    excluded. ``turn_s``: how long the last turns of its loop took; many seconds mean that the process stood still."""

    cause: BaseException
    pause_s: float
    losses: int
    turn_s: float


@dataclasses.dataclass(frozen=True)
class Fenced:
    """Another worker owns these tasks now, so this one stops."""

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
    """The task has read its inputs to their ends, for the first time since it started or fell behind."""

    task: TaskId


@dataclasses.dataclass(frozen=True)
class FallingBehind:
    """The task had caught up, but has not reached the ends of its inputs for ``behind_s``."""

    task: TaskId
    lag: int
    behind_s: float


# -- stores ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LockAwaited:
    """Another process still holds the task's folder. Reported when the wait begins, and once a minute."""

    task: TaskId
    waited_s: float


@dataclasses.dataclass(frozen=True)
class RestoreStarted:
    """A store reads its changelog to the end: ``[from_offset, to_offset)``."""

    task: TaskId
    store: str
    from_offset: int
    to_offset: int
    reason: str


@dataclasses.dataclass(frozen=True)
class RestoreProgressed:
    """A restore goes on. ``remaining_s``: the estimated time to its end, by the offsets so far."""

    task: TaskId
    store: str
    offset: int
    to_offset: int
    records_per_s: float
    remaining_s: float


@dataclasses.dataclass(frozen=True)
class RestoreFinished:
    """A store is at the end of its changelog, ``offset``. ``records``: how many were read; 0: none was needed."""

    task: TaskId
    store: str
    offset: int
    records: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class RestoreRetried:
    """Brokers did not answer a restore; it is retried and continues where it was. Reported when the wait begins, and
    once a minute."""

    task: TaskId
    cause: BaseException
    waited_s: float


@dataclasses.dataclass(frozen=True)
class RestoreCancelled:
    """The task was revoked while its stores were restored."""

    task: TaskId


@dataclasses.dataclass(frozen=True)
class StoreQuarantined:
    """The task's local state cannot be used and was quarantined."""

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
    """The log has the commit of these tasks. ``seconds``: how long it took."""

    tasks: tuple[TaskId, ...]
    records: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class CommitLate:
    """A commit came ``seconds`` after the one before it; ``interval_s`` is the commit interval."""

    seconds: float
    interval_s: float


@dataclasses.dataclass(frozen=True)
class CommitAborted:
    """The work since the last commit is discarded and repeated."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class AbortDelayed:
    """An abort is not answered; it is retried before anything else is done."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class CommitDelayed:
    """A commit was not answered. It is retried until it is; only the first failure is reported."""

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

    outcome: CommitOutcome


@dataclasses.dataclass(frozen=True)
class ProducerRetired:
    """A producer was replaced by a new one."""

    cause: BaseException


@dataclasses.dataclass(frozen=True)
class DeadWorkerFenced:
    """``worker`` has committed positions of this application's inputs and is no longer a member of its group: what it had
    left open was ended, so that nobody waits for it."""

    worker: str


# -- records ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _BadRecordFact:
    """``place``: topic, partition and offset; ``None`` if a timer or a commit emitted the record."""

    task: TaskId
    kind: BadRecord
    operator: str
    place: tuple[str, int, int] | None
    error: str
    detail: str


@dataclasses.dataclass(frozen=True)
class RecordFailed(_BadRecordFact):
    """A record cannot be processed, and the policy is ``fail``: the worker stops."""


@dataclasses.dataclass(frozen=True)
class RecordSkipped(_BadRecordFact):
    """As ``RecordFailed``, with the policy ``skip``: the worker continues without the record."""


@dataclasses.dataclass(frozen=True)
class RecordDeadLettered(_BadRecordFact):
    """As ``RecordFailed``, with the policy ``dead_letter``: the record goes to the dead letter topic."""


@dataclasses.dataclass(frozen=True)
class RecordHeld(_BadRecordFact):
    """A record failed, and its operator holds its key (``hold_key``): it waits, with the later ones of the key, and is tried
    again. ``attempts``: how often it has failed. ``place`` is ``None`` from the second time on."""

    attempts: int


@dataclasses.dataclass(frozen=True)
class TimestampsClamped:
    """The policy ``clamp`` gave records of one poll the stream time of their partition."""

    task: TaskId
    partition: TopicPartition
    records: int


@dataclasses.dataclass(frozen=True)
class NullsDropped:
    """An operator of a task dropped its first records with this null, which it cannot use. Later ones are only counted.
    ``declared``: ``FILE:LINE`` of the operator, if known."""

    task: TaskId
    operator: str
    reason: Null
    declared: str | None


@dataclasses.dataclass(frozen=True)
class ColumnsMissing:
    """No record of an untyped source has these columns so far, which expressions read as null. Each is followed by the
    names of columns that are there and look like it. ``declared``: ``FILE:LINE`` of the source, if known."""

    task: TaskId
    operator: str
    columns: tuple[str, ...]
    records: int
    declared: str | None


# -- flow ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PartitionPaused:
    """Enough of this partition is buffered; reading it is paused."""

    partition: TopicPartition
    buffered: int


@dataclasses.dataclass(frozen=True)
class PartitionResumed:
    """Reading the partition is resumed."""

    partition: TopicPartition
    paused_s: float


@dataclasses.dataclass(frozen=True)
class SourceIdle:
    """No record of this input arrived for its idle time; the watermark advances without it."""

    task: TaskId
    topic: str


@dataclasses.dataclass(frozen=True)
class PurgeFailed:
    """Consumed records could not be deleted from an internal topic; it is retried."""

    partition: TopicPartition
    cause: str


WorkerFact: TypeAlias = (
    WorkerStarted
    | ClusterFound
    | TopologyChanged
    | WaitingForBrokers
    | BrokersFound
    | Waiting
    | WaitEnded
    | WorkerStopped
    | ProcessEnded
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
    | DeadWorkerFenced
)
RecordFact: TypeAlias = (
    RecordFailed | RecordSkipped | RecordDeadLettered | RecordHeld | TimestampsClamped | NullsDropped | ColumnsMissing
)
FlowFact: TypeAlias = PartitionPaused | PartitionResumed | SourceIdle | PurgeFailed
Fact: TypeAlias = WorkerFact | TaskFact | StoreFact | CommitFact | RecordFact | FlowFact
