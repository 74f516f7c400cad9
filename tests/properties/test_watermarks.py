"""Watermarks through repartition topics: what comes out does not depend on batches, restarts or which partition is ahead,
and a partition without records holds the others back until it is idle."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import orjson
import pytest

from penstock.state.log import Record, TaskId
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.task.task_watermarks import mark_of
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.triggers import after_watermark
from penstock.topologies.windows import tumbling
from tests.properties.oracle import Input
from tests.properties.running import Runner, chunk_of, cut_up

BATCHES = (1, 2, 7, 10_000)
PARTITIONS = 3
SIZE = 20


def topology_of(*, delay: int, interval: int = 1, idle: int | None = None, hops: int = 1) -> Topology:
    """Counts per value and window, the values having come as keys of other partitions."""
    builder = StreamsBuilder("w", key=str, value=int)
    watermark = bounded_out_of_orderness(delay, idle=idle, interval=interval)
    stream: Any = builder.stream("in", watermark=watermark)
    for _ in range(hops - 1):
        stream = stream.select_key(lambda k, v: str(v % 7)).repartition()
    grouped = stream.group_by(lambda k, v: str(v % 5), name="by-value")
    panes = grouped.windowed_by(tumbling(SIZE, grace=0)).triggered(after_watermark()).count(name="counts")
    panes.to("out")
    panes.late.to("late")
    return builder.build()


def random_rows(rng: random.Random, disorder: int) -> list[tuple[int, Record]]:
    """``(partition, record)``; no record is further behind its partition's newest than ``disorder``."""
    rows = []
    times = [0] * PARTITIONS
    for i in range(120):
        p = rng.choices(range(PARTITIONS), (6, 3, 1))[0]
        times[p] += rng.choice((0, 1, 3, 9))
        rows.append((p, Record(f"k{p}", i, max(times[p] - rng.randint(0, disorder), 0))))
    return rows


def piped(driver: TopologyTestDriver, rows: list[tuple[int, Record]]) -> None:
    for p in range(PARTITIONS):
        driver.pipe_all("in", [r for at, r in rows if at == p], partition=p)


