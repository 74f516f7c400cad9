"""Aggregations that combine before their repartition topic against the same ones that do not: equal stores, timestamps
included, and equal last results, whatever the batches, the commits and restarts, the windows and what closes them."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest

from penstock.state.log import Record
from penstock.state.serdes.serde import INT
from penstock.streams.task.commit_metadata import decode
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.output import Output
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, max_, sum_
from penstock.topologies.columnar.packing import unpack
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates.combine import CombineOperator, CombineSpec, WatermarkCombineOperator
from penstock.topologies.operators.aggregates.partial_aggregates import SessionPartials, Taken
from penstock.topologies.windows import (
    CalendarWindows,
    SessionWindows,
    SpanWindows,
    UnlimitedWindows,
    Windows,
    global_window,
    hopping,
    session,
    tumbling,
)
from tests.properties.oracle import Input
from tests.properties.running import Runner, chunk_of

SIZES = (1, 2, 7, 10_000)


def united(key: Any, value: Any, aggregate: list[Any]) -> list[Any]:
    """Changes the aggregate that it is given, as users may."""
    aggregate[:] = sorted({*aggregate, f"{value['n']} of {key!r}"})
    return aggregate


def refusing(key: Any, value: Any, aggregate: int) -> int:
    """A function of the user's that some records are too much for."""
    if value["n"] == 13:
        raise ValueError("thirteen")
    return aggregate + value["n"]


FOLDS: dict[str, Callable[..., KTable]] = {
    "count": lambda g, **o: g.count(**o),
    "reduce": lambda g, **o: g.reduce(lambda a, v: {"n": a["n"] + v["n"]}, inverse=lambda a, b: a, **o),
    "refusing": lambda g, **o: g.aggregate(int, refusing, value=int, merge=operator.add, **o),
    "set": lambda g, **o: g.aggregate(
        list, united, value=list, merge=lambda a, b: sorted({*a, *b}), merger=lambda k, a, b: a, **o
    ),
    "ready": lambda g, **o: g.aggregate(agg(total=sum_("n", number=int), most=max_("n"), records=count()), **o),
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """One random run: what is aggregated how, and when records come (``None``: a commit; ``True``: a restart)."""

    fold: str
    windows: Windows | None
    emission: str
    delay_ms: int | None
    partitions: int
    key: Any
    olds: bool
    steps: tuple[tuple[int, tuple[Record, ...]] | bool | None, ...]


KEYS: dict[Any, tuple[Any, ...]] = {
    str: ("a", "b", "", "ä" * 20),
    int: (1, 2, -7),
    "json": (1, 1.0, True, "1", (1, 2), {"a": 1}),
    bytes: (b"\xff", b"a", b""),
    float: (0.0, -0.0, 1.5),
}


def random_windows(rng: random.Random, grace: int) -> Windows | None:
    size = rng.choice((5, 10, 30))
    return rng.choice(
        (
            None,
            tumbling(size, grace=grace, offset=rng.choice((0, 3))),
            hopping(size, rng.choice((2, 5, 7, 40)), grace=grace),
            CalendarWindows("day", "Europe/Berlin", grace_ms=grace),
            UnlimitedWindows(20),
            global_window(),
        )
    )


def random_trial(rng: random.Random, partitions: int) -> Trial:
    """With several partitions nothing is late anywhere, as what is late depends on how tasks interleave."""
    late = (0, 0, 0, 2, 7, 30) if partitions == 1 else (0, 0, 2, 5)
    delay = rng.choice((None, 0, 6, 6)) if partitions == 1 else rng.choice((None, 6))
    grace = rng.choice((0, 3, 25)) if partitions == 1 or delay is not None else 10_000_000_000
    windows = random_windows(rng, grace)
    scale = 9_000_000 if isinstance(windows, CalendarWindows) else 1
    steps: list[Any] = []
    now = [rng.randint(0, 40) for _ in range(partitions)]
    kind = rng.choice(list(KEYS))
    for _ in range(rng.randint(1, 12)):
        steps.append(rng.choice((None, None, None, True)) if rng.random() < 0.3 else None)
        if rng.random() < 0.8:
            steps.pop()
        at = rng.randrange(partitions)
        rows = []
        for _ in range(rng.choice((1, 3, 30, 90))):
            now[at] += rng.choice((0, 0, 1, 2, 9))
            ts = max(now[at] - rng.choice(late), 0) * scale
            key = None if rng.random() < 0.05 else rng.choice(range(len(KEYS[kind])))
            rows.append(Record(None, None if rng.random() < 0.05 else {"n": rng.randint(0, 20), "k": key}, ts, ()))
        steps.append((at, tuple(rows)))
    emission = "per_commit"
    if windows is not None and windows.horizon_ms is not None and rng.random() < 0.4:
        emission = "on_close"
    fold = rng.choice(list(FOLDS))
    if fold == "refusing" and windows is not None and delay is None:
        fold = "set"  # a record that is refused moves no stream time behind the topic
    olds = emission == "per_commit" and rng.random() < 0.3
    return Trial(fold, windows, emission, delay and delay * scale, partitions, kind, olds, tuple(steps))


def topology(trial: Trial, *, combine: bool, ways: int | None = None) -> Topology:
    keys = KEYS[trial.key]
    builder = StreamsBuilder("t", emission="per_commit")
    strategy = None if trial.delay_ms is None else bounded_out_of_orderness(trial.delay_ms, interval=1)
    stream = builder.stream("in", key=bytes, value="json", watermark=strategy)
    grouped: KGroupedStream = stream.group_by(
        lambda _, v: None if v is None or v["k"] is None else keys[v["k"]], key=trial.key, partitions=2
    )
    if ways is not None:
        grouped = grouped.split(ways)
    if trial.windows is not None:
        grouped = grouped.windowed_by(trial.windows)
    table = FOLDS[trial.fold](grouped, name="table", emission=trial.emission, combine=combine)
    if trial.olds:
        table.request_olds()
    table.to_stream().to("out")
    return builder.build()


Answer = tuple[list[Any], dict[bytes | None, tuple[bytes | None, int]]]


def run(trial: Trial, size: int, *, combine: bool, ways: int | None = None, columns: bool = False) -> Answer:
    """The table's rows, with their timestamps, by task; and the last result under each key."""
    options = TaskOptions(batch_max_records=size, policies=Policies(processing="skip"))
    driver = TopologyTestDriver(
        topology(trial, combine=combine, ways=ways),
        partitions=trial.partitions,
        options=options,
        auto_commit=False,
        columns=columns,
    )
    with driver:
        for step in trial.steps:
            if step is None:
                driver.commit()
            elif step is True:
                driver.restart(restore=size == 7)
            else:
                assert isinstance(step, tuple)
                if trial.windows is not None and trial.windows.time == "processing":
                    driver.advance_wall_time(len(step[1]) % 13)
                driver.pipe_all("in", step[1], partition=step[0])
        driver.restart()
        rows = [
            list(state.range())
            for _, task in sorted(driver.tasks.items())
            for name, state in task.stores.items()
            if name == "table"
        ]
        results = {r.key: (r.value, r.timestamp_ms) for r in driver.read_raw("out")}
        return rows, results


@pytest.mark.parametrize("seed", range(40))
def test_one_task_answers_as_without_combining(seed: int) -> None:
    """With one upstream task there is one order, so that even what is late is the same."""
    trial = random_trial(random.Random(seed), 1)
    assert any(isinstance(s, CombineSpec) for s in topology(trial, combine=True).operators.values())
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True) == expected, (trial, size)
    assert run(trial, 10_000, combine=True, columns=True) == expected, trial


