"""What a commit emits and writes, and the bound on memory between commits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record, TaskId, TopicPartition, Windowed
from penstock.streams.ports.chunk import Chunk
from penstock.streams.task import commit_metadata
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import tumbling


def grown(aggregate: Any, value: Any) -> Any:
    aggregate["n"] += value["n"]
    return aggregate


def forgets(key: str, value: Any, aggregate: int) -> int | None:
    return None if value["n"] == 9 else aggregate + 1


def counting(kind: str, emission: Emission) -> StreamsBuilder:
    builder = StreamsBuilder(key=str, value=dict, emission=emission)
    grouped = builder.stream("in").group_by_key()
    if kind == "windows":
        grouped.windowed_by(tumbling(10, grace=5)).count(name="kept").to("out")
    elif kind == "count":
        grouped.count(name="kept").to("out")
    elif kind == "reduce":
        grouped.reduce(grown, name="kept").to("out")
    else:
        grouped.aggregate(lambda: 0, forgets, value=int, name="kept").to("out")
    return builder


@pytest.mark.parametrize("kind", ["windows", "count", "reduce", "forgets"])
def test_per_commit_emits_the_last_update_of_each_key_in_the_order_of_first_change(kind: str) -> None:
    rng = random.Random(kind)
    for batch in (1, 2, 7, 10_000):
        options = TaskOptions(batch_max_records=batch)
        every = TopologyTestDriver(counting(kind, "every_update"), options=options, auto_commit=False)
        held = TopologyTestDriver(counting(kind, "per_commit"), options=options, auto_commit=False)
        now = 0
        for _ in range(40):
            rows = []
            for _ in range(rng.randint(0, 12)):
                now += rng.randint(0, 3)
                value = rng.choice((None, *({"n": n} for n in range(10))))
                rows.append(Record(rng.choice("abcd"), value, max(0, now - rng.choice((0, 0, 7, 30)))))
            for driver in (every, held):
                driver.pipe_all("in", rows)
            assert held.read("out") == []
            held.commit()
            every.commit()
            last: dict[Any, Record] = {}
            for r in every.read("out"):
                last[r.key] = r
            assert held.read("out") == list(last.values())
            assert list(held.store("kept").all()) == list(every.store("kept").all())
        assert every.changelogs == held.changelogs
        assert every.tasks[TaskId(0, 0)].dropped == held.tasks[TaskId(0, 0)].dropped


def test_a_commit_emits_windows_that_expired_within_it() -> None:
    with TopologyTestDriver(counting("windows", "per_commit"), auto_commit=False) as driver:
        driver.pipe_all("in", [Record("k", {"n": 1}, 1), Record("k", {"n": 1}, 1_000)])
        driver.commit()
        assert [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")] == [
            (Windowed("k", 0, 10), 1, 1),
            (Windowed("k", 1_000, 1_010), 1, 1_000),
        ]
        assert [start for _, start, _ in driver.store("kept").all()] == [1_000]
        assert driver.store("kept").get("k", 0) is None


def test_the_changelog_gets_the_last_value_per_key_once_per_commit() -> None:
    with TopologyTestDriver(counting("count", "every_update"), auto_commit=False) as driver:
        driver.pipe_all("in", [Record(k, {"n": 1}, ts) for k, ts in (("b", 5), ("a", 6), ("b", 3))])
        driver.commit()
        driver.commit()
        (rows,) = driver.changelogs.values()
        assert rows == [Record(b"b", (2).to_bytes(8, "big"), 5), Record(b"a", (1).to_bytes(8, "big"), 6)]


def test_uncommitted_writes_over_the_bound_ask_for_a_commit() -> None:
    options = TaskOptions(state_cache_max_bytes=100_000, batch_max_records=50)
    driver = TopologyTestDriver(counting("count", "every_update"), options=options, auto_commit=False)
    task = driver.tasks[TaskId(0, 0)]
    sizes = []
    for n in range(0, 1_900, 50):
        driver.pipe_all("in", [Record(str(i), {"n": 1}, i) for i in range(n, n + 50)])
        sizes.append(sum(s.size_bytes() for s in task.stores.values()))
    assert max(sizes) < 100_000, "the driver commits when the task asks for it"
    (logged,) = driver.changelogs.values()
    assert 1_000 < len(logged) < 1_900
    driver.commit()
    assert len(logged) == 1_900
    assert dict(driver.store("kept").all()) == {str(n): 1 for n in range(1_900)}


def test_clean_entries_are_trimmed_and_read_again() -> None:
    options = TaskOptions(state_cache_max_bytes=20_000)
    with TopologyTestDriver(counting("count", "every_update"), options=options) as driver:
        for _ in range(3):
            for n in range(0, 400, 20):
                driver.pipe_all("in", [Record(str(i), {"n": 1}, i) for i in range(n, n + 20)])
                (state,) = driver.tasks[TaskId(0, 0)].stores.values()
                assert state.size_bytes() <= 20_000
        assert dict(driver.store("kept").all()) == {str(n): 3 for n in range(400)}


def test_the_journal_position_stays_known_through_commits_without_a_journal_record() -> None:
    builder = StreamsBuilder(key=str, value=dict)
    builder.stream("a").merge(builder.stream("b")).to("out")
    driver = TopologyTestDriver(builder, auto_commit=False)
    task = driver.tasks[TaskId(0, 0)]
    seen = []
    for topic, ts in (("a", 10), ("b", 5), ("a", 20)):
        driver.pipe(topic, "k", {"n": 1}, ts)
        work = task.prepare_commit()
        ends = {} if work.journal is None else {TopicPartition(work.journal.topic, 0): 8}
        offsets = task.offsets(work, ends)
        seen.append(commit_metadata.decode(offsets[TopicPartition("a", 0)].metadata).journal)
        task.committed(work, {})
    assert seen == [None, 8, 8]


def test_the_partition_time_of_a_commit_is_that_of_what_was_processed() -> None:
    driver = TopologyTestDriver(counting("count", "every_update"), auto_commit=False)
    task = driver.tasks[TaskId(0, 0)]
    task.add(Chunk("in", 0, [0, 1], [b"k", b"k"], [b'{"n":1}'] * 2, [5, 9]), 2)
    task.process(0, 1)
    work = task.prepare_commit()
    ends = {TopicPartition(o.topic, 0): 1 for _, o in work.changelogs}
    (committed,) = task.offsets(work, ends).values()
    assert (committed.offset, commit_metadata.decode(committed.metadata).partition_time_ms) == (1, 5)
