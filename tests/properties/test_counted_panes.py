"""Counts per overlapping window by the compiled part against those by rows: the same results in the same order, late
records, counters, stores and changelogs, for every clock, however batches are cut, over commits, restarts and restores. The
results are also those of the form that keeps windows instead of panes."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.state import native
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.windows import packed_panes, window_operator_choice
from penstock.topologies.windows import hopping
from tests.properties.following import COMMIT, DISCARD, READ, RESTART, RESTORE, Wait, take_all

SIZES = (3, 17, 10_000)
Step = Record | Wait | str


@dataclasses.dataclass
class Trial:
    """One random topology over overlapping windows, with its input."""

    topology: Topology
    steps: list[Step]
    where: str
    late: bool


def random_trial(rng: random.Random) -> Trial:
    """Any clock, grace, offset and retention; keys of a fixed length or not; combined before a repartition topic or not."""
    clock = rng.choice(("stream", "stream", "watermark", "watermark", "wall"))
    size, advance = rng.choice(((10, 5), (10, 2), (6, 4), (9, 1), (60, 1), (30, 20)))
    options: dict[str, Any] = {"time": "processing"} if clock == "wall" else {"grace": rng.choice((0, 0, 4, 25))}
    windows = hopping(size, advance, offset=rng.choice((0, 0, 3)), **options)
    keys: Any = rng.choice((str, int))
    builder = StreamsBuilder("t", key=keys, value=int)
    delay = bounded_out_of_orderness(rng.choice((0, 3, 20))) if clock == "watermark" else None
    stream = builder.stream("in", watermark=delay)
    regrouped = clock != "wall" and rng.random() < 0.4
    grouped = stream.group_by(lambda key, value: key, key=keys) if regrouped else stream.group_by_key()
    retention = rng.choice((None, size + windows.grace_ms + rng.randint(0, 60)))
    windowed = grouped.windowed_by(windows, retention=retention)
    table = windowed.count(emission="on_close", late=not regrouped, name="windows", combine=regrouped)
    table.to_stream(lambda window, value: str(window), key=str).to("out")
    if not regrouped:
        table.late.to("late")
    some: list[Any] = [f"key-{i}" * (i % 3) if keys is str else i for i in range(rng.choice((1, 3, 12)))]
    where = f"{windows} {clock} {keys.__name__} retention={retention} regrouped={regrouped}"
    return Trial(builder.build(), random_steps(rng, some, clock=clock == "wall"), where, not regrouped)


def random_steps(rng: random.Random, keys: list[Any], *, clock: bool) -> list[Step]:
    """Bursts of records, some of them late, and some without a key or a value; commits and restarts between."""
    steps: list[Step] = [Wait(1)]
    at = rng.choice((0, 3, 500, 1_700_000_000_000))
    disorder = rng.choice((0, 8, 40))
    for _ in range(rng.choice((40, 120, 300))):
        at += rng.choice((0, 0, 0, 1, 1, 2, 7)) if rng.random() < 0.97 else rng.choice((15, 90, 400))
        ts = max(at - (0 if rng.random() < 0.6 else rng.randint(0, disorder)), 0)
        key = None if rng.random() < 0.02 else rng.choice(keys)
        steps.append(Record(key, None if rng.random() < 0.02 else 1, ts))
        if rng.random() < 0.04:
            steps.append(rng.choice((COMMIT, COMMIT, READ, DISCARD, RESTART, RESTORE)))
        if clock and rng.random() < 0.1:
            steps.append(Wait(rng.choice((1, 2, 9, 40))))
    return steps


@dataclasses.dataclass
class Played:
    """The outcome of a run. ``stores``: restored from their changelogs at the end. ``reads``: as others read them before.
    ``changelogs``: their records."""

    out: list[Record]
    late: list[Record]
    dropped: Counter[str]
    stores: dict[str, list[Any]]
    reads: list[dict[str, list[Any]]]
    changelogs: dict[str, list[Record]]


def stores_of(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    """All entries, with their timestamps."""
    return {name: list(view.range()) for task in driver.tasks.values() for name, view in task.stores.items()}


def play(trial: Trial, size: int, *, columns: bool) -> Played:
    """Play the steps in batches of at most ``size``."""
    options = TaskOptions(batch_max_records=size, wall_resolution_ms=1)
    with TopologyTestDriver(trial.topology, options=options, columns=columns, auto_commit=False) as driver:
        reads = take_all(driver, trial.steps, stores_of)
        late = driver.read("late") if trial.late else []
        logs = dict(driver.changelogs)
        return Played(driver.read("out"), late, driver.dropped_records, stores_of(driver), reads, logs)


@pytest.fixture(autouse=True)
def small_batches_in_columns() -> Iterator[None]:
    """Batches of a few records go by columns."""
    fewest = column_parts.FEWEST
    yield
    column_parts.FEWEST = fewest


@pytest.mark.skipif(native.compiled() is None, reason="this is of the compiled part")
@pytest.mark.parametrize("entries_max", [2, 9, 1 << 20])
@pytest.mark.parametrize("seed", range(50))
def test_the_compiled_counts_are_those_of_the_rows(
    seed: int, entries_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``entries_max``: with more entries than this the compiled part gives up."""
    monkeypatch.setattr(packed_panes, "ENTRIES_MAX", entries_max)
    rng = random.Random(seed)
    trial = random_trial(rng)
    with native.without():
        rows = play(trial, 10_000, columns=False)
    for size in SIZES:
        column_parts.FEWEST = rng.choice((2, 3, 5, 9))
        for columns in (True, False):
            assert play(trial, size, columns=columns) == rows, f"{trial.where} batches of {size}"


@pytest.mark.parametrize("seed", range(30))
def test_the_results_are_those_of_windows_that_are_kept_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = random_trial(random.Random(seed))
    panes = play(trial, 10_000, columns=True)
    monkeypatch.setattr(window_operator_choice, "pays", lambda request: False)
    whole = play(random_trial(random.Random(seed)), 10_000, columns=False)
    assert (panes.out, panes.late, panes.dropped) == (whole.out, whole.late, whole.dropped), trial.where
    closed = [entry for entry in whole.stores["windows"] if entry in panes.stores["windows"]]
    assert closed == panes.stores["windows"], f"{trial.where}: of open windows the store has nothing, else all"
