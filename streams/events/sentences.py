"""Each fact as one log line: its level, its area, a sentence, and its fields. Pure.

Fields that may hold record contents (``detail``, and the text of errors about a record) are left out unless
requested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, assert_never

from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.events import facts as f

Level = Literal["debug", "info", "warning", "error"]
Area = Literal["worker", "task", "restore", "commit", "record", "flow"]
FieldValue = str | int | float | bool | list[str]


class Line(NamedTuple):
    """One log line, before it is formatted."""

    level: Level
    area: Area
    fact: str
    sentence: str
    fields: Mapping[str, FieldValue]


def line_of(fact: f.Fact, *, records: bool = False) -> Line:
    """The line of a fact. ``records``: also what may hold record contents."""
    level, area, sentence = sentence_of(fact)
    return Line(level, area, type(fact).__name__, sentence, fields_of(fact, records=records))


def fields_of(fact: f.Fact, *, records: bool = False) -> dict[str, FieldValue]:
    """The fields of a fact as texts and numbers."""
    out: dict[str, FieldValue] = {}
    for field in dataclasses.fields(fact):
        value = getattr(fact, field.name)
        if value is None or (field.name == "detail" and not records):
            continue
        if field.name == "place":
            out |= {"topic": value[0], "partition": value[1], "offset": value[2]}
        elif isinstance(value, Mapping):
            out |= {f"{field.name}.{key}": _plain(of, records) for key, of in value.items()}
        else:
            out[field.name] = _plain(value, records)
    return out


def _plain(value: Any, records: bool) -> FieldValue:
    if isinstance(value, BaseException):
        return text_of(value, records=records)
    if isinstance(value, TopicPartition):
        return f"{value.topic}-{value.partition}"
    if isinstance(value, TaskId):
        return str(value)
    if isinstance(value, tuple):
        return [str(item) for item in value]
    if isinstance(value, float):
        return round(value, 3)
    return value if isinstance(value, str | int) else str(value)


def text_of(error: BaseException, *, records: bool = False) -> str:
    """An error in one line. An error about a record quotes it, so without ``records`` only its class is named."""
    name = type(error).__name__
    if isinstance(error, ProcessingError | SerdeError) and not records:
        return name
    return f"{name}: {error}" if str(error) else name


def sentence_of(fact: f.Fact) -> tuple[Level, Area, str]:
    """The level, area and sentence of a fact."""
    if isinstance(fact, f.WorkerFact):
        return _worker(fact)
    if isinstance(fact, f.TaskFact):
        return _task(fact)
    if isinstance(fact, f.StoreFact):
        return _store(fact)
    if isinstance(fact, f.CommitFact):
        return _commit(fact)
    if isinstance(fact, f.RecordFact):
        return _record(fact)
    return _flow(fact)


def _worker(fact: f.WorkerFact) -> tuple[Level, Area, str]:
    match fact:
        case f.WorkerStarted():
            return "info", "worker", "Worker is starting"
        case f.ClusterFound():
            return "info", "worker", "Connected to the cluster"
        case f.TopologyChanged():
            return "warning", "worker", "The topology is not the one that ran last"
        case f.WaitingForBrokers():
            return "error", "worker", "No broker answers; waiting for one"
        case f.BrokersFound():
            return "info", "worker", "Brokers answer again"
        case f.Waiting():
            return "warning", "worker", "Still no answer; retrying"
        case f.WaitEnded():
            return "info", "worker", "The wait is over"
        case f.WorkerStopped(reason="error"):
            return "error", "worker", "Worker stopped with an error"
        case f.WorkerStopped():
            return "info", "worker", "Worker stopped"
        case f.ProcessEnded(restart_s=None):
            return "error", "worker", "Worker process ended"
        case f.ProcessEnded():
            return "warning", "worker", "Worker process ended; restarting it"
        case _:
            assert_never(fact)


def _task(fact: f.TaskFact) -> tuple[Level, Area, str]:
    match fact:
        case f.TasksAssigned():
            return "info", "task", "Tasks assigned"
        case f.TasksRevoked():
            return "info", "task", "Tasks revoked"
        case f.TasksLost():
            return "warning", "task", "Tasks lost; uncommitted work is discarded"
        case f.Rejoining():
            return "warning", "task", "Fenced, or no longer a member of the group; rejoining"
        case f.Fenced():
            return "warning", "task", "Fenced by another worker; stopping these tasks"
        case f.TaskRunning():
            return "info", "task", "Task is running"
        case f.TaskReopened():
            return "warning", "task", "Task is reopened"
        case f.TaskCaughtUp():
            return "info", "task", "Task has caught up"
        case f.FallingBehind():
            return "warning", "task", "Task is falling behind"
        case _:
            assert_never(fact)


def _store(fact: f.StoreFact) -> tuple[Level, Area, str]:
    match fact:
        case f.LockAwaited():
            return "info", "restore", "Waiting for another process to release the task's folder"
        case f.RestoreStarted():
            return "info", "restore", "Restoring a store"
        case f.RestoreProgressed():
            return "info", "restore", "Still restoring a store"
        case f.RestoreFinished(records=0):
            return "info", "restore", "Store is up to date"
        case f.RestoreFinished():
            return "info", "restore", "Store restored"
        case f.RestoreRetried():
            return "warning", "restore", "Restore is not answered; retrying"
        case f.RestoreCancelled():
            return "info", "restore", "Restore cancelled"
        case f.StoreQuarantined():
            return "warning", "restore", "Local state quarantined; restoring it from the log"
        case f.SnapshotUsed():
            return "info", "restore", "Snapshot loaded"
        case f.SnapshotRefused():
            return "warning", "restore", "Snapshot refused"
        case _:
            assert_never(fact)


def _commit(fact: f.CommitFact) -> tuple[Level, Area, str]:
    match fact:
        case f.Committed():
            return "debug", "commit", "Committed"
        case f.CommitLate():
            return "warning", "commit", "Commit is late"
        case f.CommitAborted():
            return "warning", "commit", "Commit aborted; continuing from the last commit"
        case f.AbortDelayed():
            return "warning", "commit", "Abort is not answered; retrying"
        case f.CommitDelayed():
            return "warning", "commit", "Commit is not answered; retrying"
        case f.ForeignWritesReplaced():
            return "warning", "commit", "Another worker wrote to a changelog; its values were replaced by the store's"
        case f.TransactionInDoubt():
            return (
                "warning",
                "commit",
                "The answer to a commit was lost; its outcome was read from the committed offsets",
            )
        case f.ProducerRetired():
            return "warning", "commit", "Producer retired"
        case f.DeadWorkerFenced():
            return "info", "commit", "Ended what a worker had left open that is no longer a member"
        case _:
            assert_never(fact)


def _record(fact: f.RecordFact) -> tuple[Level, Area, str]:
    match fact:
        case f.RecordFailed():
            return "error", "record", "Record failed; stopping"
        case f.RecordSkipped():
            return "warning", "record", "Record skipped"
        case f.RecordDeadLettered():
            return "warning", "record", "Record sent to the dead letter topic"
        case f.RecordHeld():
            return "warning", "record", "Record failed and holds its key: it waits, and is tried again"
        case f.TimestampsClamped():
            return "warning", "record", "Timestamps clamped to stream time"
        case f.NullsDropped():
            return "warning", "record", f"Operator {_NULLS[fact.reason]}. Later ones are only counted"
        case f.ColumnsMissing():
            return (
                "warning",
                "record",
                "Expressions read columns that no record has so far; they are null. Check the names",
            )
        case _:
            assert_never(fact)


_NULLS: Final[Mapping[f.Null, str]] = {
    "null_key": "drops records with a null key; give the stream a key before it, for example with select_key or group_by",
    "null_value": "drops records with a null value; give them a value before it, or filter them out",
    "null_foreign_key": "drops rows with a null foreign key; use a left join to keep them",
}


def _flow(fact: f.FlowFact) -> tuple[Level, Area, str]:
    match fact:
        case f.PartitionPaused():
            return "debug", "flow", "Partition paused"
        case f.PartitionResumed():
            return "debug", "flow", "Partition resumed"
        case f.SourceIdle():
            return "info", "flow", "Source is idle"
        case f.PurgeFailed():
            return "warning", "flow", "Consumed records could not be deleted; retrying later"
        case _:
            assert_never(fact)
