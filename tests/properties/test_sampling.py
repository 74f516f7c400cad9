"""Deduplication and samples against plain oracles, at every batch size, over partitions and restarts."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record, Windowed
from penstock.state.serdes.partitioner import murmur2
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import tumbling

BATCHES = (1, 2, 7, 10_000)
batches = pytest.mark.parametrize("batch", BATCHES)


def rows(seed: int, count: int = 120, keys: str = "abc") -> list[Record]:
    """Times that wander forward, with late ones, nulls and keys out of a few."""
    rng = random.Random(seed)
    now, out = 50, []
    for i in range(count):
        now += rng.choice((0, 0, 1, 2, 5, 14))
        key = None if rng.random() < 0.05 else rng.choice(keys)
        value = None if rng.random() < 0.05 else i
        out.append(Record(key, value, max(now - rng.choice((0, 0, 0, 3, 12, 40)), 0)))
    return out


def run(topology: Topology, records: list[Record], batch: int, *, restarts: bool = False) -> list[Record]:
    driver = TopologyTestDriver(topology, options=TaskOptions(batch_max_records=batch))
    cut = len(records) // 2 if restarts else len(records)
    for part in (records[:cut], records[cut:]):
        if part:
            driver.pipe_all("in", part)
        if restarts:
            driver.restart()
    driver.close()
    return driver.read("out")


def deduplicated(records: list[Record], within: int, keep: int) -> list[Record]:
    """Every record against all of its key that came before, as long as the chains they form are remembered."""
    out: list[Record] = []
    chains: dict[Any, list[tuple[list[int], int]]] = {}
    time = -1
    for r in records:
        if r.key is None:
            out.append(r)
            continue
        time = max(time, r.timestamp_ms)
        known = [(times, at) for times, at in chains.get(r.key, []) if time - at <= keep]
        near = [c for c in known if any(abs(t - r.timestamp_ms) < within for t in c[0])]
        if not near:
            out.append(r)
        joined = [r.timestamp_ms, *(t for times, _ in near for t in times)]
        chains[r.key] = [c for c in known if c not in near] + [(joined, time)]
    return out


def dedup_topology(within: int, grace: int) -> Topology:
    builder = StreamsBuilder(value=int)
    builder.stream("in").deduplicate(within, grace=grace).to("out")
    return builder.build()


@batches
@pytest.mark.parametrize("restarts", [False, True])
def test_the_first_of_each_key_within_the_horizon_passes(batch: int, restarts: bool) -> None:
    for seed in range(6):
        for within, grace in ((1, 0), (6, 3), (15, 1_000)):
            records = rows(seed)
            expected = deduplicated(records, within, within + grace)
            assert run(dedup_topology(within, grace), records, batch, restarts=restarts) == expected
            if grace == 1_000:  # nothing is forgotten: the definition itself
                plain: list[Record] = []
                for i, r in enumerate(records):
                    if r.key is None or not any(
                        e.key == r.key and abs(e.timestamp_ms - r.timestamp_ms) < within for e in records[:i]
                    ):
                        plain.append(r)
                assert expected == plain


def test_the_store_stays_small_over_many_horizons() -> None:
    driver = TopologyTestDriver(dedup_topology(10, 10))
    sizes = []
    for t in range(0, 4_000, 2):
        driver.pipe("in", f"k{t % 777}", t, t)
        if t > 1_000 and t % 400 == 0:
            backend = next(iter(driver.tasks.values())).backend
            sizes.append(
                sum(1 for s in ("in-deduplicate", "in-deduplicate-expiry") for _ in backend.range(s, None, None))
            )
    assert len(sizes) >= 5
    assert max(sizes) <= 2 * 12
    assert min(sizes) > 0


def throttled(records: list[Record], n: int, per: int, grace: int) -> list[Record]:
    """Every record against all that passed before."""
    out: list[Record] = []
    time = -1
    for r in records:
        start = r.timestamp_ms // per * per
        if r.key is not None:
            time = max(time, r.timestamp_ms)
            same = [e for e in out if e.key == r.key and e.timestamp_ms // per * per == start]
            if time - grace >= start + per or len(same) == n:
                continue
        out.append(r)
    return out


@batches
@pytest.mark.parametrize("restarts", [False, True])
def test_the_first_records_of_each_key_and_interval_pass(batch: int, restarts: bool) -> None:
    for seed in range(6):
        for n, per, grace in ((1, 5, 0), (2, 20, 7), (3, 10, 1_000)):
            builder = StreamsBuilder(value=int)
            builder.stream("in").throttle(n, per, grace=grace).to("out")
            records = rows(seed)
            expected = throttled(records, n, per, grace)
            assert 0 < len(expected) < len(records)
            assert run(builder.build(), records, batch, restarts=restarts) == expected


def test_a_throttle_counts_what_it_drops_and_forgets_what_is_over() -> None:
    builder = StreamsBuilder(value=int)
    builder.stream("in").throttle(2, 10, grace=5, name="few").to("out")
    driver = TopologyTestDriver(builder.build())
    for ts in (0, 1, 2, 24, 9, 25, 14):  # until stream time is 15 the first interval is open, until 25 the second
        driver.pipe("in", "k", ts, ts)
    task = next(iter(driver.tasks.values()))
    assert [r.timestamp_ms for r in driver.read("out")] == [0, 1, 24, 25]
    assert dict(task.dropped) == {"few.throttled": 1, "few.late": 2}
    assert len(list(task.backend.range("few", None, None))) == 1


@pytest.mark.parametrize("key", [lambda _, v: v["id"], col("id")], ids=["function", "expression"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_ids_are_told_apart_across_keys_and_partitions(partitions: int, key: Any) -> None:
    builder = StreamsBuilder(value=dict)
    builder.stream("in").deduplicate(100, key=key, name="once").to("out")
    driver = TopologyTestDriver(builder.build(), partitions=partitions)
    for i, (key, name) in enumerate([("a", "x"), ("b", "x"), ("c", "y"), ("d", None), ("e", None), (None, "x")]):
        driver.pipe("in", key, {"id": name}, i)
    out = driver.read("out")
    assert sorted((str(r.key), r.value["id"]) for r in out) == [("a", "x"), ("c", "y"), ("d", None), ("e", None)]


@batches
def test_a_sample_takes_whole_keys_by_their_hash(batch: int) -> None:
    records = rows(1, 600, keys="abcdefghijklmnopqrstuvwxyz")
    taken: list[set[str]] = []
    for fraction in (0.0, 0.2, 0.6, 1.0):
        builder = StreamsBuilder(value=int)
        builder.stream("in").sample(fraction).to("out")
        out = run(builder.build(), records, batch)
        low = {r.key for r in records if r.key and murmur2(r.key.encode()) & 0xFFFFFFFF < fraction * 2**32}
        assert out == [r for r in records if r.key in low]
        taken.append(low)
    assert taken[0] == set() and taken[1] < taken[2] < taken[3]
    builder = StreamsBuilder(value=int)
    builder.stream("in").sample(0.6, seed=9).to("out")
    assert {r.key for r in run(builder.build(), records, batch)} != taken[2]


def reservoir_topology(n: int, *, delay: int | None = None) -> Topology:
    builder = StreamsBuilder(value=int)
    strategy = None if delay is None else bounded_out_of_orderness(delay)
    stream = builder.stream("in", watermark=strategy)
    stream.sample_reservoir(n, tumbling(20, grace=5)).to("out")
    return builder.build()


@pytest.mark.parametrize("delay", [None, 7])
def test_a_reservoir_holds_records_of_its_window_the_same_in_every_run(delay: int | None) -> None:
    records = rows(3, 400)
    runs = [run(reservoir_topology(4, delay=delay), records, b, restarts=r) for b in BATCHES for r in (False, True)]
    assert all(out == runs[0] for out in runs[1:])
    behind = 1 if delay is None else delay + 1
    time, open_rows = -1, dict[Windowed, list[int]]()
    late = 0
    for r in records:
        start = r.timestamp_ms - r.timestamp_ms % 20
        if r.key is not None and r.value is not None:
            if start + 19 + 5 <= time - behind:
                late += 1
            else:
                open_rows.setdefault(Windowed(r.key, start, start + 20), []).append(r.value)
        time = max(time, r.timestamp_ms)
    closed = {w: v for w, v in open_rows.items() if w.end_ms - 1 + 5 <= time - behind}
    assert late > 0
    assert [r.key for r in runs[0]] == sorted(closed, key=lambda w: (w.start_ms, w.key))
    for r in runs[0]:
        values = closed[r.key]
        assert r.timestamp_ms == r.key.end_ms - 1
        assert len(r.value) == min(len(values), 4)
        assert r.value == sorted(set(r.value) & set(values))


def test_a_reservoir_is_fair() -> None:
    counts = [0] * 10
    records = [Record("k", i % 10, w * 20 + i) for w in range(2_000) for i in range(10)]
    for r in run(reservoir_topology(3), records, 10_000):
        for value in r.value:
            counts[value] += 1
    expected = sum(counts) / 10
    assert sum(counts) == 3 * (2_000 - 1)
    assert sum((c - expected) ** 2 / expected for c in counts) < 27.9, "chi-square, p = 0.001"
