"""Aggregations over windows of every kind against the naive oracle: all emissions, clocks, batch sizes and restarts."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import (
    Bounds,
    CalendarWindows,
    UnlimitedWindows,
    custom,
    hopping,
    merge_overlapping,
)
from tests.properties.window_oracle import Commit, Found, MergingOracle, Oracle, Put, Row, Trial, Wait, random_trial

SIZES = (1, 2, 7, 10_000)


def listed(key: str, value: str, aggregate: list[str]) -> list[str]:
    """Changes the aggregate that it is given, as users may."""
    aggregate.append(value)
    return aggregate


@dataclasses.dataclass(frozen=True, kw_only=True)
class BesideOlds(OperatorSpec):
    """Shows old values: each value becomes ``[new, old]``."""

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _BesideOlds(ctx)


class _BesideOlds(Operator):
    def process(self, port: int, batch: Batch) -> None:
        olds = batch.olds or [None] * len(batch)
        self.ctx.emit(batch.replace(values=[[a, b] for a, b in zip(batch.values, olds, strict=True)]))


def topology(trial: Trial, *, mutable: bool) -> Topology:
    """Strings joined by ``+``: as they are, or as lists that are changed in place."""
    builder = StreamsBuilder("t", key=str, value=str)
    delay = None if trial.delay_ms is None else bounded_out_of_orderness(trial.delay_ms)
    shown = builder.stream("in", watermark=delay).filter(lambda key, value: value != "hide")
    grouped = shown.group_by_key().windowed_by(trial.windows)
    options: dict[str, Any] = {"emission": trial.emission, "late": True}
    if mutable:
        table = grouped.aggregate(list, listed, value=list, merger=lambda key, a, b: a + b, **options)
    else:
        table = grouped.reduce(lambda a, b: f"{a}+{b}", **options)
    if trial.emission != "on_close":
        table.request_olds()
    builder.add_operator("olds", BesideOlds())
    builder.add_stream("to-olds", table.out, "olds")
    builder.stream_of("olds", key=table.key_serde, value=list).to("out")
    table.late.to("late")
    return builder.build()


def drive(topology: Topology, trial: Trial, size: int) -> TopologyTestDriver:
    """Play the steps; the driver holds what came out."""
    driver = TopologyTestDriver(
        topology,
        options=TaskOptions(batch_max_records=size, wall_resolution_ms=1),
        auto_commit=False,
    )
    waiting: list[Record] = []

    def pipe() -> None:
        driver.pipe_all("in", waiting)
        waiting.clear()

    for step in trial.steps:
        if isinstance(step, Put):
            waiting.append(Record(step.key, step.value, step.ts))
            continue
        pipe()
        if isinstance(step, Wait):
            driver.advance_wall_time(step.ms)
        elif isinstance(step, Commit) and step.restart:
            driver.restart(restore=step.restore)
        else:
            driver.commit()
    pipe()
    driver.commit()
    return driver


def play(trial: Trial, size: int, *, mutable: bool) -> Found:
    """The engine's answer."""
    driver = drive(topology(trial, mutable=mutable), trial, size)
    rows: list[Row] = []
    for r in driver.read("out"):
        new, old = ("+".join(v) if isinstance(v, list) else v for v in r.value)
        rows.append((r.key.key, r.key.start_ms, r.key.end_ms, new, r.timestamp_ms, old))
    late = [(r.key, r.value, r.timestamp_ms) for r in driver.read("late")]
    dropped = driver.dropped_records
    assert sum(n for name, n in dropped.items() if name.endswith(".late")) == len(late)
    driver.release()
    return Found(rows, late, sum(n for name, n in dropped.items() if name.endswith(".outside")))


@pytest.mark.parametrize("seed", range(80))
def test_windows_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    trial = random_trial(rng)
    expected = Oracle(trial).run()
    for size in SIZES:
        found = play(trial, size, mutable=rng.random() < 0.4)
        where = f"{trial.windows} {trial.emission} delay={trial.delay_ms} batches of {size}"
        assert found.rows == expected.rows, where
        assert sorted(found.late) == sorted(expected.late), where
        assert found.outside == expected.outside, where


