"""Results of windows that close, with their keys in columns, against those by rows: behind any windows, clock and kind of
key, through filters, new values, keys and times, to topics and into further windows, however batches are cut, over commits
and restarts. What is written, because of which records and to which partitions, changelogs, stores and counters are the
same."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from penstock.state import native
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.expressions import frame
from penstock.topologies.expressions import functions as f
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import calendar, hopping, session, tumbling
from tests.properties.following import COMMIT, RESTART, RESTORE, Wait, take_all

SIZES = (5, 40, 10_000)
LETTERS = "letters"
POLICIES = Policies(processing="dead_letter", dead_letter_topic=LETTERS)
Step = Record | Wait | str
Change = Callable[[KStream], KStream]


class Reading(msgspec.Struct, frozen=True):
    """The records."""

    n: int
    name: str | None = None


class Sum(msgspec.Struct, frozen=True):
    """An aggregate of a function."""

    n: int = 0
    name: str | None = None


def counted_again(stream: KStream) -> KStream:
    """Windows over windowed keys, in the same task, where it matters at which place a result came."""
    counts = stream.group_by_key().windowed_by(tumbling(7, grace=0)).count(emission="on_close")
    return counts.to_stream(lambda window, count: str(window), key=str)


START, END, KEY = f.window_start(), f.window_end(), f.key()["key"]
FROM, TO = START.cast("int64"), END.cast("int64")
CHANGES: tuple[Change, ...] = (
    lambda s: s.with_timestamp(END - 1),
    lambda s: s.with_timestamp(START - 20),  # fails where it is below 0
    lambda s: s.filter(END - START > 3),
    lambda s: s.filter(FROM % 3 != 1),
    lambda s: s.filter(KEY.cast("string") != "1"),
    lambda s: s.filter(KEY.is_not_null() & START.is_not_null() & f.key().is_not_null()),
    lambda s: s.filter((FROM + f.timestamp().cast("int64")) % 5 > 0),
    lambda s: s.filter((FROM // (TO % 4)) % 2 == 0),  # fails where it divides by zero
    lambda s: s.filter(lambda window, value: window.start_ms % 4 < 3),
    lambda s: s.peek(lambda window, value: None),
    lambda s: s.branch(FROM % 2 == 0, KEY.cast("string") == "1", default=True)[2],
)
ENDS: tuple[Change, ...] = (
    counted_again,
    lambda s: s,
    lambda s: s.select(key=KEY, start=START, end=END),
    lambda s: s.select(end=END, again=KEY, length=END - START).filter(f.col("length") > 2),
    lambda s: s.select(both=f.struct(k=KEY, t=START), when=f.timestamp()),
    lambda s: s.map_values(FROM + TO),
    lambda s: s.select_key(START),
    lambda s: s.select_key(KEY),
    lambda s: s.select(start=START).group_by(f.col("start")).count().to_stream(),
    lambda s: s.select(n=TO).group_by(KEY).windowed_by(tumbling(10, grace=0)).agg(n=f.col("n").sum()).to_stream(),
)
KEYS: dict[Any, tuple[Any, ...]] = {
    str: ("1", "", "größe", 'a"b', "x" * 40),
    int: (1, 0, -5, 1 << 40),
    float: (1.0, -0.0, 2.5),
    bytes: (b"1", b"", b"\xff\x00"),
    dict: ({"a": 1}, {"a": 2, "b": "x"}),
}


@dataclasses.dataclass
class Trial:
    """One random topology behind windows that close, with its input."""

    topology: Topology
    steps: list[Step]
    where: str


def random_windows(rng: random.Random, clock: str) -> Any:
    options: dict[str, Any] = {"time": "processing"} if clock == "wall" else {"grace": rng.choice((0, 0, 4))}
    kind = rng.choice(("tumbling", "tumbling", "hopping", "gaps", "session", "session", "calendar"))
    match kind:
        case "tumbling":
            return tumbling(10, offset=rng.choice((0, 3)), **options)
        case "hopping":
            return hopping(10, rng.choice((5, 4)), **options)
        case "gaps":
            return hopping(6, 10, **options)
        case "session":
            return session(rng.choice((3, 8)), bounds=rng.choice(("records", "gap")), **options)
    return calendar("day", "Europe/Berlin", **options)


def random_trial(rng: random.Random) -> Trial:
    clock = rng.choice(("stream", "stream", "watermark", "wall"))
    windows = random_windows(rng, clock)
    keys = rng.choice(tuple(KEYS))
    builder = StreamsBuilder("t", key=keys, value=Reading)
    delay = bounded_out_of_orderness(rng.choice((0, 6))) if clock == "watermark" else None
    grouped = builder.stream("in", watermark=delay).group_by_key()
    windowed = grouped.windowed_by(windows)
    how = rng.choice(("count", "count", "agg", "function"))
    if how == "count":
        emission: Any = "every_update" if rng.random() < 0.2 else "on_close"
        table = windowed.count(emission=emission, name="windows")
    elif how == "agg":
        table = windowed.agg(emission="on_close", name="windows", n=f.col("n").sum(), top=f.col("name").max())
    else:
        merger = {"merger": lambda key, a, b: Sum(a.n + b.n, b.name)} if hasattr(windows, "gap_ms") else {}
        table = windowed.aggregate(
            Sum, lambda key, v, s: Sum(s.n + v.n, v.name), value=Sum, emission="on_close", name="windows", **merger
        )
    stream = table.to_stream()
    if how == "count" and rng.random() < 0.5:
        stream = stream.filter_values(f.value() != 2)
    elif how != "count" and rng.random() < 0.5:
        stream = stream.filter_values(f.col("n") > 0)
    chosen = [rng.randrange(len(CHANGES)) for _ in range(rng.choice((0, 1, 1, 2)))]
    for number in chosen:
        stream = CHANGES[number](stream)
    ends = rng.sample(range(1, len(ENDS)), rng.choice((1, 2)))
    if clock == "watermark" or rng.random() < 0.2:
        ends.append(0)
    for number in ends:
        end = ENDS[number](stream)
        end.to(f"out{number}")
    steps = random_steps(rng, KEYS[keys], day=clock != "wall" and not hasattr(windows, "size_ms"))
    where = f"{windows} {clock} {keys.__name__} {how} {chosen} {ends}"
    return Trial(builder.build(), steps, where)


def random_steps(rng: random.Random, keys: tuple[Any, ...], *, day: bool) -> list[Step]:
    """Bursts of records of several keys, and steps between. ``day``: times are further apart."""
    steps: list[Step] = [Wait(1)]
    at = rng.choice((0, 500, 1_700_000_000_000))
    for i in range(rng.choice((60, 200))):
        at += rng.choice((0, 0, 0, 1, 1, 2)) if rng.random() < 0.93 else rng.choice((15, 90))
        at += 40_000_000 if day and rng.random() < 0.05 else 0
        ts = max(at - (0 if rng.random() < 0.7 else rng.randint(0, 20)), 0)
        key = None if rng.random() < 0.02 else rng.choice(keys)
        value = None if rng.random() < 0.02 else Reading(rng.randint(-2, 5), rng.choice((None, "a", "ö")))
        steps.append(Record(key, value, ts, (("h", b"%d" % i),) if rng.random() < 0.1 else ()))
        if rng.random() < 0.04:
            steps.append(rng.choice((COMMIT, COMMIT, RESTART, RESTORE)))
        if rng.random() < 0.06:
            steps.append(Wait(rng.choice((1, 9, 40))))
    return [*steps, Record(keys[0], Reading(1), at + 200_000_000), Wait(1_000)]


def play(trial: Trial, size: int, *, columns: bool) -> Any:
    """Play the steps in batches of at most ``size``. Returns all that can be seen of the run."""
    sent: list[tuple[str, Any]] = []
    take_outputs = Task.take_outputs

    def noted(task: Task) -> Any:
        taken = take_outputs(task)
        for output in taken:
            sent.extend((output.topic, at) for at in zip(_partitions(output), task.causes(output), strict=True))
            assert {type(ts) for ts in output.timestamps} <= {int}
        return taken

    options = TaskOptions(
        batch_max_records=size, wall_resolution_ms=1, policies=POLICIES, columns="auto" if columns else "off"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Task, "take_outputs", noted)
        topology = trial.topology
        with TopologyTestDriver(topology, options=options, columns=columns, auto_commit=False, partitions=3) as driver:
            take_all(driver, trial.steps, lambda driver: None)
            driver.commit()
            written = {f"out{n}": driver.read_raw(f"out{n}") for n in range(len(ENDS))}
            written[LETTERS] = driver.read_raw(LETTERS)
            stores = {
                (task, name): list(view.range())
                for task, running in driver.tasks.items()
                for name, view in running.stores.items()
            }
            by_topic: dict[str, list[Any]] = {}
            for topic, at in sent:
                by_topic.setdefault(topic, []).append(at)
            # what a commit writes of several keys has no order of its own
            changes = {topic: sorted(rows, key=lambda row: row.key or b"") for topic, rows in driver.changelogs.items()}
            return written, by_topic, stores, changes, +driver.dropped_records


def _partitions(output: Any) -> list[Any]:
    if isinstance(output.partition, list):
        return output.partition
    return [output.partition] * len(output.timestamps)


@pytest.fixture(autouse=True)
def small_batches_in_columns() -> Iterator[None]:
    """Batches of a few records go by columns."""
    fewest = column_parts.FEWEST
    yield
    column_parts.FEWEST = fewest


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many batches expressions got with windowed keys in columns."""
    counts: Counter[bool] = Counter()
    plain = frame.is_windowed

    def noted(column: Any) -> bool:
        found = plain(column)
        counts[found] += 1
        return found

    monkeypatch.setattr(frame, "is_windowed", noted)
    return counts


@pytest.mark.parametrize("compiled", ["auto", "off"])
@pytest.mark.parametrize("block", range(10))
def test_keys_in_columns_are_those_of_rows(block: int, compiled: native.Choice, read: Counter[bool]) -> None:
    for seed in range(block, 60, 10):
        rng = random.Random(seed)
        trial = random_trial(rng)
        column_parts.FEWEST = 64
        rows = play(trial, 10_000, columns=False)
        native.choose(compiled)
        try:
            for size in SIZES:
                column_parts.FEWEST = rng.choice((1, 2, 3))
                assert play(trial, size, columns=True) == rows, f"seed {seed}: {trial.where} batches of {size}"
        finally:
            native.choose("auto")
    assert read[True], "no expression met windowed keys in columns"
