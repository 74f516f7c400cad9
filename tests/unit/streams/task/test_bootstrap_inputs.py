"""Bootstrap inputs that other tasks write: every writer is heard, across restarts of the reader."""

from __future__ import annotations

import penstock as ps
from penstock.state.log import TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.commit_metadata import CommitMetadata, decode
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_watermarks import WatermarkMark

COPY = "app-met-rows-repartition"


def topology() -> ps.Topology:
    """A stream that looks rows of a global table up."""
    builder = ps.StreamsBuilder("app", key=str, value=str)
    rows = builder.global_table("rows")
    builder.stream("in").join_global(rows, lambda k, v: k, lambda v, row: v + row, name="met").to("out")
    return builder.build()


def said(writer: int, offset: int) -> Chunk:
    """A mark by which one of two writers says that it has caught up."""
    return Chunk(COPY, 0, [offset], [None], [None], [0], [WatermarkMark(writer, 2, -1, False, True).headers])


def test_a_writer_that_was_heard_before_a_restart_need_not_say_it_again() -> None:
    made = topology()
    sub = next(s for s in made.subtopologies if "in" in s.sources)
    backend = MemoryBackend(sub.stores)
    start = {t: (0, CommitMetadata()) for t in (COPY, "in")}

    def opened() -> Task:
        task = Task(TaskId(sub.number, 0), "app", made, sub, backend, start, TaskOptions(), {})
        for topic, (offset, _) in start.items():
            task.feed.set_end(topic, offset)
        return task

    task = opened()
    task.add(Chunk("in", 0, [0], [b"k"], [b"a"], [10]), 1)
    task.feed.set_end("in", 1)
    task.add(Chunk(COPY, 0, [0], [b"k"], [b"1"], [50]), 1)
    task.add(said(0, 1), 2)
    task.feed.set_end(COPY, 2)
    while task.process():
        pass
    assert not task.take_outputs()  # the other writer may have rows still
    work = task.prepare_commit()
    ends = {TopicPartition(o.topic, 0): len(o.keys) for _, o in work.changelogs}
    start = {tp.topic: (c.offset, decode(c.metadata)) for tp, c in task.offsets(work, ends).items()}
    task.committed(work, dict.fromkeys(work.pending, b""))
    assert {t: offset for t, (offset, _) in start.items()} == {COPY: 2, "in": 0}

    task = opened()
    task.add(Chunk("in", 0, [0], [b"k"], [b"a"], [10]), 1)
    task.feed.set_end("in", 1)
    task.add(said(1, 2), 3)
    task.feed.set_end(COPY, 3)
    while task.process():
        pass
    assert [v for o in task.take_outputs() for v in o.values] == [b"a1"]