def added(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Counts per word, in the order of words; changes the first."""
    for word, n in b.items():
        a[word] = a.get(word, 0) + n
    return {word: a[word] for word in sorted(a)}


def taken(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """The inverse."""
    for word, n in b.items():
        a[word] -= n
    return {word: n for word, n in a.items() if n}


def shared_parts(trial: Trial, how: str, *, mutable: bool) -> Topology:
    """Counts per word (dicts that are changed in place) or the sum of their lengths, put together as ``how`` says."""
    builder = StreamsBuilder("t", key=str, value=str)
    delay = None if trial.delay_ms is None else bounded_out_of_orderness(trial.delay_ms)
    stream = builder.stream("in", watermark=delay).filter(lambda key, value: value != "hide")
    grouped = stream.group_by_key().windowed_by(trial.windows)
    merge: Any = added if mutable else operator.add
    inverse: Any = taken if mutable else operator.sub
    options: dict[str, Any] = {"emission": "on_close", "late": True, "value": dict if mutable else int, "name": "table"}
    options |= {"merge": merge} if how != "plain" else {}
    options |= {"inverse": inverse} if how == "inverse" else {}
    if mutable:
        table = grouped.aggregate(dict, lambda key, value, acc: added(acc, {value: 1}), **options)
    else:
        table = grouped.aggregate(int, lambda key, value, acc: acc + len(value), **options)
    table.to("out")
    table.late.to("late")
    return builder.build()


@pytest.mark.parametrize("seed", range(20))
def test_panes_and_the_inverse_give_what_whole_windows_give(seed: int) -> None:
    rng = random.Random(seed)
    trial = dataclasses.replace(random_trial(rng), emission="on_close")
    if isinstance(trial.windows, CalendarWindows | UnlimitedWindows):
        trial = dataclasses.replace(trial, steps=random_trial(random.Random(1)).steps)
    size, advance = rng.choice(((10, 5), (12, 8), (9, 2), (30, 10), (6, 4)))
    processing = rng.random() < 0.2
    time: dict[str, Any] = {"time": "processing"} if processing else {"grace": rng.choice((0, 3, 20))}
    trial = dataclasses.replace(trial, windows=hopping(size, advance, offset=rng.choice((0, 0, 3)), **time))
    mutable = rng.random() < 0.5
    expected = None
    for how in ("plain", "panes", "inverse"):
        for batch_size in SIZES:
            driver = drive(shared_parts(trial, how, mutable=mutable), trial, batch_size)
            found = driver.read("out"), driver.read("late"), driver.dropped_records
            driver.release()
            expected = expected or found
            assert found == expected, f"{how} {trial.windows} batches of {batch_size}"


@pytest.mark.parametrize("seed", range(40))
def test_windows_that_merge_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    gap, touching = rng.choice((1, 4, 10)), rng.random() < 0.5
    time: dict[str, Any] = {"time": "processing"} if rng.random() < 0.2 else {"grace": rng.choice((0, 3, 20))}

    def merged(windows: Sequence[Bounds]) -> list[tuple[Bounds, list[Bounds]]]:
        return merge_overlapping(windows, touching=touching)

    windows = custom(lambda key, value, ts: [(ts, ts + gap)], max_size=gap, merge=merged, **time)
    trial = random_trial(rng)
    steps = [s if not isinstance(s, Put) else dataclasses.replace(s, ts=s.ts % 500) for s in trial.steps]
    trial = dataclasses.replace(trial, windows=windows, steps=steps)
    expected = MergingOracle(trial, gap, touching=touching).run()
    for size in SIZES:
        found = play(trial, size, mutable=rng.random() < 0.4)
        where = f"gap={gap} touching={touching} {trial.windows} {trial.emission} {trial.delay_ms} batches of {size}"
        assert found.rows == expected.rows, where
        assert sorted(found.late) == sorted(expected.late), where