def random_session_trial(rng: random.Random, partitions: int) -> Trial:
    """Counts over sessions that the watermark closes, of one gap each."""
    trial = random_trial(rng, partitions)
    while trial.delay_ms is None or isinstance(trial.windows, CalendarWindows):
        trial = random_trial(rng, partitions)
    windows = SessionWindows(
        gap_ms=rng.choice((1, 3, 10, 40)),
        grace_ms=rng.choice((0, 0, 3, 25)),
        bounds=rng.choice(("records", "gap")),
        touching=rng.random() < 0.5,
    )
    emission = rng.choice(("per_commit", "on_close"))
    return dataclasses.replace(
        trial, fold="count", windows=windows, emission=emission, olds=trial.olds and emission == "per_commit"
    )


@pytest.mark.parametrize("seed", range(40))
def test_sessions_answer_as_without_combining(seed: int) -> None:
    """What is late is the same, too."""
    trial = random_session_trial(random.Random(4000 + seed), 1)
    assert any(isinstance(s, CombineSpec) for s in topology(trial, combine=True).operators.values())
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True) == expected, (trial, size)
    for size in (7, 10_000):
        assert run(trial, size, combine=True, columns=True) == expected, (trial, size)


@pytest.mark.parametrize("seed", range(12))
def test_sessions_of_several_tasks_and_of_split_keys_answer_as_without_combining(seed: int) -> None:
    """Nothing is late here."""
    trial = random_session_trial(random.Random(5000 + seed), 3)
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True) == expected, (trial, size)
        assert run(trial, size, combine=True, ways=3) == expected, (trial, size)


def clocked(rng: random.Random) -> Trial:
    """Windows by the clock, which moves before each step."""
    trial = random_trial(rng, 1)
    size = rng.choice((5, 10, 30))
    windows = rng.choice(
        (tumbling(size, time="processing"), hopping(size, 5, time="processing"), session(size, time="processing"))
    )
    folds = [fold for fold in FOLDS if fold != "refusing"] if isinstance(windows, SpanWindows) else ["count"]
    emission = rng.choice(("per_commit", "on_close"))
    olds = trial.olds and emission == "per_commit"
    return dataclasses.replace(trial, fold=rng.choice(folds), windows=windows, emission=emission, olds=olds)


@pytest.mark.parametrize("seed", range(60))
def test_windows_by_the_clock_answer_as_without_combining(seed: int) -> None:
    trial = clocked(random.Random(6000 + seed))
    assert any(isinstance(s, CombineSpec) for s in topology(trial, combine=True).operators.values())
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True) == expected, (trial, size)
    assert run(trial, 10_000, combine=True, columns=True) == expected, trial


