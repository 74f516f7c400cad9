"""The processor API: forwarding, timers on their grid, restarts, requests, batches, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import ProcessingError, TopologyError
from penstock.state.log import Record, TaskId, TopicPartition
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.typed_stores import key_value_store
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.processors.processor import Processor

BATCHES = (1, 2, 7, 10_000)


def through(factory: Any) -> Topology:
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").process(factory, name="p").to("out")
    return builder.build()


def piped(topology: Topology, rows: list[Record], batch: int) -> list[Record]:
    with TopologyTestDriver(topology, options=TaskOptions(batch_max_records=batch)) as driver:
        driver.pipe_all("in", rows)
        return driver.read("out")


class Grid(Processor):
    """Forwards each firing, beside the records."""

    timers = ("stream_time",)

    def init(self, ctx: Any) -> None:
        self.ctx = ctx
        ctx.schedule(10, self.tick)

    def tick(self, now_ms: int) -> None:
        self.ctx.forward("tick", self.ctx.stream_time_ms, timestamp_ms=now_ms)

    def process(self, record: Record, ctx: Any) -> None:
        ctx.forward(record.key, record.value)


@pytest.mark.parametrize("batch", BATCHES)
def test_records_leave_in_the_order_of_the_calls_with_the_records_time_and_headers(batch: int) -> None:
    class Twice(Processor):
        def process(self, record: Record, ctx: Any) -> None:
            ctx.forward(record.key, record.value)
            ctx.forward(None, None, timestamp_ms=record.timestamp_ms + 1, headers=(("mine", b"2"),))

    rows = [Record("a", 1, 5, (("h", b"1"),)), Record("b", 2, 3)]
    assert piped(through(Twice), rows, batch) == [
        rows[0],
        Record(None, None, 6, (("mine", b"2"),)),
        rows[1],
        Record(None, None, 4, (("mine", b"2"),)),
    ]


@pytest.mark.parametrize("batch", BATCHES)
def test_timers_fire_once_right_after_the_record_that_passed_a_multiple(batch: int) -> None:
    times = [3, 9, 10, 10, 8, 57, 59, 60]
    got = piped(through(Grid), [Record(str(i), i, ts) for i, ts in enumerate(times)], batch)
    assert [(r.key, r.timestamp_ms) for r in got] == [
        ("0", 3),
        ("1", 9),
        ("2", 10),
        ("tick", 10),
        ("3", 10),
        ("4", 8),
        ("5", 57),
        ("tick", 57),
        ("6", 59),
        ("7", 60),
        ("tick", 60),
    ]
    assert [r.value for r in got if r.key == "tick"] == [10, 57, 60]


@pytest.mark.parametrize("batch", BATCHES)
def test_records_that_were_filtered_out_move_the_timers_too(batch: int) -> None:
    builder = StreamsBuilder(key=str, value=int)
    builder.stream("in").filter_values(lambda n: n > 0).process(Grid).to("out")
    got = piped(builder.build(), [Record("a", 1, 5), Record("b", 0, 25), Record("c", 2, 6)], batch)
    assert [(r.key, r.value, r.timestamp_ms) for r in got] == [("a", 1, 5), ("tick", 5, 25), ("c", 2, 6)]


class Hand:
    """One task by hand, with commits and restarts."""

    def __init__(self, factory: Any) -> None:
        self.topology = through(factory)
        self.sub = self.topology.subtopologies[0]
        self.backend = MemoryBackend(self.sub.stores)
        self.committed: tuple[int, CommitMetadata] = (0, CommitMetadata())
        self.start()

    def start(self) -> None:
        at = {"in": self.committed}
        self.task = Task(TaskId(0, 0), "app", self.topology, self.sub, self.backend, at, TaskOptions(), {})

    def give(self, offset: int, ts: int) -> list[tuple[bytes | None, int]]:
        self.task.add(Chunk("in", 0, [offset], [b"k"], [(1).to_bytes(8, "big")], [ts]), offset + 1)
        while self.task.process():
            pass
        return self.outputs()

    def outputs(self) -> list[tuple[bytes | None, int]]:
        return [row for o in self.task.take_outputs() for row in zip(o.keys, o.timestamps, strict=True)]

    def commit(self) -> None:
        work = self.task.prepare_commit()
        ends = dict.fromkeys((_partition(o.topic) for _, o in work.changelogs), 1)
        if work.journal is not None:
            ends[_partition(work.journal.topic)] = 1
        ((_, committed),) = self.task.offsets(work, ends).items()
        self.task.committed(work, dict.fromkeys(work.pending, b""))
        self.committed = (committed.offset, commit_metadata.decode(committed.metadata))


def _partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def test_a_restart_neither_loses_nor_repeats_a_stream_timer() -> None:
    hand = Hand(Grid)
    assert hand.give(0, 9) == [(b"k", 9)]
    hand.commit()
    hand.start()
    assert hand.give(1, 10) == [(b"k", 10), (b"tick", 10)]
    hand.commit()
    hand.start()
    assert hand.give(2, 19) == [(b"k", 19)]
    assert hand.give(3, 20) == [(b"k", 20), (b"tick", 20)]
    hand.start()  # not committed since: offsets 2 and 3 come again
    assert hand.give(2, 19) == [(b"k", 19)]
    assert hand.give(3, 20) == [(b"k", 20), (b"tick", 20)]


class Clock(Processor):
    """Forwards each wall-clock firing, with the stream time that it sees."""

    timers = ("wall_time",)

    def init(self, ctx: Any) -> None:
        self.ctx = ctx
        ctx.schedule(100, self.ring, "wall_time")

    def ring(self, now_ms: int) -> None:
        self.ctx.forward("ring", self.ctx.stream_time_ms, timestamp_ms=now_ms)

    def process(self, record: Record, ctx: Any) -> None:
        pass


def test_wall_clock_timers_fire_on_their_grid_and_survive_a_restart() -> None:
    hand = Hand(Clock)
    assert not hand.task.punctuate(1_050), "the first reading has nothing before it"
    assert not hand.task.punctuate(1_099)
    assert hand.task.punctuate(1_250)
    assert hand.outputs() == [(b"ring", 1_250)]
    hand.give(0, 7)
    hand.commit()
    hand.start()
    assert not hand.task.punctuate(1_299)
    assert not hand.task.punctuate(1_200), "a clock that goes back fires nothing"
    assert hand.task.punctuate(1_300)
    (sent,) = hand.task.take_outputs()
    assert (sent.timestamps, sent.values) == ([1_300], [(7).to_bytes(8, "big")]), "stream time is that of before"


@pytest.mark.parametrize("batch", BATCHES)
def test_process_batch_gets_runs_and_keeps_their_order(batch: int) -> None:
    class Columns(Processor):
        def process_batch(self, batch: Batch, ctx: Any) -> None:
            ctx.forward_batch(batch.where([v % 2 for v in batch.values]))

    rows = [Record("k", n, n) for n in range(9)]
    assert piped(through(Columns), rows, batch) == [r for r in rows if r.value % 2]


def test_forward_in_process_batch_is_refused() -> None:
    class Wrong(Processor):
        def process_batch(self, batch: Batch, ctx: Any) -> None:
            ctx.forward("k", 1)

    with pytest.raises(ProcessingError, match="use forward_batch"):
        TopologyTestDriver(through(Wrong)).pipe("in", "k", 1)


def test_commit_and_shutdown_are_requests_to_the_runner() -> None:
    class Asks(Processor):
        def process(self, record: Record, ctx: Any) -> None:
            if record.value == 1:
                ctx.commit()
            else:
                ctx.shutdown()

    hand = Hand(Asks)
    hand.give(0, 1)
    assert (hand.task.requests.commit, hand.task.requests.shutdown) == (True, False)
    hand.commit()
    assert hand.task.requests.commit is False
    with TopologyTestDriver(through(Asks)) as driver:
        driver.pipe("in", "k", 2)
        (task,) = driver.tasks.values()
        assert task.requests.shutdown


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ctx: ctx.store("other"), "does not declare"),
        (lambda ctx: ctx.schedule(10, print), "declare it: timers"),
        (lambda ctx: ctx.schedule(0, print), "at least 1"),
        (lambda ctx: ctx.forward("k", 1, port="side"), "no out port 'side'"),
    ],
)
def test_what_was_not_declared_is_refused(call: Any, message: str) -> None:
    class Wrong(Processor):
        def init(self, ctx: Any) -> None:
            call(ctx)

    with pytest.raises(TopologyError, match=message):
        TopologyTestDriver(through(Wrong))


def test_a_processor_that_overrides_nothing_says_so() -> None:
    with pytest.raises(ProcessingError, match="overrides neither process nor process_batch"):
        TopologyTestDriver(through(Processor)).pipe("in", "k", 1)


@pytest.mark.parametrize("committed", [False, True])
def test_a_scan_sees_the_keys_that_were_there_whether_they_are_committed_or_not(committed: bool) -> None:
    seen: list[list[str]] = []

    class Scans(Processor):
        stores = (key_value_store("kept", key=str, value=int),)

        def process(self, record: Record, ctx: Any) -> None:
            store = ctx.store("kept")
            if record.key != "scan":
                store.put(record.key, record.value)
                return
            keys = []
            for key, _ in store.all():
                keys.append(key)
                store.delete("c")
                store.put("d", 1)
                store.put("e", 2)
            seen.append(keys)

    with TopologyTestDriver(through(Scans), auto_commit=False) as driver:
        for key, value in (("a", 1), ("b", 2), ("c", 3), ("d", 4), ("d", None), ("scan", 0)):
            driver.pipe("in", key, value)
            if committed:
                driver.commit()
    assert seen == [["a", "b"]]
