"""Replay inside an executor of what the journal decided: a bootstrap input is the journal's first range, and the task waits
for nobody; a source becomes idle by the clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.state.log import TaskId
from penstock.streams.batch.journals import GivenJournals
from penstock.streams.batch.replay_rows import to_headers
from penstock.streams.batch.replay_task import ReplayTask
from penstock.streams.task import journal
from penstock.streams.task.output import Output
from penstock.topologies.graph.topology import Topology
from tests.unit.streams.batch.replay_jobs import job_from_begin


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
    task = replaying(topology, task_id, log, entries, tmp_path)
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


def replaying(
    build: Callable[[], Topology], task_id: TaskId, topics: Collection[str], entries: Sequence[Any], folder: Path
) -> Kept:
    """The task, about to be replayed from offset 0."""
    job = job_from_begin(
        build,
        task_id,
        tuple(topics),
        folder,
        partition_counts=dict.fromkeys(topics, 1),
        journals=GivenJournals({task_id: tuple(entries)}),
    )
    return Kept(job, build(), task_id, folder)


def idle() -> Topology:
    """Counts whose windows close by the clock, once the source has been silent for ten seconds."""
    builder = ps.StreamsBuilder("app", key=str, value=str)
    stream = builder.stream("in", watermark=ps.bounded_out_of_orderness("5s", idle="10s"))
    counts = stream.group_by_key().windowed_by(ps.tumbling("1s", grace=0)).count(emission="on_close")
    counts.to_stream(lambda window, count: window.key, key=str).to("out", value=int)
    return builder.build()


def test_a_replay_repeats_the_reading_at_which_the_last_source_becomes_idle(tmp_path: Path) -> None:
    """Nothing reads the clock after it, until a record comes."""
    with ps.TopologyTestDriver(idle(), application_id="app") as driver:
        sent = [ps.Record(b"k", b"v", 1_000), ps.Record(b"k", b"v", 9_000)]
        for record in sent:
            driver.pipe("in", "k", "v", record.timestamp_ms)
            for _ in range(8):
                driver.advance_wall_time(5_000)
        entries = [e for r in driver.changelogs["app-0-journal"] for e in journal.decode(r.value or b"")]
    task_id = TaskId(0, 0)
    task = replaying(idle, task_id, ["in"], entries, tmp_path)
    for offset, record in enumerate(sent):
        cuts = journal.ordering_of(entries)
        task.feed_rows(sum(offset >= c.offsets["in"] for c in cuts), _row("in", offset, record))
    task.end()
    task.close()
    assert len(entries) > 4


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
