"""What only a live run can show of the language: tables that every task loads first, event time across repartition
topics with a partition that falls silent, records that go around, questions to the outside; exactly once, with a stop in
the middle."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.system_clock import SystemClock
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from tests.integration.worker.application import NOW_MS, PARTITIONS, SESSION_TIMEOUT_MS, Cluster, until

ROWS = 500
CLICKS = 2_000


def settings(cluster: Cluster, folder: Path) -> WorkerSettings:
    """Small batches and short commits, exactly once."""
    return load_settings(
        env={},
        application_id=cluster.name,
        bootstrap_servers=cluster.bootstrap_servers,
        state_dir=str(folder),
        guarantee="exactly_once",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        commit_interval_ms=50,
        batch_max_records=100,
    )


def run_in_two_parts(
    topology: ps.Topology, chosen: WorkerSettings, begun: Callable[[], object], done: Callable[[], object]
) -> None:
    """A worker until ``begun()``, then another until ``done()``."""
    for reached in (begun, done):
        worker = Worker(topology, chosen).start()
        try:
            until("the output", reached, every_s=0.3)
        finally:
            worker.stop()


def test_global_rows_are_there_before_the_first_record(kafka: str, tmp_path: Path) -> None:
    """Whatever partitions rows and clicks lie in, and although the clicks were there first."""
    cluster = Cluster(kafka, "global")
    rows, clicks, out = cluster.create("rows"), cluster.create("clicks"), cluster.create("out")
    numbers = range(CLICKS)
    cluster.write(
        clicks,
        [str(i % ROWS).encode() for i in numbers],
        keys=[f"c{i}".encode() for i in numbers],
        timestamps=[NOW_MS + i for i in numbers],
    )
    cluster.write(
        rows,
        [f"row {i}".encode() for i in range(ROWS)],
        keys=[str(i).encode() for i in range(ROWS)],
        timestamps=[NOW_MS + 10_000_000] * ROWS,  # newer than any click: time alone would have clicks go first
    )
    builder = ps.StreamsBuilder("global", value=str)
    table = builder.global_table(rows)
    builder.stream(clicks).left_join_global(table, lambda k, v: v, lambda v, row: f"{v}:{row}").to(out)

    def written() -> int:
        return len(cluster.read(out))

    run_in_two_parts(builder.build(), settings(cluster, tmp_path), lambda: written() > 0, lambda: written() >= CLICKS)
    expected = Counter((f"c{i}", f"{i % ROWS}:row {i % ROWS}") for i in numbers)
    assert Counter((w.key.decode(), w.value.decode()) for w in cluster.read(out) if w.key and w.value) == expected


def test_windows_close_by_watermarks_across_a_repartition(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each window once, complete, although one partition is always silent; the last ones when all are. Silence is judged
    by the clock, which stands still until all is read: a machine that stalls makes no partition silent."""
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    cluster = Cluster(kafka, "watermarks")
    source, out = cluster.create("in"), cluster.create("out")
    builder = ps.StreamsBuilder("watermarks", value=str)
    stream = builder.stream(source, watermark=bounded_out_of_orderness("1s", idle="10s"))
    counts = (
        stream.group_by(lambda key, value: value)
        .windowed_by(ps.tumbling("10s", grace=0))
        .count(name="counts", emission="on_close")
    )
    counts.to_stream(lambda window, count: f"{window.key}@{window.start_ms}", key=str).to(out, value=int)
    expected: Counter[str] = Counter()
    for partition in range(PARTITIONS - 1):
        times = [NOW_MS + 100 * i + partition for i in range(600)]
        values = [f"v{i % 5}" for i in range(600)]
        keys = [f"k{i}".encode() for i in range(600)]
        cluster.write(source, [v.encode() for v in values], keys=keys, timestamps=times, partition=partition)
        expected.update(f"{v}@{t - t % 10_000}" for v, t in zip(values, times, strict=True))
    closed = {w for w in expected if int(w.partition("@")[2]) + 10_000 < NOW_MS + 59_000}

    def keys_written() -> set[str]:
        nonlocal now_ms
        if cluster.committed(cluster.name, source) == expected.total():
            now_ms += 5_000
        return {w.key.decode() for w in cluster.read(out) if w.key}

    run_in_two_parts(
        builder.build(), settings(cluster, tmp_path), lambda: keys_written(), lambda: closed <= keys_written()
    )
    found = [(w.key.decode(), int.from_bytes(w.value, "big")) for w in cluster.read(out) if w.key and w.value]
    assert len(found) == len({key for key, _ in found}), "a window was written twice"
    assert dict(found) == {key: expected[key] for key, _ in found}


def test_records_go_around_and_questions_are_asked(kafka: str, tmp_path: Path) -> None:
    """Each record as often as it must, over all partitions; answers join it outside of Kafka."""
    cluster = Cluster(kafka, "loop")
    source, out = cluster.create("in"), cluster.create("out")

    def around(stream: KStream) -> tuple[KStream, KStream]:
        again, done = stream.branch(lambda key, value: value > 0, default=True)
        return again.map(lambda key, value: (f"{key}+", value - 1)), done

    async def ask(key: str, value: int) -> dict[str, int]:
        return {"length": len(key)}

    asked: set[str] = set()

    async def doubled(key: str, value: dict[str, int]) -> dict[str, int]:
        if key not in asked:
            asked.add(key)
            raise ConnectionError("away at first")
        return {**value, "twice": value["length"] * 2}

    builder = ps.StreamsBuilder("loop", value=int)
    loop = builder.stream(source).loop(around, max_iterations=5)
    answered = loop.done.lookup(ask, answer=dict, value=dict, timeout="120s")
    answered.map_values(ps.awaiting(doubled, timeout="120s"), value=dict).on_error(ps.retry(2, "1ms")).to(out)
    rounds = [i % 4 for i in range(200)]
    keys = [f"k{i}" for i in range(200)]
    cluster.write(source, [n.to_bytes(8, "big") for n in rounds], keys=[k.encode() for k in keys])

    def written() -> int:
        return len(cluster.read(out))

    run_in_two_parts(builder.build(), settings(cluster, tmp_path), lambda: written() > 20, lambda: written() >= 200)
    expected = {
        f"{k}{'+' * n}": {"length": len(k) + n, "twice": 2 * (len(k) + n)} for k, n in zip(keys, rounds, strict=True)
    }
    found = [(w.key.decode(), json.loads(w.value)) for w in cluster.read(out) if w.key and w.value]
    assert len(found) == 200
    assert dict(found) == expected
