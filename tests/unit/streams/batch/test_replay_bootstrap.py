"""Replay inside an executor of a task with a bootstrap input: the journal's first range is the bootstrap, and the task
waits for nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.state.log import TaskId
from penstock.streams.batch.journals import GivenJournals
from penstock.streams.batch.replay_rows import to_headers
from penstock.streams.batch.replay_task import ReplayJob, ReplayTask
from penstock.streams.spark.shipping import ship
from penstock.streams.task import journal
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.output import Output
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology


def topology() -> Topology:
    """A stream that looks rows of a global table up."""
    builder = ps.StreamsBuilder("app", key=str, value=str)
    rows = builder.global_table("rows")
    builder.stream("in").join_global(rows, lambda k, v: k, lambda v, row: v + row, name="met").to("out")
    return builder.build()


class Kept(ReplayTask):
    """Keeps the values that it gives."""

    values: list[Any]

    def took(self, outputs: list[Output]) -> None:
        self.values = [*getattr(self, "values", []), *(v for o in outputs for v in o.values)]


def test_a_replay_of_a_bootstrapped_task_gives_what_the_live_one_gave(tmp_path: Path) -> None:
    made = topology()
    number = next(s.number for s in made.subtopologies if "in" in s.sources)
    copy, task_id = "app-met-rows-repartition", TaskId(number, 0)
    with ps.TopologyTestDriver(made, application_id="app") as driver:
        driver.pipe("rows", "k", "1", 5_000)
        driver.pipe("in", "k", "a", 10)
        driver.pipe("rows", "k", "2", 20)
        driver.pipe("in", "k", "b", 30)
        copied = driver.read_raw(copy)
        live = [r.value for r in driver.read_raw("out")]
        entries = tuple(e for r in driver.changelogs[f"app-{number}-journal"] for e in journal.decode(r.value or b""))
    assert live == [b"a1", b"b2"]
    assert len(copied) == 3  # two rows, and the mark that the copying task has caught up
    log = {copy: copied, "in": [ps.Record(b"k", b"a", 10), ps.Record(b"k", b"b", 30)]}
    job = ReplayJob(
        topology=ship(topology),
        application_id="app",
        options=TaskOptions(),
        partition_counts={copy: 1},
        starts={task_id: {t: (0, CommitMetadata()) for t in log}},
        journals=GivenJournals({task_id: entries}),
        output=str(tmp_path),
        run="run",
        bases={},
        base_repository=None,
        snapshots={},
        snapshot_repository=None,
    )
    task = Kept(job, made, task_id, tmp_path)
    cuts = journal.ordering_of(entries)
    rows = sorted(
        (sum(offset >= c.offsets[topic] for c in cuts), r.timestamp_ms, topic, offset)
        for topic, records in log.items()
        for offset, r in enumerate(records)
    )
    for place, _, topic, offset in rows:
        task.feed_rows(place, _row(topic, offset, log[topic][offset]))
    task.end()
    task.close()
    assert task.values == live


def _row(topic: str, offset: int, record: ps.Record) -> pa.RecordBatch:
    headers = [{"key": k, "value": v} for k, v in record.headers]
    assert to_headers(headers) == record.headers
    return pa.record_batch(
        {
            "topic": pa.array([topic]),
            "offset": pa.array([offset], pa.int64()),
            "timestamp_ms": pa.array([record.timestamp_ms], pa.int64()),
            "key": pa.array([record.key], pa.binary()),
            "value": pa.array([record.value], pa.binary()),
            "headers": pa.array([headers], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )
