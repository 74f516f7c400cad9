"""Sessions by columns against sessions by rows: the same results in the same order, late records, counters, stores and
changelogs, for every kind of bounds, clock and emission, however batches are cut, over commits, restarts and restores."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from penstock.state import native
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.errors import ResultError
from penstock.topologies.expressions.functions import col
from penstock.topologies.expressions.functions import count as count_of_rows
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.base import entry_index
from penstock.topologies.operators.windows import packed_sessions, session_columns
from penstock.topologies.windows import session
from tests.properties.following import COMMIT, DISCARD, READ, RESTART, RESTORE, Wait, take_all

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # numpy would say what rows do not
SIZES = (3, 17, 10_000)


class Reading(msgspec.Struct, frozen=True):
    """The fields of the records."""

    n: int
    x: float | None = None
    t: str | None = None


Step = Record | Wait | str
PARTS = {
    "rows": count_of_rows(),
    "total": col("n").sum(),
    "big": (col("n") * (1 << 53)).sum(),  # in long batches too near the bounds of 64 bits for arrays
    "float": (col("x") * 0.1).sum(),
    "mean": col("n").mean(),
    "low": col("x").min(),
    "high": col("n").max(),
    "some": col("n").sum().where(col("n") > 0),
    "kinds": col("n").count_distinct(),
    "texts": col("t").count_distinct(),
    "ratio": (col("x").sum() / count_of_rows()),
    "float_mean": col("x").mean(),
}
FAILING = {"huge": (col("n") * (1 << 60)).sum()}  # its result leaves the bounds of 64 bits, and may come back


@dataclasses.dataclass
class Trial:
    """One random topology over sessions, with its input."""

    topology: Topology
    steps: list[Step]
    where: str


def random_trial(
    rng: random.Random, *, fails: bool = False, counts: bool = False, parts: tuple[str, ...] = ()
) -> Trial:
    """Any. ``fails``: with an aggregate whose result may fail. ``counts``: of counts that are emitted on close.
    ``parts``: of some of these, and so too."""
    clock = rng.choice(("stream", "stream", "watermark", "watermark", "wall"))
    bounds = rng.choice(("records", "gap"))
    options: dict[str, Any] = {
        "bounds": bounds,
        "touching": rng.random() < 0.5,
        **({"time": "processing"} if clock == "wall" else {"grace": rng.choice((0, 0, 4, 25))}),
    }
    windows = session(max(rng.choice((0, 1, 5, 10)), int(bounds == "gap")), **options)
    least = windows.gap_ms + windows.grace_ms
    keys: Any = rng.choice((str, str, int))
    builder = StreamsBuilder("t", key=keys, value=Reading)
    delay = bounded_out_of_orderness(rng.choice((0, 3, 20))) if clock == "watermark" else None
    retention = rng.choice((None, max(least, 1), least + windows.gap_ms + 1, least + 60))
    windowed = builder.stream("in", watermark=delay).group_by_key().windowed_by(windows, retention=retention)
    emission: Any = "on_close" if counts or parts else rng.choice(("on_close", "on_close", "per_commit"))
    if counts or (not fails and not parts and rng.random() < 0.4):
        table = windowed.count(emission=emission, late=True, name="sessions")
    else:
        chosen = {n: PARTS[n] for n in rng.sample(sorted(parts or PARTS), rng.randint(1, 4))} | (
            FAILING if fails else {}
        )
        table = windowed.agg(emission=emission, late=True, name="sessions", **chosen)
    table.to_stream(lambda window, value: str(window), key=str).to("out")
    table.late.to("late")
    some = [f"k{i}" if keys is str else i for i in range(rng.choice((1, 3, 12)))]
    steps = random_steps(rng, some, clock=clock == "wall")
    return Trial(builder.build(), steps, f"{windows} {clock} {emission} retention={retention}")


def random_steps(rng: random.Random, keys: list[Any], *, clock: bool) -> list[Step]:
    """Bursts of records, some of them late, and some without a key or a value; commits and restarts between."""
    steps: list[Step] = [Wait(1)]
    at = rng.choice((0, 3, 500, 1_700_000_000_000))
    disorder = rng.choice((0, 8, 40))
    for i in range(rng.choice((40, 120, 300))):
        at += rng.choice((0, 0, 0, 1, 1, 2, 7)) if rng.random() < 0.97 else rng.choice((15, 90, 400))
        ts = max(at - (0 if rng.random() < 0.6 else rng.randint(0, disorder)), 0)
        key = None if rng.random() < 0.02 else rng.choice(keys)
        x = rng.choice((None, 0.1, 0.7, -3.3, 1e17, rng.random()))
        value = (
            None
            if rng.random() < 0.02
            else Reading(rng.randint(-3, 6), x, rng.choice((None, "", "a", "ä", "long " * 60)))
        )
        steps.append(Record(key, value, ts, (("h", b"%d" % i),) if rng.random() < 0.2 else ()))
        if rng.random() < 0.04:
            steps.append(rng.choice((COMMIT, COMMIT, READ, DISCARD, RESTART, RESTORE)))
        if clock and rng.random() < 0.1:
            steps.append(Wait(rng.choice((1, 2, 9, 40))))
    return steps


@dataclasses.dataclass
class Played:
    """The outcome of a run. ``stores``: restored from their changelogs at the end. ``reads``: as others read them before."""

    out: list[Record]
    late: list[Record]
    dropped: Counter[str]
    stores: dict[str, list[Any]]
    reads: list[dict[str, list[Any]]]


def stores_of(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    """All entries."""
    return {s.name: list(driver.store(s.name).all()) for s in driver.topology.stores}


def play(trial: Trial, size: int, *, columns: bool, failing: str = "fail") -> Played:
    """Play the steps in batches of at most ``size``."""
    policies = Policies(processing=failing)
    options = TaskOptions(batch_max_records=size, wall_resolution_ms=1, policies=policies)
    with TopologyTestDriver(trial.topology, options=options, columns=columns, auto_commit=False) as driver:
        reads = take_all(driver, trial.steps, stores_of)
        dropped = driver.dropped_records
        return Played(driver.read("out"), driver.read("late"), dropped, stores_of(driver), reads)


@pytest.fixture(autouse=True)
def small_batches_in_columns() -> Iterator[None]:
    """Batches of a few records go by columns."""
    fewest = column_parts.FEWEST
    column_parts.FEWEST = 2
    yield
    column_parts.FEWEST = fewest


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many batches were taken by columns, and how many were left to the rows."""
    counts: Counter[bool] = Counter()
    take = session_columns.SessionAggregateOperator._take

    def counted(operator: Any, batch: Any) -> bool:
        done = take(operator, batch)
        counts[done] += 1
        return done

    monkeypatch.setattr(session_columns.SessionAggregateOperator, "_take", counted)
    return counts


