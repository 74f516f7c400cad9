"""Tracing commits where a watched entry changed, and sees each of its changes with the record that made it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock.state.log import TaskId
from penstock.streams.batch.journals import GivenJournals
from penstock.streams.batch.replay_task import ReplayJob
from penstock.streams.batch.trace import Watch, _TracedTask
from penstock.streams.spark.shipping import ship
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology


def topology() -> Topology:
    builder = ps.StreamsBuilder("app", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    grouped.count(name="counts")
    grouped.aggregate(str, lambda k, v, kept: (kept + v)[-8:], value=str, name="kept")
    return builder.build()


class Counted(_TracedTask):
    """Counts its commits."""

    commits = 0

    def commit(self) -> CommitWork:
        self.commits += 1
        return super().commit()


def rows(first: int, stop: int) -> pa.RecordBatch:
    count = stop - first
    return pa.record_batch(
        {
            "topic": pa.array(["in"] * count),
            "offset": pa.array(range(first, stop), pa.int64()),
            "timestamp_ms": pa.array(range(first, stop), pa.int64()),
            "key": pa.array([b"k%d" % (i % 50) for i in range(first, stop)], pa.binary()),
            "value": pa.array([b"%d" % i for i in range(first, stop)], pa.binary()),
            "headers": pa.nulls(count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def test_it_commits_only_after_the_records_that_wrote_a_watched_entry(tmp_path: Path) -> None:
    task_id = TaskId(0, 0)
    job = ReplayJob(
        topology=ship(topology),
        application_id="app",
        options=TaskOptions(),
        partition_counts={},
        starts={task_id: {"in": (0, CommitMetadata())}},
        journals=GivenJournals(),
        output=str(tmp_path),
        run="run",
        bases={},
        base_repository=None,
        snapshots={},
        snapshot_repository=None,
    )
    watch = Watch(entries=frozenset({("counts", b"k3"), ("kept", b"k3")}))
    task = Counted(job, topology(), task_id, tmp_path, watch)
    for first in (0, 170, 340):
        task.feed_rows(0, rows(first, first + 170))
    seen = task.finish()
    wrote = [("in", 0, i) for i in range(510) if i % 50 == 3]
    assert [s.input for s in seen if s.name == "counts"] == wrote == [s.input for s in seen if s.name == "kept"]
    counts = [int.from_bytes((s.value or b"")[8:], "big") for s in seen if s.name == "counts"]
    assert counts == list(range(1, len(wrote) + 1))
    assert task.commits == len(wrote) + 1
