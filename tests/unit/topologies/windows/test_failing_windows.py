"""A record whose function fails for one of its windows goes into none of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import HoppingWindows


def counted() -> Topology:
    """Counts by window, in dicts; the first of a window that is "bad" there cannot be written."""

    def add(key: str, value: str, acc: dict[str, Any]) -> dict[str, Any]:
        return {"n": acc["n"] + 1} if acc["n"] or value != "bad" else {"n": {value}}

    builder = StreamsBuilder(key=str, value=str)
    windows = builder.stream("in").group_by_key().windowed_by(HoppingWindows(20, 10))
    windows.aggregate(lambda: {"n": 0}, add, value=dict, name="counts").to_stream().to("out")
    return builder.build()


def stored(driver: TopologyTestDriver) -> list[tuple[bytes, bytes]]:
    (task,) = driver.tasks.values()
    return list(task.backend.range("counts", None, None))


@pytest.mark.parametrize("batch", [1, 10])
def test_a_skipped_record_leaves_no_time_in_the_changelog(batch: int) -> None:
    policies = Policies(processing="skip", deserialization="skip")
    options = TaskOptions(policies=policies, batch_max_records=batch)
    with TopologyTestDriver(counted(), options=options, auto_commit=False) as driver:
        driver.pipe("in", "k", "good", 5)
        driver.pipe("in", "k", "bad", 15)
        driver.commit()
        before = stored(driver)
        assert before == [((0).to_bytes(8, "big") + b"k", (5).to_bytes(8, "big") + b'{"n":1}')]
        driver.restart(restore=True)
        assert stored(driver) == before
        assert [r.timestamp_ms for r in driver.read("out")] == [5]


def by_hand(rows: list[tuple[str, str, int]]) -> dict[tuple[int, str], int]:
    """Counts by window, where a record that fails for one of its windows is in none."""
    counts: dict[tuple[int, str], int] = {}
    for key, value, ts in rows:
        starts = [s for s in range(ts // 10 * 10 - 10, ts + 1, 10) if s >= 0]
        if value != "bad" or all(counts.get((s, key), 0) != 1 for s in starts):
            counts |= {(s, key): counts.get((s, key), 0) + 1 for s in starts}
    return counts


def refuse_second(value: str, count: int) -> int:
    if value == "bad" and count == 1:
        raise ValueError(value)
    return count + 1


@pytest.mark.parametrize("olds", [False, True])
@pytest.mark.parametrize("immutable", [False, True])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_many_records_among_which_some_fail(batch: int, immutable: bool, olds: bool) -> None:
    rng = random.Random(batch)
    rows = [(rng.choice("ab"), rng.choice(("good", "bad", "bad")), 4 * i) for i in range(60)]
    builder = StreamsBuilder(key=str, value=str)
    windows = builder.stream("in").group_by_key().windowed_by(HoppingWindows(20, 10, 1000))
    if immutable:
        table = windows.aggregate(int, lambda key, value, n: refuse_second(value, n), value=int, name="counts")
    else:
        table = windows.aggregate(
            lambda: [0], lambda key, value, acc: [refuse_second(value, acc[0])], value=list, name="counts"
        )
    if olds:
        table = table.filter(lambda key, value: True)
    table.to_stream().to("out")
    options = TaskOptions(policies=Policies(processing="skip"), batch_max_records=batch)
    with TopologyTestDriver(builder.build(), options=options, auto_commit=False) as driver:
        driver.pipe_all("in", [Record(*row) for row in rows])
        driver.commit()
        shown = {(r.key.start_ms, r.key.key): r.value for r in driver.read("out")}
    assert {at: n if immutable else n[0] for at, n in shown.items()} == by_hand(rows)
    assert sum(by_hand(rows).values()) < 2 * len(rows) - 1, "no record failed"