@pytest.mark.parametrize("compiled", ["auto", "off"])
@pytest.mark.parametrize("seed", range(60))
def test_columns_are_what_rows_are(seed: int, compiled: native.Choice, taken: Counter[bool]) -> None:
    trial = random_trial(random.Random(seed))
    rows = play(trial, 10_000, columns=False)
    assert not taken
    with chosen(compiled):
        for size in SIZES:
            found = play(trial, size, columns=True)
            assert found == rows, f"{trial.where} batches of {size}"
    assert taken[True], "no batch was taken by columns"


@pytest.mark.parametrize("keys_max", [2, 5, 1 << 14])
@pytest.mark.parametrize("seed", range(40))
def test_counts_are_what_rows_are(seed: int, keys_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short batches come as rows. ``keys_max``: how many keys are kept in memory."""
    monkeypatch.setattr(entry_index.EntryIndex.__init__, "__defaults__", (keys_max,))
    rng = random.Random(seed)
    trial = random_trial(rng, counts=True)
    rows = play(trial, 10_000, columns=False)
    for size in SIZES:
        column_parts.FEWEST = rng.choice((2, 3, 5, 9))
        found = play(trial, size, columns=True)
        assert found == rows, f"{trial.where} batches of {size}, as rows if shorter than {column_parts.FEWEST}"


@pytest.mark.parametrize("keys_max", [2, 1 << 14])
@pytest.mark.parametrize("seed", range(40))
def test_aggregates_in_the_compiled_part_are_what_rows_are(
    seed: int, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that it takes, on close. Some of the time it keeps few distinct values."""
    monkeypatch.setattr(entry_index.EntryIndex.__init__, "__defaults__", (keys_max,))
    rng = random.Random(seed)
    monkeypatch.setattr(packed_sessions, "_BYTES_MAX", rng.choice((1, 500, 1 << 26)))
    trial = random_trial(
        rng, parts=("rows", "total", "big", "float", "mean", "high", "some", "kinds", "texts", "ratio")
    )
    rows = play(trial, 10_000, columns=False)
    for size in SIZES:
        column_parts.FEWEST = rng.choice((2, 3, 5, 9))
        found = play(trial, size, columns=True)
        assert found == rows, f"{trial.where} batches of {size}, as rows if shorter than {column_parts.FEWEST}"


@contextmanager
def chosen(compiled: native.Choice) -> Iterator[None]:
    """With or without the compiled part."""
    native.choose(compiled)
    yield
    native.choose("auto")


def outcome(trial: Trial, size: int, *, columns: bool) -> Played | str:
    """Play the steps; records that fail are skipped. Returns the error where none can be."""
    try:
        return play(trial, size, columns=columns, failing="skip")
    except ResultError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(20))
def test_a_result_that_fails_fails_at_its_record(seed: int) -> None:
    trial = random_trial(random.Random(seed), fails=True)
    assert outcome(trial, 17, columns=True) == outcome(trial, 17, columns=False), trial.where


def test_keys_that_the_index_drops_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an index of two keys nearly every batch reads the store."""
    monkeypatch.setattr(entry_index.EntryIndex.__init__, "__defaults__", (2,))
    rng = random.Random(7)
    for _ in range(12):
        trial = random_trial(rng)
        assert play(trial, 17, columns=True) == play(trial, 17, columns=False), trial.where


@pytest.mark.parametrize("columns", [False, True])
def test_a_session_that_closed_within_the_batch_is_joined_and_closes_again(columns: bool) -> None:
    builder = StreamsBuilder("t", key=str, value=int)
    windowed = builder.stream("in").group_by_key().windowed_by(session(30, grace=0), retention=60)
    table = windowed.count(emission="on_close", name="sessions")
    table.to_stream(lambda window, count: f"{window.key} {window.start_ms}-{window.end_ms}: {count}", key=str).to("out")
    with TopologyTestDriver(builder, columns=columns) as driver:
        driver.pipe_all("in", [Record("a", 1, 0), Record("b", 1, 31), Record("a", 1, 16), Record("c", 1, 100)])
        assert [r.key for r in driver.read("out")] == ["a 0-0: 1", "a 0-16: 2", "b 31-31: 1"]