def windows_of(records: list[Record]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for r in records:
        assert (r.key.key, r.key.start_ms) not in found, "a window was emitted twice"
        found[r.key.key, r.key.start_ms] = r.value
    return found


def stores_of(driver: TopologyTestDriver) -> dict[Any, Any]:
    return {(t, n): list(s.range()) for t, task in driver.tasks.items() for n, s in task.stores.items()}


@pytest.mark.parametrize("seed", range(6))
def test_downstream_time_is_the_lowest_of_all_upstream_tasks(seed: int) -> None:
    rng = random.Random(seed)
    disorder, interval = rng.choice(((0, 1), (5, 1), (5, 10), (0, 200)))
    rows = random_rows(rng, disorder)
    topology = topology_of(delay=disorder, interval=interval, hops=rng.choice((1, 2)))
    reached = [max((r.timestamp_ms for p, r in rows if p == at), default=0) - disorder - 1 for at in range(PARTITIONS)]
    outcomes = []
    for batch in BATCHES:
        options = TaskOptions(batch_max_records=batch)
        with TopologyTestDriver(topology, partitions=PARTITIONS, options=options) as driver:
            cut = len(rows) // 2 if batch != 10_000 else 0
            if cut:
                piped(driver, rows[:cut])
                driver.restart(restore=batch == 2)
            piped(driver, rows[cut:])
            last = max(t.subtopology for t in driver.tasks)
            marks = {driver.tasks[TaskId(last, p)].watermark_ms for p in range(PARTITIONS)}
            assert len(marks) == 1
            mark = marks.pop()
            assert mark <= min(reached) and mark // interval == min(reached) // interval
            assert driver.dropped_records.total() == 0, "a watermark was taken for a record, or a record was late"
            outcomes.append((windows_of(driver.read("out")), stores_of(driver)))
    expected: Counter[tuple[str, int]] = Counter()
    for _, r in rows:
        start = r.timestamp_ms // SIZE * SIZE
        if start + SIZE - 1 <= mark:
            expected[str(r.value % 5), start] += 1
    assert all(found == expected for found, _ in outcomes)
    assert expected or mark < SIZE


def test_answers_are_the_same_to_the_last_byte_whatever_the_batches() -> None:
    rows = random_rows(random.Random(99), 3)
    topology = topology_of(delay=3, interval=10, hops=2)
    seen = []
    for batch in BATCHES:
        with TopologyTestDriver(
            topology, partitions=PARTITIONS, options=TaskOptions(batch_max_records=batch), auto_commit=False
        ) as driver:
            piped(driver, rows)
            seen.append((driver.read_raw("out"), driver.read_raw("late"), stores_of(driver)))
    assert seen[0][0] and all(s == seen[0] for s in seen)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("restart", [False, True])
def test_a_partition_without_records_holds_time_back_until_it_is_idle(hops: int, restart: bool) -> None:
    topology = topology_of(delay=0, idle=1_000, hops=hops)
    with TopologyTestDriver(topology, partitions=PARTITIONS) as driver:
        driver.advance_wall_time(1)
        driver.pipe_all("in", [Record("a", 1, 5), Record("a", 2, 100)], partition=0)
        assert driver.read("out") == []
        for _ in range(6):
            driver.advance_wall_time(400)
            if restart:
                driver.restart()
        # by then all are idle, and the one that has come furthest counts
        assert windows_of(driver.read("out")) == {("1", 0): 1}
        driver.pipe("in", "b", 3, 50, partition=1)  # behind the time that has been told
        assert len(driver.read("late")) == (50 // SIZE * SIZE + SIZE - 1 <= 99)
        assert any("journal" in topic for topic in driver.changelogs)
        driver.pipe_all("in", [Record("b", 1, 300)], partition=1)
        assert windows_of(driver.read("out")) == {("2", 100): 1}
        driver.pipe("in", "a", 4, 150, partition=0)
        driver.pipe("in", "b", 1, 400, partition=1)
        assert driver.read("out") == []  # the first partition is active again


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_what_the_clock_brought_about_is_told_again_by_the_journal(seed: int, batch: int) -> None:
    """One upstream task: what it writes to the repartition topic, watermarks among it, follows from log and journal."""
    rng = random.Random(seed)
    topology = topology_of(delay=0, idle=100)
    live = Runner(topology, 0, partitions=PARTITIONS)
    now, offset, ts, rows = 0, 0, 0, []
    for _ in range(60):
        if rng.random() < 0.5:
            now += rng.choice((10, 60, 150))
            live.task.punctuate(now)
            live.result.take(live.task.take_outputs())
        else:
            ts += rng.choice((0, 3, 40))
            rows.append(Input("in", offset, b"k", orjson.dumps(rng.randint(0, 9)), ts, ()))
            offset += 1
            live.task.add(chunk_of(rows[-1:], 0), offset, now)
            live.task.feed.set_end("in", offset)
            live.process(10_000, now)
        if rng.random() < 0.3:
            live.commit()
        if rng.random() < 0.1:
            live.commit()
            live.open()
            live.task.feed.set_end("in", offset)
    live.commit()
    assert any(mark_of(headers) for *_, headers in live.result.outputs["app-by-value-repartition"])

    again = Runner(topology, 0, partitions=PARTITIONS, replay=live.journal)
    for cut in cut_up(rng, rows):
        again.task.add(chunk_of(cut, 0), cut[-1].offset + 1)
    again.task.feed.set_end("in", offset)
    again.drain(batch)
    assert again.result.outputs == live.result.outputs
    assert again.task.watermark_ms == live.task.watermark_ms


@pytest.mark.parametrize("seed", range(4))
def test_what_is_held_back_does_not_depend_on_batches_and_restarts(seed: int) -> None:
    """One upstream task with more steps than its records pay for."""
    rng = random.Random(seed)
    topology = topology_of(delay=0, interval=1)
    rows = [Input("in", i, b"k", orjson.dumps(i % 9), 2 * i, ()) for i in range(700)]
    outcomes = []
    for restarts in (False, True):
        live = Runner(topology, 0, partitions=PARTITIONS)
        for cut in cut_up(rng, rows):
            live.task.add(chunk_of(cut, 0), cut[-1].offset + 1)
            live.task.feed.set_end("in", cut[-1].offset + 1)
            live.drain(rng.choice((1, 7, 1000)))
            if restarts:
                live.commit()
                live.open()
        live.commit()
        outcomes.append(live.result.outputs)
    assert outcomes[0] == outcomes[1]
    marks = sum(mark_of(headers) is not None for *_, headers in outcomes[0]["app-by-value-repartition"])
    assert 100 * PARTITIONS <= marks <= 120 * PARTITIONS
