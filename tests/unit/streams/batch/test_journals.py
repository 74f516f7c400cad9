"""The journals of a replay as files: each task reads its own, and no more of it than it needs at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.state.errors import EnvironmentFault
from penstock.state.log import TaskId, TopicPartition
from penstock.streams.batch.journals import JournalBounds, JournalFiles, write_journals
from penstock.streams.task import journal
from penstock.streams.task.external_calls import ExternalCalls, InlineCallExecutor
from penstock.streams.task.journal import Answers, Cut, JournalEntry
from penstock.topologies.operator_api.operator import ExternalCall

TOPIC = "app-0-journal"


def bounds(partition: int, stop: int) -> JournalBounds:
    return JournalBounds(TaskId(0, partition), {"in": 0}, {"in": stop}, -1, None)


def rows(partition: int, values: list[list[JournalEntry]]) -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch(
        {
            "topic": pa.array([TOPIC] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "value": pa.array([journal.encode(v) for v in values], pa.binary()),
        }
    )


def entries(first: int, stop: int) -> list[list[JournalEntry]]:
    """One record per commit: a cut, and what an operator was told there."""
    return [[Cut({"in": i}), Answers({"in": i}, "ask", [b"\x00", b"\x01%d" % i])] for i in range(first, stop)]


def test_each_task_has_its_own_entries_within_the_replay_however_batches_are_cut(tmp_path: Path) -> None:
    batches = [rows(0, entries(1, 4)), rows(0, entries(4, 3_000)), rows(1, entries(1, 6))]
    wanted = {TopicPartition(TOPIC, 0): bounds(0, 2_500), TopicPartition(TOPIC, 1): bounds(1, 3)}
    reports = [r for b in write_journals(str(tmp_path), "run", wanted, batches) for r in b.to_pylist()]
    files = JournalFiles(str(tmp_path), {TaskId(r["subtopology"], r["task"]): r["path"] for r in reports})
    first, second, other = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
    assert [e.offsets["in"] for e in files.ordering(first)] == list(range(1, 2_501))
    assert [e.offsets["in"] for e in files.ordering(second)] == [1, 2, 3]
    for _ in range(2):
        assert [a.values[1] for a in files.answers(second)] == [b"\x011", b"\x012", b"\x013"]
    assert not [*files.ordering(other), *files.answers(other)]


def test_a_journal_that_the_executor_cannot_see_is_told_of(tmp_path: Path) -> None:
    files = JournalFiles(str(tmp_path), {TaskId(0, 0): "runs/run/journal/gone.parquet"})
    with pytest.raises(EnvironmentFault, match=r"journal of task 0_0 is not at .*must share"):
        next(files.ordering(TaskId(0, 0)))


def test_answers_are_read_as_they_are_asked_for() -> None:
    read: list[int] = []

    def told() -> Iterator[Answers]:
        for i in range(1_000):
            read.append(i)
            yield Answers({"in": i}, "ask", [b"\x01" + ps.serde_of(int).serialize(i + 7)])

    asks = ExternalCalls(InlineCallExecutor(), dict, lambda _: None, told())
    question = ExternalCall(fn=str, serde=ps.serde_of(int))
    (answer,) = asks.ask("ask", question, [("a row",)])
    assert answer.value == 7 and read == [0]
