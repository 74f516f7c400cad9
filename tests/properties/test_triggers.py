"""Windows with random triggers against the naive operator, cut into any batches and restarted anywhere."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies import triggers
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.edge_kinds import is_retraction
from penstock.topologies.operator_api.pane_info import pane_of
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import hopping, session, tumbling
from tests.properties.trigger_oracle import How, Oracle, Trigger

BATCHES = (1, 2, 7, 10_000)
KEYS = ("a", "b", "c")


def random_trigger(rng: random.Random, *, wall: bool, depth: int = 2) -> Trigger:
    leaves: list[Trigger] = [
        ("count", rng.randint(1, 4)),
        ("end",),
        ("after", None, None),
        ("every", rng.randint(3, 9)),
    ]
    if wall:
        leaves += [("wall", rng.randint(0, 12)), ("wall_end",)]
    if depth == 0:
        return rng.choice(leaves)
    inner = [random_trigger(rng, wall=wall, depth=depth - 1) for _ in range(rng.randint(1, 3))]
    choices: list[Trigger] = [
        ("repeat", inner[0]),
        ("after", rng.choice((inner[0], None)), rng.choice((inner[-1], None))),
        ("any", *inner),
        ("all", *inner),
        ("each", *inner),
    ]
    return rng.choice([*choices, rng.choice(leaves)])


def dsl(spec: Trigger | None) -> Any:
    if spec is None:
        return None
    kind, *args = spec
    simple: dict[str, Any] = {
        "count": triggers.after_count,
        "end": triggers.default_trigger,
        "wall": triggers.after_processing_time,
        "wall_end": triggers.processing_time,
        "every": triggers.continuous_event_time,
    }
    if kind in simple:
        return simple[kind](*args)
    if kind == "after":
        return triggers.after_watermark(early=dsl(args[0]), late=dsl(args[1]))
    makers: dict[str, Any] = {
        "repeat": triggers.repeatedly,
        "any": triggers.after_any,
        "all": triggers.after_all,
        "each": triggers.after_each,
    }
    return makers[kind](*map(dsl, args))


def random_how(rng: random.Random) -> How:
    size = rng.randint(4, 15)
    shape: tuple[Any, ...] = rng.choice(
        (("hop", size, size), ("hop", size, rng.randint(2, size)), ("session", size, rng.random() < 0.5))
    )
    processing = rng.random() < 0.2
    return How(
        windows=shape,
        trigger=random_trigger(rng, wall=processing or rng.random() < 0.4),
        accumulation=rng.choice(("discarding", "accumulating", "accumulating_and_retracting")),
        lateness=0 if processing else rng.choice((0, 0, 5, 30)),
        combiner=rng.choice(("earliest", "latest", "end_of_window")),
        closing=rng.choice(("fire_if_fresh", "fire_always", "discard")),
        late_by=rng.choice(("merged", "record")),
        processing=processing,
    )


def topology_of(how: How, delay: int) -> Topology:
    kind, size, extra = how.windows
    time: Any = "processing" if how.processing else "event"
    if kind == "session":
        windows: Any = session(size, grace=0, bounds="gap", touching=extra, time=time)
    elif size == extra:
        windows = tumbling(size, grace=0, time=time)
    else:
        windows = hopping(size, extra, grace=0, before_epoch=True, time=time)
    builder = StreamsBuilder("triggers", key=str, value=int)
    grouped = builder.stream("in", watermark=bounded_out_of_orderness(delay)).group_by_key()
    panes = (
        grouped.windowed_by(windows)
        .triggered(
            dsl(how.trigger),
            accumulation=how.accumulation,  # type: ignore[arg-type]  # chosen at random
            allowed_lateness=how.lateness,
            timestamp_combiner=how.combiner,  # type: ignore[arg-type]  # chosen at random
            closing=how.closing,  # type: ignore[arg-type]  # chosen at random
            late_by=how.late_by,  # type: ignore[arg-type]  # chosen at random
        )
        .to_list(name="panes")
    )
    panes.to("out", retractions=True)
    panes.late.to("late")
    return builder.build()


Step = tuple[str, Any]


def random_steps(rng: random.Random, count: int) -> list[Step]:
    steps: list[Step] = []
    ts = wall = 0
    for i in range(count):
        if rng.random() < 0.15:
            wall += rng.choice((1, 3, 20))
            steps.append(("clock", wall))
            continue
        ts += rng.choice((0, 0, 1, 2, 5, 20))
        steps.append(("record", (rng.choice(KEYS), i, max(ts - rng.choice((0, 0, 1, 6, 25)), 0))))
    return steps


def expected(how: How, delay: int, steps: list[Step]) -> Oracle:
    oracle = Oracle(how, delay)
    for what, given in steps:
        if what == "clock":
            oracle.clock(given)
        else:
            oracle.record(*given)
    return oracle


def rows_of(records: list[Record]) -> list[tuple[Any, ...]]:
    rows = []
    for r in records:
        pane = pane_of(r.headers)
        assert pane is not None
        info = (pane.timing, pane.is_first, pane.is_last, pane.index, pane.nonspeculative_index)
        rows.append((r.key.key, r.key.start_ms, r.key.end_ms, r.value, r.timestamp_ms, is_retraction(r.headers), *info))
    return rows


def played(topology: Topology, steps: list[Step], batch: int, restarts: set[int]) -> tuple[Any, ...]:
    options = TaskOptions(batch_max_records=batch, wall_resolution_ms=1)
    with TopologyTestDriver(topology, options=options) as driver:
        waiting: list[Record] = []

        def pipe() -> None:
            if waiting:
                driver.pipe_all("in", list(waiting))
                waiting.clear()

        for i, (what, given) in enumerate(steps):
            if i in restarts:
                pipe()
                driver.restart(restore=i % 2 == 0)
            if what == "clock":
                pipe()
                driver.advance_wall_time(given - driver.wall_ms)
            else:
                key, value, ts = given
                waiting.append(Record(key, value, ts))
        pipe()
        late = [(r.key, r.value, r.timestamp_ms) for r in driver.read("late")]
        stores = {
            name: list(state.range()) for task in driver.tasks.values() for name, state in sorted(task.stores.items())
        }
        return rows_of(driver.read("out")), late, driver.dropped_records, stores


@pytest.mark.parametrize("seed", range(60))
def test_panes_are_the_naive_operators_whatever_the_batches_and_restarts(seed: int) -> None:
    rng = random.Random(seed)
    how, delay = random_how(rng), rng.choice((0, 0, 3))
    steps = random_steps(rng, 60)
    oracle = expected(how, delay, steps)
    topology = topology_of(how, delay)
    stores = None
    for batch in BATCHES:
        restarts = set(rng.sample(range(len(steps)), 3)) if batch != 10_000 else set()
        out, late, dropped, left = played(topology, steps, batch, restarts)
        assert out == oracle.out, (how, delay)
        assert late == oracle.late
        assert dropped["panes.late"] == oracle.dropped["late"]
        assert dropped["panes.finished"] == oracle.dropped["finished"]
        assert stores is None or left == stores
        stores = left
    open_now = sum(not w.finished for w in oracle.windows)
    assert len(stores["panes"]) == len(oracle.windows) >= open_now  # type: ignore[index]  # a run was made
