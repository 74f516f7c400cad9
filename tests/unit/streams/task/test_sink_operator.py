"""Sinks: partitions that are explicit, values that are too large or cannot be written, and one order per topic."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import ProcessingError
from penstock.state.log import Record, TaskId
from penstock.state.serdes.partitioner import partition_for
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.output import Output
from penstock.streams.task.sink_operator import BY_KEY
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import tumbling


def outputs(
    builder: StreamsBuilder, rows: list[Record], partition: int, counts: dict[str, int], *, columns: bool = False
) -> list[Output]:
    """What the first sub-topology's task sends for these records."""
    topology = builder.build()
    sub = topology.subtopologies[0]
    (topic,) = (topology.source(n).topic for n in sub.sources)
    task = Task(
        TaskId(0, partition),
        "app",
        topology,
        sub,
        MemoryBackend(sub.stores),
        {topic: (0, CommitMetadata())},
        TaskOptions(),
        counts,
    )
    keys, values, times, _ = zip(*rows, strict=True)
    chunk = Chunk(topic, partition, list(range(len(rows))), list(keys), list(values), list(times))
    task.add(chunk.in_columns() if columns else chunk, len(rows))
    while task.process():
        pass
    return task.take_outputs()


def test_null_keys_of_a_repartition_topic_go_to_the_producers_partition_modulo_the_count() -> None:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").repartition(name="again").to("out")
    rows = [Record(b"a", b"1"), Record(None, b"2"), Record(b"", b"3")]
    (sent,) = outputs(builder, rows, 5, {"app-again-repartition": 3})
    assert sent.topic == "app-again-repartition"
    assert sent.partition == [BY_KEY, 5 % 3, BY_KEY]


def test_null_keys_of_a_users_topic_go_anywhere() -> None:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").to("out")
    (sent,) = outputs(builder, [Record(None, b"2")], 5, {})
    assert sent.partition is None


def test_windowed_keys_are_partitioned_by_the_inner_key() -> None:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").group_by_key().windowed_by(tumbling(10, grace=0)).count().to("out")
    rows = [Record(k, b"", ts) for k, ts in ((b"a", 1), (b"b", 2), (b"a", 12), (b"foobar", 13))]
    (sent,) = outputs(builder, rows, 0, {"out": 12})
    assert sent.partition == [partition_for(k, 12) for k in (b"a", b"b", b"a", b"foobar")]
    assert sent.partition[3] == 6
    assert sent.keys[2] == b"a" + (10).to_bytes(8, "big")


def test_windowed_keys_in_columns_have_the_partitions_of_rows() -> None:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").group_by_key().windowed_by(tumbling(100, grace=500)).count().to("out")
    rows = [Record(b"k%d" % (i % 7), b"", i) for i in range(300)]
    (listed,) = outputs(builder, rows, 0, {"out": 12})
    (sent,) = outputs(builder, rows, 0, {"out": 12}, columns=True)
    assert sent.columnar and not listed.columnar
    assert len(set(sent.partition)) > 3  # type: ignore[arg-type]  # a list, as the next line says
    assert sent == listed


def large(policy: Any) -> TaskOptions:
    return TaskOptions(policies=Policies(processing=policy, max_record_bytes=10, dead_letter_topic="letters"))


def passing() -> StreamsBuilder:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").to("out", name="to-out")
    return builder


def test_a_value_over_the_limit_stops_the_task_at_its_record() -> None:
    driver = TopologyTestDriver(passing(), options=large("fail"))
    with pytest.raises(ProcessingError, match=r"offset 1, operator to-out.*topic out.*11 bytes.*max_record_bytes=10"):
        driver.pipe_raw({"in": [Record(b"k", b"x" * 10), Record(b"k", b"x" * 11)]})


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_a_value_over_the_limit_can_be_left_out(policy: str) -> None:
    with TopologyTestDriver(passing(), options=large(policy)) as driver:
        driver.pipe_raw(
            {"in": [Record(b"k", b"x" * 10), Record(b"k", b"y" * 11), Record(b"k", b"z"), Record(b"k", None)]}
        )
        assert [r.value for r in driver.read("out")] == [b"x" * 10, b"z", None]
        assert [r.value for r in driver.read_raw("letters")] == ([b"y" * 11] if policy == "dead_letter" else [])


def test_a_store_value_over_the_limit_stops_the_commit() -> None:
    builder = StreamsBuilder(key=str, value=bytes)
    builder.stream("in").group_by_key().reduce(lambda a, v: a + v, name="all")
    with TopologyTestDriver(builder, options=large("skip"), auto_commit=False) as driver:
        driver.pipe("in", "k", b"x" * 6)
        driver.commit()
        driver.pipe("in", "k", b"x" * 6)
        with pytest.raises(ProcessingError, match="store all holds a value of"):
            driver.commit()
        # closing would commit again: start over from the last commit, as a runner does
        driver.tasks[TaskId(0, 0)].discard({"in": (1, CommitMetadata())})


def test_a_value_that_the_serde_cannot_write_meets_the_policy() -> None:
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").map_values(lambda n: "text" if n == 2 else n).to("out", name="to-out")
    with TopologyTestDriver(builder, options=large("skip")) as driver:
        driver.pipe_all("in", [Record("k", n) for n in (1, 2, 3)])
        assert [r.value for r in driver.read("out")] == [1, 3]
    with pytest.raises(ProcessingError, match="offset 1, operator to-out"):
        TopologyTestDriver(builder).pipe_all("in", [Record("k", n) for n in (1, 2)])


@pytest.mark.parametrize("batch", [1, 3, 10_000])
def test_two_sinks_of_one_topic_keep_the_order_of_the_records(batch: int) -> None:
    builder = StreamsBuilder(key=str, value=int)
    stream = builder.stream("in")
    stream.to("out", name="first")
    stream.map_values(lambda n: -n).to("out", name="second")
    with TopologyTestDriver(builder, options=TaskOptions(batch_max_records=batch)) as driver:
        driver.pipe_all("in", [Record("k", n) for n in range(1, 5)])
        assert [r.value for r in driver.read("out")] == [1, -1, 2, -2, 3, -3, 4, -4]
