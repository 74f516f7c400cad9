"""One fact of each class, as a worker might report it."""

from __future__ import annotations

from typing import get_args

from penstock.state.errors import ProcessingError, RetriableError, TaskMigratedError
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.events import facts as f
from penstock.streams.ports.log import AbortableError, ProducerRetiredError

TASK = TaskId(0, 1)
SECRET = "customer 4711"
"""What a record holds."""
KINDS: tuple[type[f.Fact], ...] = get_args(f.Fact)
SAMPLES: list[f.Fact] = [
    f.WorkerStarted("1.0", "app", "exactly_once", True, ".penstock", {"commit_interval_ms": "50"}),
    f.ClusterFound("cluster", "b:9092", "app-host-7"),
    f.TopologyChanged("app", "store n is new (key_value of string to int): begins empty, as a new one"),
    f.WaitingForBrokers("b:9092"),
    f.Waiting("committing", RetriableError("no answer"), 61.5),
    f.WaitEnded("committing", 70.0),
    f.BrokersFound("b:9092", 12.34567, 7),
    f.WorkerStopped("error", ProcessingError(f"cannot read {SECRET}")),
    f.ProcessEnded(1, 4242, -9, 0.5),
    f.TasksAssigned((TASK, TaskId(1, 0))),
    f.TasksRevoked((TASK,)),
    f.TasksLost((TASK,)),
    f.Rejoining(TaskMigratedError("fenced"), 0.5, 2, 38.0),
    f.Fenced(TaskMigratedError("fenced")),
    f.TaskRunning(TASK, {"in": 5}),
    f.TaskReopened(TASK, "its stores are damaged: x"),
    f.TaskCaughtUp(TASK),
    f.FallingBehind(TASK, 1_000, 30.0),
    f.LockAwaited(TASK, 0.0),
    f.RestoreStarted(TASK, "s", 0, 10, "there is no snapshot"),
    f.RestoreProgressed(TASK, "s", 5, 10, 100.0, 4.5),
    f.RestoreFinished(TASK, "s", 10, 10, 0.5),
    f.RestoreRetried(TASK, RetriableError("no answer"), 0.0),
    f.RestoreCancelled(TASK),
    f.StoreQuarantined(TASK, "a bad block"),
    f.SnapshotUsed(TASK, "s", "snap", 8),
    f.SnapshotRefused(TASK, "s", "too old"),
    f.Committed((TASK,), 10, 0.01),
    f.CommitLate(9.0, 1.0),
    f.CommitAborted(AbortableError("refused")),
    f.AbortDelayed(RetriableError("no answer")),
    f.CommitDelayed(RetriableError("no answer")),
    f.ForeignWritesReplaced(TASK, "s", 3),
    f.TransactionInDoubt("committed"),
    f.ProducerRetired(ProducerRetiredError("slow")),
    f.DeadWorkerFenced("4f1c-0"),
    f.RecordFailed(TASK, "processing", "map", ("in", 0, 7), "ValueError", SECRET),
    f.RecordHeld(TASK, "processing", "map", ("in", 0, 8), "ValueError", SECRET, 2),
    f.RecordSkipped(TASK, "deserialization", "in", ("in", 0, 8), "SerdeError", SECRET),
    f.RecordDeadLettered(TASK, "timestamp", "in", None, "InvalidTimestamp", SECRET),
    f.TimestampsClamped(TASK, TopicPartition("in", 0), 3),
    f.NullsDropped(TASK, "count", "null_key", "app.py:7"),
    f.ColumnsMissing(TASK, "in", ("amont; did you mean 'amount'?",), 5, "app.py:7"),
    f.PartitionPaused(TopicPartition("in", 0), 100),
    f.PartitionResumed(TopicPartition("in", 0), 1.5),
    f.SourceIdle(TASK, "in"),
    f.PurgeFailed(TopicPartition("in", 0), "no leader"),
]
