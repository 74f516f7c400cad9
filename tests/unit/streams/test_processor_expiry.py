"""Window and session stores of processors lose what is old, and nobody can tell when."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record, Windowed
from penstock.state.stores.typed_stores import key_window_store, session_store, window_store
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.processors.processor import Processor
from penstock.topologies.windows import TumblingWindows

RETENTION_MS = 100
NAMES = ("windows", "by_key", "sessions")


class Remembers(Processor):
    """Puts every record into each store, and forwards what it then finds there."""

    stores = (
        window_store("windows", key=str, value=int, size_ms=10, retention_ms=RETENTION_MS),
        key_window_store("by_key", key=str, value=int, size_ms=10, retention_ms=RETENTION_MS),
        session_store("sessions", key=str, value=int, retention_ms=RETENTION_MS),
    )

    def init(self, ctx: Any) -> None:
        self.windows, self.by_key, self.sessions = (ctx.store(name) for name in NAMES)

    def take(self, key: str, ts: int) -> str:
        self.windows.put(key, ts, ts)
        self.by_key.put(key, ts, ts)
        self.sessions.put(Windowed(key, ts // 2, ts), ts)
        found = (
            [start for _, start, _ in self.windows.all()],
            [start for start, _ in self.by_key.fetch(key, 0, 1 << 40)],
            [session.end_ms for session, _ in self.sessions.fetch(key)],
            self.windows.get(key, max(ts - 105, 0)),
        )
        return str(found)

    def process(self, record: Record, ctx: Any) -> None:
        ctx.forward(record.key, self.take(record.key, record.timestamp_ms))


class RemembersRuns(Remembers):
    """The same of whole runs."""

    def process_batch(self, batch: Batch, ctx: Any) -> None:
        rows = zip(batch.keys, batch.timestamps, strict=True)
        ctx.forward_batch(batch.replace(values=[self.take(key, ts) for key, ts in rows]))


class RemembersTimed(RemembersRuns):
    """With timers, which cut runs too."""

    timers = ("stream_time",)

    def init(self, ctx: Any) -> None:
        super().init(ctx)
        ctx.schedule(7, lambda now_ms: None)


def through(processor: type[Processor]) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(processor, name="p").to("out")
    return builder.build()


def rows(seed: int) -> list[Record]:
    """Times that go on by steps and jumps, and back."""
    rng = random.Random(seed)
    at, out = 0, []
    for _ in range(60):
        at += rng.choice([0, 1, 3, 9, 40, 250])
        out.append(Record(rng.choice("ab"), "v", max(at - rng.choice([0, 0, 20, 130]), 0)))
    return out


def found(topology: Topology, records: list[Record], batch: int, *, stops: int = 0, restore: bool = False) -> list[Any]:
    """What is forwarded; ``stops``: after so many records each, the worker begins again, with its stores or without."""
    with TopologyTestDriver(topology, options=TaskOptions(batch_max_records=batch)) as driver:
        for start in range(0, len(records), stops or len(records)):
            driver.pipe_all("in", records[start : start + (stops or len(records))])
            if stops:
                driver.restart(restore=restore)
        return [(r.key, r.value) for r in driver.read("out")]


@pytest.mark.parametrize("processor", [Remembers, RemembersRuns, RemembersTimed])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_depends_on_the_records_alone(processor: type[Processor], seed: int) -> None:
    records = rows(seed)
    whole = found(through(processor), records, 10_000)
    assert whole == found(through(Remembers), records, 1)
    for batch in (1, 2, 7):
        assert found(through(processor), records, batch) == whole
    for stops in (1, 5):
        for restore in (False, True):
            assert found(through(processor), records, 4, stops=stops, restore=restore) == whole


def test_what_is_older_than_the_retention_and_a_step_is_dropped_from_the_backend() -> None:
    with TopologyTestDriver(through(Remembers)) as driver:
        for i in range(50):
            driver.pipe("in", "k", "v", i * 10)
        (task,) = driver.tasks.values()
        held = {name: sum(1 for _ in task.backend.range(name, None, None)) for name in NAMES}
    # by start: 390 to 490; by segments of half the retention: from 350 on
    assert held == {"windows": 11, "by_key": 15, "sessions": 15}


def test_the_windows_of_a_table_are_the_tables_to_expire() -> None:
    class Reads(Processor):
        def process(self, record: Record, ctx: Any) -> None:
            ctx.forward(record.key, [start for _, start, _ in ctx.store("counts").all()])

    builder = StreamsBuilder(key=str, value=str)
    grouped = builder.stream("in").group_by_key().windowed_by(TumblingWindows(10))
    counts = grouped.count(name="counts")
    counts.to_stream().to("counted")
    builder.stream("ask").process(Reads, stores=(counts.store,), value=list, name="p").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("in", "k", "v", 5)
        driver.pipe("ask", "k", "v", 10_000_000_000)
        assert [r.value for r in driver.read("out")] == [[0]]
        driver.pipe("in", "k", "v", 6)
        assert [r.value for r in driver.read("counted")] == [1, 2]
