"""Micro-batches and whole-stream aggregates against brute force, at every batch size, over restarts and partitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.state.log import Record, Windowed
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, count_distinct, max_, sum_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.micro_batches import MicroBatches
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import tumbling

BATCHES = (1, 2, 7, 10_000)
RUNS = ((1, False), (2, True), (7, False), (10_000, True), (10_000, False))
"""Batch sizes, with and without a restart."""
PANE = 10


def rows(seed: int, count: int = 150, keys: str = "abc", gap: int = 70) -> list[Record]:
    """Times that wander forward, with late ones and now and then a long gap."""
    rng = random.Random(seed)
    now, out = 5, []
    for i in range(count):
        now += rng.choice((0, 0, 1, 2, 4, 9, gap if rng.random() < 0.1 else 1))
        out.append(Record(rng.choice(keys), i % 13, max(now - rng.choice((0, 0, 0, 3, 12, 40)), 0)))
    return out


def run(topology: Topology, records: list[Record], batch: int, topics: list[str], *, restarts: bool) -> dict[str, Any]:
    driver = TopologyTestDriver(topology, options=TaskOptions(batch_max_records=batch))
    cut = len(records) // 2 if restarts else len(records)
    for part in (records[:cut], records[cut:]):
        if part:
            driver.pipe_all("in", part)
        if restarts:
            driver.restart()
    driver.close()
    return {t: driver.read(t) for t in topics}


def closed_batches(
    records: list[Record], behind: int, size: int = PANE, slide: int = PANE, grace: int = 0
) -> list[tuple[int, list[Record]]]:
    """The batches that were run: their ends, and their records in order of pane and arrival."""
    mark, panes = -1, dict[int, list[Record]]()
    for r in records:
        start = r.timestamp_ms // PANE * PANE
        if start + PANE - 1 + grace > mark:
            panes.setdefault(start, []).append(r)
        mark = max(mark, r.timestamp_ms - behind)
    out = []
    for end in range(slide, mark + 2 - grace, slide):
        held = [r for start in sorted(panes) if end - size <= start < end for r in panes[start]]
        if held:
            out.append((end, held))
    return out


def by_key(held: list[Record], fn: Callable[[list[int]], Any]) -> list[tuple[str, Any]]:
    return [(k, fn([r.value for r in held if r.key == k])) for k in sorted({r.key for r in held})]


def batches_of(*, delay: int | None, grace: int = 0) -> tuple[StreamsBuilder, MicroBatches]:
    builder = StreamsBuilder(value=int)
    strategy = None if delay is None else bounded_out_of_orderness(delay, interval=1)
    return builder, builder.stream("in", watermark=strategy).micro_batches(PANE, grace=grace)


VARIANTS = [(None, 0), (None, 15), (8, 0), (8, 5)]
variants = pytest.mark.parametrize(("delay", "grace"), VARIANTS)


@variants
def test_keyed_results_of_every_batch_and_window(delay: int | None, grace: int) -> None:
    records = rows(1, 110)
    behind = 1 if delay is None else delay + 1
    for size, slide in ((10, 10), (30, 10), (30, 20), (20, 50)):
        builder, cut = batches_of(delay=delay, grace=grace)
        cut.window(size, slide).reduce_by_key(lambda a, b: a + b).to("sum")
        cut.reduce_by_key_and_window(lambda a, b: a + b, lambda a, b: a - b, size, slide).to("inverse")
        cut.window(size, slide).count_by_key().to("count")
        cut.window(size, slide).transform(lambda pairs: sorted(pairs)).to("sorted")
        cut.window(size, slide).count_by_value(name="values").to("values")
        topology = builder.build()
        topics = ["sum", "inverse", "count", "sorted", "values"]
        runs = [run(topology, records, b, topics, restarts=r) for b, r in RUNS]
        expected = closed_batches(records, behind, size, slide, grace)
        assert len(expected) > 5
        sums = [Record(k, v, end - 1) for end, held in expected for k, v in by_key(held, sum)]
        counts = [Record(k, v, end - 1) for end, held in expected for k, v in by_key(held, len)]
        order = [Record(k, v, end - 1) for end, held in expected for k, v in sorted((r.key, r.value) for r in held)]
        values = [
            Record(v, sum(r.value == v for r in held), end - 1)
            for end, held in expected
            for v in sorted({r.value for r in held})
        ]
        for out in runs:
            assert out["sum"] == sums
            assert out["inverse"] == sums
            assert out["count"] == counts
            assert out["sorted"] == order
            assert out["values"] == values


@variants
def test_whole_stream_results_of_every_batch_and_window(delay: int | None, grace: int) -> None:
    records = rows(4)
    behind = 1 if delay is None else delay + 1
    for size, slide in ((10, 10), (30, 10), (40, 20)):
        builder, cut = batches_of(delay=delay, grace=grace)
        cut.window(size, slide).count().to("count")
        cut.reduce_by_window(lambda a, b: a + b, None, size, slide, name="folded").to("sum")
        cut.reduce_by_window(lambda a, b: a + b, lambda a, b: a - b, size, slide).to("inverse")
        topology = builder.build()
        runs = [
            run(topology, records, b, ["count", "sum", "inverse"], restarts=r) for b in BATCHES for r in (False, True)
        ]
        expected = closed_batches(records, behind, size, slide, grace)
        if delay is None:  # the task that merges has the partials' time, and none comes of a batch without records
            last = max(r.timestamp_ms for _, held in closed_batches(records, behind, grace=grace) for r in held)
            expected = [b for b in expected if b[0] <= last // PANE * PANE + PANE]
        for out in runs:
            assert out["count"] == [Record(end - size, len(held), end - 1) for end, held in expected]
            sums = [Record(end - size, sum(r.value for r in held), end - 1) for end, held in expected]
            assert out["sum"] == sums
            assert out["inverse"] == sums


@pytest.mark.parametrize("timeout", [None, 35])
def test_states_are_updated_at_every_batch(timeout: int | None) -> None:
    records = rows(5, 90)
    first = {"a": 1_000, "z": 5}

    def updated(values: list[int], state: int | None) -> int | None:
        total = (state or 0) + sum(values) + (1 if not values else 0)
        return None if total % 7 == 0 else total

    builder, cut = batches_of(delay=None)
    cut.update_state_by_key(updated, first, timeout).to("state")
    topology = builder.build()
    runs = [run(topology, records, b, ["state"], restarts=r)["state"] for b, r in RUNS]
    held = dict(closed_batches(records, 1))
    begin = records[0].timestamp_ms // PANE * PANE + PANE
    states = {k: (v, begin) for k, v in first.items()}
    expected = []
    last = (max(r.timestamp_ms for r in records)) // PANE * PANE
    for end in range(min(begin, *held), last + 1, PANE):
        new = held.get(end, [])
        for key in sorted({*states, *(r.key for r in new)}):
            values = [r.value for r in new if r.key == key]
            state, seen = states.pop(key, (None, end))
            if values:
                seen = end
            elif timeout is not None and end - seen >= timeout:
                continue
            state = updated(values, state)
            if state is not None:
                states[key] = (state, seen)
                expected.append(Record(key, state, end - 1))
    assert len(expected) > 20
    for out in runs:
        assert out == expected


def test_first_states_reach_the_task_of_their_key_once() -> None:
    builder, cut = batches_of(delay=0)
    first = dict.fromkeys("abcdefgh", 100)
    cut.update_state_by_key(lambda values, state: None if 9 in values else (state or 0) + sum(values), first).to(
        "state"
    )
    driver = TopologyTestDriver(builder.build(), partitions=3)
    names = "abcdefghxyz"
    driver.pipe_all("in", [Record(k, 1, 5) for k in names])
    driver.pipe_all("in", [Record(k, 9, 15) for k in "abx"])
    driver.restart()
    driver.pipe_all("in", [Record(k, 2, 25) for k in names])
    driver.pipe_all("in", [Record(k, 0, 35) for k in names])
    out = sorted(driver.read("state"), key=lambda r: (r.timestamp_ms, r.key))
    assert [(r.timestamp_ms, r.key, r.value) for r in out] == [
        *[(9, k, 101 if k in first else 1) for k in names],
        *[(19, k, 101 if k in first else 1) for k in names if k not in "abx"],
        *[(29, k, (0 if k in "abx" else 101 if k in first else 1) + 2) for k in names],
    ]


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_batches_are_joined_by_key(how: Any) -> None:
    records = rows(6, 60)

    def odd(v: int) -> bool:
        return v % 2 == 1

    builder, cut = batches_of(delay=None)
    left, right = cut.filter(lambda _, v: not odd(v)), cut.filter(lambda _, v: odd(v))
    left.window(20, 10).join(right.window(20, 10), how=how).to("joined")
    topology = builder.build()
    runs = [run(topology, records, b, ["joined"], restarts=r)["joined"] for b, r in RUNS]
    expected = []
    for end, held in closed_batches(records, 1, 20, 10):
        lefts, rights = [r for r in held if not odd(r.value)], [r for r in held if odd(r.value)]
        for key in dict.fromkeys(r.key for r in [*lefts, *rights]):
            mine: list[int | None] = [r.value for r in lefts if r.key == key]
            theirs: list[int | None] = [r.value for r in rights if r.key == key]
            mine = mine or ([None] if how in ("right", "outer") else [])
            theirs = theirs or ([None] if how in ("left", "outer") else [])
            expected += [Record(key, [x, y], end - 1) for x in mine for y in theirs]
    assert len(expected) > 10
    for out in runs:
        assert out == expected


def test_batches_of_results_follow_their_own_batches() -> None:
    records = rows(7)
    builder, cut = batches_of(delay=3)
    top = cut.reduce_by_key(lambda a, b: a + b).transform(lambda pairs: [max(pairs, key=lambda p: (p[1], p[0]))])
    top.to("top")
    top.window(30, 10).count_by_key().to("often")
    out = run(builder.build(), records, 7, ["top", "often"], restarts=True)
    best = [(end, max(by_key(held, sum), key=lambda p: (p[1], p[0]))) for end, held in closed_batches(records, 4)]
    assert out["top"] == [Record(k, v, end - 1) for end, (k, v) in best]
    winners = dict(best)
    expected = []
    for end in range(PANE, max(winners) + 30, PANE):
        names = [winners[e][0] for e in (end - 20, end - 10, end) if e in winners]
        expected += [Record(k, names.count(k), end - 1) for k in sorted(set(names))]
    assert out["often"] == expected[: len(out["often"])]
    assert len(out["often"]) >= len(expected) - 4


def piped(driver: TopologyTestDriver, records: list[Record]) -> None:
    for i in range(0, len(records), 17):
        driver.pipe_all("in", records[i : i + 17])


def test_tasks_wait_for_each_other_by_watermarks() -> None:
    records = sorted(rows(8, 300, keys="abcdefgh"), key=lambda r: r.timestamp_ms)
    builder, cut = batches_of(delay=0)
    cut.count().to("count")
    cut.window(30, 10).count().to("windows")
    cut.transform(lambda pairs: [("n", len(pairs))]).to("gathered")
    driver = TopologyTestDriver(builder.build(), partitions=3)
    piped(driver, records)
    piped(driver, [Record(k, 0, 5_000) for k in "abcdefgh"])
    whole = closed_batches([*records, Record("a", 0, 5_000)], 1)
    assert driver.read("count") == [Record(end - PANE, len(held), end - 1) for end, held in whole]
    wide = closed_batches([*records, Record("a", 0, 5_000)], 1, 30, 10)
    assert driver.read("windows") == [Record(end - 30, len(held), end - 1) for end, held in wide]
    assert driver.read("gathered") == [Record("n", len(held), end - 1) for end, held in whole]


def test_without_watermarks_totals_come_again_until_they_are_exact() -> None:
    records = sorted(rows(9, 300, keys="abcdefgh"), key=lambda r: r.timestamp_ms)
    end_of_all = [Record(k, 0, 5_000) for k in "abcdefgh"]
    builder, cut = batches_of(delay=None)
    cut.count().to("count")
    cut.reduce_by_window(lambda a, b: a + b, lambda a, b: a - b, 30, 10).to("sum")
    driver = TopologyTestDriver(builder.build(), partitions=3)
    piped(driver, records)
    piped(driver, end_of_all)
    written = driver.read("count")
    last = {r.key: r.value for r in written}
    assert len(written) > len(last), "some came again"
    assert last == {end - PANE: len(held) for end, held in closed_batches([*records, end_of_all[0]], 1)}
    sums = {r.key: r.value for r in driver.read("sum")}
    wide = closed_batches([*records, end_of_all[0]], 1, 30, 10)
    assert sums == {end - 30: sum(r.value for r in held) for end, held in wide if end - 30 in sums}
    assert len(sums) >= len(wide) - 3


def test_batches_by_the_clock_close_without_records() -> None:
    builder = StreamsBuilder(value=int)
    cut = builder.stream("in").micro_batches("1s", time="processing")
    cut.reduce_by_key(lambda a, b: a + b).to("sum")
    cut.count().to("count")
    cut.window("2s", "1s").transform(lambda pairs: [("n", len(pairs))]).to("n")
    cut.reduce_by_key(lambda a, b: a + b).transform(lambda pairs: sorted(pairs, key=lambda p: -p[1])).to("ranked")
    cut.update_state_by_key(lambda values, state: (state or 0) + sum(values), timeout="3s").to("state")
    driver = TopologyTestDriver(builder.build())
    driver.advance_wall_time(10_000)
    driver.pipe("in", "a", 1, 77)
    driver.advance_wall_time(400)
    driver.pipe("in", "b", 5, 3)
    assert driver.read("sum") == []
    driver.advance_wall_time(700)
    driver.pipe("in", "a", 2, 50)
    for _ in range(50):
        driver.advance_wall_time(100)
    at = 10_999
    assert driver.read("sum") == [Record("a", 1, at), Record("b", 5, at), Record("a", 2, at + 1_000)]
    assert driver.read("count") == [Record(10_000, 2, at), Record(11_000, 1, at + 1_000)]
    assert driver.read("n") == [Record("n", 2, at), Record("n", 3, at + 1_000), Record("n", 1, at + 2_000)]
    ranked = [(r.key, r.value) for r in driver.read("ranked")]
    assert ranked == [("b", 5), ("a", 1), ("a", 2)]
    states = [Record("a", 1, at), Record("b", 5, at)]
    states += [Record(k, v, at + ms) for ms in (1_000, 2_000) for k, v in (("a", 3), ("b", 5))]
    assert driver.read("state") == [*states, Record("a", 3, at + 3_000)]


def test_stores_stay_small_over_many_horizons() -> None:
    builder, cut = batches_of(delay=None)
    cut.reduce_by_key_and_window(lambda a, b: a + b, lambda a, b: a - b, 30, 10).to("a")
    cut.transform(lambda pairs: pairs).to("b")
    cut.update_state_by_key(lambda values, state: (state or 0) + 1, timeout=30).to("c")
    driver = TopologyTestDriver(builder.build())
    sizes = []
    for t in range(0, 3_000, 3):
        driver.pipe("in", f"k{t}", 1, t)
        if t > 900 and t % 300 == 0:
            stores = [
                (task.backend, store.name)
                for task_id, task in driver.tasks.items()
                for store in driver.topology.subtopologies[task_id.subtopology].stores
            ]
            sizes.append(sum(1 for backend, name in stores for _ in backend.range(name, None, None)))
    assert len(sizes) == 6
    assert 0 < max(sizes) < 120


# -- whole streams -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("emission", ["every_update", "per_commit"])
def test_the_whole_stream_is_aggregated_exactly(partitions: int, emission: Any) -> None:
    records = rows(10, 120, keys="abcdefgh")
    builder = StreamsBuilder(value=int)
    aggregate = agg(n=count(), total=sum_(number=int), most=max_(), kinds=count_distinct())
    builder.stream("in").aggregate_all(aggregate, emission=emission, name="all").to("out")
    driver = TopologyTestDriver(builder.build(), partitions=partitions, auto_commit=False)
    for i, r in enumerate(records):
        driver.pipe("in", *r[:3])
        if i % 30 == 7:
            driver.restart()
    driver.restart()
    out = driver.read("out")
    values = [r.value for r in records]
    expected = {"n": 120, "total": sum(values), "most": max(values), "kinds": len(set(values))}
    assert out[-1] == Record("all", expected, max(r.timestamp_ms for r in records))
    assert len(out) == 120 if emission == "every_update" else 4 <= len(out) <= 5 * partitions
    ns = [r.value["n"] for r in out]
    assert ns == sorted(set(ns))
    if emission == "every_update":
        assert ns == list(range(1, 121))


@pytest.mark.parametrize("delay", [None, 6])
@pytest.mark.parametrize("batch", BATCHES)
def test_windows_of_the_whole_stream(batch: int, delay: int | None) -> None:
    records = rows(11)
    builder = StreamsBuilder(value=int)
    strategy = None if delay is None else bounded_out_of_orderness(delay)
    stream = builder.stream("in", watermark=strategy)
    stream.aggregate_all(sum_(number=int), tumbling(20, grace=5), name="sums").to("out")
    out = run(builder.build(), records, batch, ["out"], restarts=True)["out"]
    sums: dict[Windowed, tuple[int, int]] = {}
    time, expected = -1, []
    for r in records:
        start = r.timestamp_ms // 20 * 20
        stream_time = max(time, r.timestamp_ms) if delay is None else max(time - delay, 0)
        time = max(time, r.timestamp_ms)
        if start + 20 + 5 > stream_time:
            key = Windowed("all", start, start + 20)
            total, at = sums.get(key, (0, 0))
            sums[key] = (total + r.value, max(at, r.timestamp_ms))
            expected.append(Record(key, *sums[key]))
    assert 0 < len(expected) < len(records)
    assert out == expected


def test_a_total_is_a_table() -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in").aggregate_all(sum_(lambda v: Decimal(v), number=Decimal), name="balance")
    driver = TopologyTestDriver(builder.build())
    driver.pipe("in", "a", "1.10")
    driver.pipe("in", None, "2.20")
    driver.pipe("in", "b", None)
    assert dict(driver.store("balance").all()) == {"all": Decimal("3.30")}
