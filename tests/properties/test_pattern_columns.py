"""Patterns by columns against patterns by rows: the same matches, timeouts and late events in the same order, counters and
stores, for random patterns, however batches are cut, over commits, restarts and restores."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from penstock.state import native
from penstock.state.errors import IncompatibleError, ProcessingError
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar import column_parts
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.patterns import packed_matches, pattern_columns
from penstock.topologies.patterns.pattern import Pattern, pattern
from penstock.topologies.patterns.state import NOTHING, encode
from tests.properties.following import COMMIT, DISCARD, READ, RESTART, RESTORE, Wait, take_all
from tests.properties.test_patterns import LABELS, Draw, drawn

pytestmark = pytest.mark.skipif(native.compiled() is None, reason="this is of the compiled part")
SIZES = (1, 3, 17, 10_000)
Step = Record | Wait | str


class Reading(msgspec.Struct, frozen=True):
    """An event."""

    label: str
    number: int
    x: float | None = None


class Mixed(msgspec.Struct):
    """One that is not written as columns are."""

    label: str
    number: int
    more: dict[str, int] | None = None


class ExpressionDraw(Draw):
    """Patterns whose conditions have columns."""

    def labelled(self, label: str) -> Any:
        kind = self.rng.randrange(4)
        if kind == 0:
            return _FUNCTIONS[label]
        return col("label") == label if kind == 1 else ~(col("label") != label)


_FUNCTIONS = {
    "a": lambda event: event.label == "a",
    "b": lambda event: event.label == "b",
    "c": lambda event: event.label == "c",
    "d": lambda event: event.label == "d",
}


@dataclasses.dataclass
class Trial:
    """A topology with a pattern, and its input."""

    topology: Topology
    steps: list[Step]
    where: str


def alert(events: dict[str, list[Any]]) -> str:
    """The events of a match."""
    return " ".join(f"{name}:{','.join(str(e.number) for e in some)}" for name, some in events.items())


def topology_of(made: Pattern, rng: random.Random, *, key: Any = str, value: Any = Reading) -> Topology:
    """One that looks for the pattern."""
    builder = StreamsBuilder("patterns", key=key, value=value)
    delay = bounded_out_of_orderness(rng.choice((0, 3, 20)))
    found = builder.stream("in", watermark=delay).match(
        made, select=rng.choice((None, alert)), unbounded=True, name="match"
    )
    found.matches.to("matches")
    found.timeouts.to("timeouts")
    found.late.to("late")
    return builder.build()


def random_trial(rng: random.Random) -> Trial:
    """Any pattern."""
    made, _ = drawn(rng, ExpressionDraw)
    if rng.random() < 0.5:
        made = made.within(rng.randint(3, 40))
    value: Any = rng.choice((Reading, Reading, Mixed))
    key: Any = rng.choice((str, int))
    topology = topology_of(made, rng, key=key, value=value)
    keys: list[Any] = [0, 1, 2, 3, 4] if key is int else list("vwxyz")
    return Trial(topology, random_steps(rng, keys, value), f"{made.shape()} {made.skip}")


def random_steps(rng: random.Random, keys: list[Any], value: Any) -> list[Step]:
    """Events of few keys, some late, some without a key or a value; commits and restarts between."""
    steps: list[Step] = []
    at = rng.choice((0, 3, 1_700_000_000_000))
    disorder = rng.choice((0, 8, 40))
    for number in range(rng.choice((20, 60, 120))):
        at += rng.choice((0, 0, 0, 1, 1, 2, 7)) if rng.random() < 0.97 else rng.choice((15, 90))
        ts = max(at - (0 if rng.random() < 0.6 else rng.randint(0, disorder)), 0)
        key = None if rng.random() < 0.02 else rng.choice(keys)
        event = None if rng.random() < 0.02 else value(rng.choice(LABELS), number)
        steps.append(Record(key, event, ts, (("h", b"%d" % number),) if rng.random() < 0.2 else ()))
        if rng.random() < 0.05:
            steps.append(rng.choice((COMMIT, COMMIT, READ, DISCARD, RESTART, RESTORE)))
    last = value("a", -1)
    return [*steps, *(Record(key, last, at + 5_000 + after) for after in (0, 100) for key in keys[:2])]


@dataclasses.dataclass
class Played:
    """The outcome of a run. ``stores``: restored from their changelogs at the end. ``reads``: as others read them before."""

    out: dict[str, list[Record]]
    dropped: Counter[str]
    stores: dict[str, list[Any]]
    reads: list[dict[str, list[Any]]]


def stores_of(driver: TopologyTestDriver) -> dict[str, list[Any]]:
    """All entries with their times. Partial matches by their bytes, which say what they are."""
    found: dict[str, list[Any]] = {}
    for spec in driver.topology.stores:
        write = spec.value_serde.serialize
        for task in driver.tasks.values():
            found[spec.name] = [(key, write(value), ts) for key, value, ts in task.stores[spec.name].range()]
    return found


def play(trial: Trial, size: int, *, columns: bool) -> Played:
    """Play the steps in batches of at most ``size``."""
    options = TaskOptions(batch_max_records=size)
    with TopologyTestDriver(trial.topology, options=options, columns=columns, auto_commit=False) as driver:
        reads = take_all(driver, trial.steps, stores_of)
        out = {topic: driver.read(topic) for topic in ("matches", "timeouts", "late")}
        return Played(out, driver.dropped_records, stores_of(driver), reads)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """How many batches the compiled part took, and how many it left to the rows."""
    counts: Counter[bool] = Counter()
    take = pattern_columns.PatternColumnsOperator._take_events

    def counted(operator: Any, batch: Any, events: Any) -> bool:
        done = take(operator, batch, events)
        counts[done] += 1
        return done

    monkeypatch.setattr(pattern_columns.PatternColumnsOperator, "_take_events", counted)
    return counts


@pytest.mark.parametrize("seed", range(150))
def test_columns_are_what_rows_are(seed: int, taken: Counter[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(packed_matches, "_KEYS_MAX", rng.choice((1, 3, 1 << 17)))
    monkeypatch.setattr(packed_matches, "_BYTES_MAX", rng.choice((500, 1 << 26)))
    monkeypatch.setattr(packed_matches, "_PENDING_MAX", rng.choice((5, 1 << 16)))
    trial = random_trial(rng)
    rows = play(trial, 10_000, columns=False)
    assert not taken
    for size in SIZES:
        column_parts.FEWEST = rng.choice((1, 2, 5))
        found = play(trial, size, columns=True)
        assert found == rows, f"{trial.where}, batches of {size}, as rows if shorter than {column_parts.FEWEST}"
    assert taken[True] and not taken[False]


@pytest.mark.parametrize("seed", range(10))
def test_a_condition_that_fails_fails_when_its_event_is_due(seed: int) -> None:
    column_parts.FEWEST = 2
    rng = random.Random(seed)
    made = pattern("a").where(col("label") == "a").next("b").where(col("number") % (col("number") - 60) >= 0).within(50)
    trial = Trial(topology_of(made, rng), random_steps(rng, list("xy"), Reading), "failing")

    def outcome(columns: bool) -> Any:
        try:
            return play(trial, 17, columns=columns)
        except ProcessingError as error:
            return str(error)

    assert outcome(True) == outcome(False)


def test_a_match_that_cannot_be_made_stops_the_task() -> None:

    def refuse(events: dict[str, list[Any]]) -> str:
        raise ValueError("no such match")

    builder = StreamsBuilder("patterns", key=str, value=Reading)
    made = pattern("a").where(col("label") == "a").next("b").where(col("label") == "b").within(50)
    found = builder.stream("in", watermark=bounded_out_of_orderness(0)).match(made, select=refuse, name="match")
    found.matches.to("matches")
    said = []
    for columns in (False, True):
        with pytest.raises(ProcessingError) as raised, TopologyTestDriver(builder.build(), columns=columns) as driver:
            driver.pipe_all("in", [Record("k", Reading(label, 0), ts) for ts, label in enumerate("abcc")])
        said.append(str(raised.value))
    assert said[0] == said[1] and "no such match" in said[0]


def test_partial_matches_of_another_pattern_are_refused() -> None:
    made = pattern("a").where(col("label") == "a").next("b").where(col("label") == "b").within(50)
    refused = pytest.raises(IncompatibleError, match="of another pattern")
    topology = topology_of(made, random.Random(0))
    with refused, TopologyTestDriver(topology, columns=True, auto_commit=False) as driver:
        driver.pipe_all("in", [Record("k", Reading("a", 0), 0), Record("k", Reading("c", 0), 30)])
        (task,) = driver.tasks.values()
        task.stores["match"].put_entry(b"k", bytes(8) + encode(NOTHING, 7), 0)
        driver.commit()
        driver.restart(restore=True)
        driver.pipe_all("in", [Record("k", Reading("b", 0), 60), Record("k", Reading("c", 0), 99)])
