"""Tracing commits where a watched entry changed, and sees each of its changes with the record that made it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.state.log import TaskId
from penstock.streams.batch.trace import LeftOut, TracedRecord, Watch, _TracedTask, origin_of
from penstock.streams.task.commit_work import CommitWork
from penstock.topologies.graph.topology import Topology
from tests.unit.streams.batch.replay_jobs import job_from_begin


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


def filtered() -> Topology:
    """Leaves out records whose number is not a multiple of ten, writes the others under another key."""
    builder = ps.StreamsBuilder("app", key=str, value=str)
    tens = builder.stream("in").filter_values(lambda v: int(v) % 10 == 0)
    tens.select_key(lambda k, v: v[:1], key=str).to("out")
    return builder.build()


@pytest.mark.parametrize(
    ("origin", "key", "found"),
    [
        # The stream has written 13 too, behind 10 and in the place of 20.
        pytest.param(LeftOut("out", 2, 2, 13), b"1", 13, id="left out"),
        pytest.param(LeftOut("out", 2, 2, 31), b"3", 20, id="not its place"),
        pytest.param(LeftOut("out", 2, 2, 9_999), b"wrong", 20, id="forged"),
        pytest.param(LeftOut("out", 2, None, 31), b"3", 31, id="behind the last one"),
        pytest.param(None, b"1", 20, id="of another value"),
    ],
)
def test_the_input_of_a_row_that_the_batch_leaves_out(
    tmp_path: Path, origin: LeftOut | None, key: bytes, found: int
) -> None:
    task_id = TaskId(0, 0)
    watch = Watch(outputs=frozenset({("out", 2)}), origin=origin)
    task = _TracedTask(job_from_begin(filtered, task_id, ("in",), tmp_path), filtered(), task_id, tmp_path, watch)
    task.feed_rows(0, rows(0, 60))
    assert origin_of(key, task.finish()) == ("in", 0, found)


def test_of_several_inputs_of_the_time_that_of_the_key_is_the_origin() -> None:
    def seen(offset: int, key: bytes, seq: int | None = None) -> TracedRecord:
        where = ("in", 0, offset)
        return TracedRecord(
            subtopology=0, task=0, name="out", seq=seq, key=key, value=None, timestamp_ms=5, input=where
        )

    several = [seen(3, b"a"), seen(4, b"b"), seen(7, b"c", 2)]
    assert origin_of(b"b", several) == ("in", 0, 4) and origin_of(b"x", several) == ("in", 0, 3)
    assert origin_of(b"c", several[2:]) == ("in", 0, 7) and origin_of(b"c", []) is None


def test_it_commits_only_after_the_records_that_wrote_a_watched_entry(tmp_path: Path) -> None:
    task_id = TaskId(0, 0)
    job = job_from_begin(topology, task_id, ("in",), tmp_path)
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