@pytest.mark.parametrize("lost", ["the first", "the last", "marks"])
def test_sessions_of_fewer_records_are_caught(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    trials = [random_session_trial(random.Random(4000 + seed), 1) for seed in range(20)]
    plain = SessionPartials.taken

    def fewer(self: SessionPartials) -> Taken:
        keys, counts, times = plain(self)
        at = times.max(initial=0) if lost == "the first" else times.min(initial=0)
        return Taken(keys, counts, np.full(len(times), at, np.int64))

    if lost == "marks":
        monkeypatch.setattr(WatermarkCombineOperator, "_due", lambda self, place, limit_ms: False)
    else:
        monkeypatch.setattr(SessionPartials, "taken", fewer)
    assert _differing(trials) > 0


@pytest.mark.parametrize("seed", range(25))
def test_several_tasks_answer_as_without_combining(seed: int) -> None:
    """Nothing is late here; with a watermark it would be if a mark overtook a partial."""
    trial = random_trial(random.Random(1000 + seed), 3)
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True) == expected, (trial, size)


@pytest.mark.parametrize("seed", range(25))
def test_keys_that_are_split_answer_as_whole_ones(seed: int) -> None:
    """Nothing is late here."""
    rng = random.Random(2000 + seed)
    trial = random_trial(rng, 3)
    while trial.windows is not None and trial.windows.horizon_ms is not None and trial.delay_ms is None:
        trial = random_trial(rng, 3)
    split = topology(trial, combine=True, ways=3)
    assert sum(isinstance(s, CombineSpec) for s in split.operators.values()) == 1
    assert len(split.subtopologies) == 3
    expected = run(trial, 10_000, combine=False)
    for size in SIZES:
        assert run(trial, size, combine=True, ways=3) == expected, (trial, size)


def test_split_keys_go_to_several_tasks() -> None:
    """Records of one key are in several partitions of the topic between."""
    trial = Trial("count", None, "per_commit", None, 1, str, False, ())
    driver = TopologyTestDriver(topology(trial, combine=True, ways=8), auto_commit=False)
    driver.pipe_all("in", [Record(None, {"n": n, "k": 0}, n, ()) for n in range(100)])
    counted = [
        t.feed.positions()["test-table-split-repartition"] for i, t in driver.tasks.items() if i.subtopology == 1
    ]
    assert sum(counted) == 100
    assert min(counted) > 20
    driver.commit()
    driver.restart()
    assert [r.value for r in driver.read("out")] == [100]
    driver.close()


def _differing(trials: list[Trial]) -> int:
    return sum(run(t, 7, combine=True) != run(t, 10_000, combine=False) for t in trials)


def test_a_mark_that_overtakes_partials_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [t for t in (random_trial(random.Random(s), 1) for s in range(60)) if t.delay_ms is not None and t.windows]
    assert _differing(trials) == 0
    monkeypatch.setattr(WatermarkCombineOperator, "_due", lambda self, place, limit_ms: False)
    assert _differing(trials) > 0


def test_a_record_that_overtakes_partials_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = [t for t in (random_trial(random.Random(s), 1) for s in range(60)) if t.delay_ms is None and t.windows]
    assert _differing(trials) == 0
    whole = CombineOperator.__init__

    def never_closing(self: CombineOperator, ctx: Any, spec: Any) -> None:
        whole(self, ctx, spec)
        self._closed_by_records = False

    monkeypatch.setattr(CombineOperator, "__init__", never_closing)
    assert _differing(trials) > 0


def test_what_is_held_is_gone_with_an_abort() -> None:
    """What an aborted transaction held is held again when its records come again, and nothing else."""
    for seed in range(20):
        rng = random.Random(3000 + seed)
        runner = Runner(topology(Trial("count", None, "per_commit", None, 1, str, False, ()), combine=True), 0)
        rows = [Input("in", i, None, b'{"n": 1, "k": %d}' % rng.randrange(3), rng.randrange(99), ()) for i in range(60)]
        sent: list[Output] = []
        while runner.committed["in"].offset < len(rows):
            at = runner.committed["in"].offset
            some = rows[at : at + rng.randint(1, 20)]
            runner.task.add(chunk_of(some, 0), some[-1].offset + 1)
            while runner.task.process(0, rng.choice((1, 2, 7))):
                pass
            work = runner.task.prepare_commit()
            outputs = runner.task.take_outputs()
            if rng.random() < 0.4:
                start = {"in": (at, decode(runner.committed["in"].metadata))}
                runner.task.discard(start)
                continue
            sent += outputs
            runner.committed = {tp.topic: c for tp, c in runner.task.offsets(work, {}).items()}
            runner.task.committed(work, {})
        counts: Counter[bytes | None] = Counter()
        for output in sent:
            for data in output.values:
                found = unpack(data)
                for key, value in zip(found.keys.to_list(), found.values.to_list(), strict=True):
                    counts[key] += INT.deserialize(value or b"")
        expected = Counter(KEYS[str][orjson.loads(r.value or b"")["k"]].encode() for r in rows)
        assert counts == expected, seed
