"""What the tests of sessions, sliding windows and suppress share: steps of a run, and playing them in the test driver."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec

SIZES = (1, 2, 7, 10_000)
COMMIT, RESTART, RESTORE = "commit", "restart", "restore"
"""``RESTORE``: a restart from the changelogs alone."""
READ, DISCARD = "read", "discard"
"""``READ``: others read the stores before the commit. ``DISCARD``: what was not committed is lost."""


class Put(NamedTuple):
    """A record comes."""

    key: Any
    value: Any
    ts: int


class Wait(NamedTuple):
    """The clock goes on."""

    ms: int


Step = Put | Wait | str


class Shown(NamedTuple):
    """A record of an output topic."""

    key: Any
    value: Any
    ts: int


class Played(NamedTuple):
    """What came of a run."""

    out: list[Shown]
    late: list[Shown]
    dropped: dict[str, int]
    stores: dict[str, list[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BesideOlds(OperatorSpec):
    """Shows old values: each value becomes ``[new, old]``."""

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _BesideOlds(ctx)


class _BesideOlds(Operator):
    def process(self, port: int, batch: Batch) -> None:
        assert batch.olds is not None
        self.ctx.emit(batch.replace(values=[[a, b] for a, b in zip(batch.values, batch.olds, strict=True)]))


def with_olds(builder: StreamsBuilder, table: KTable, topic: str) -> None:
    """Write a table's changes as ``[new, old]``."""
    table.request_olds()
    builder.add_operator("olds", BesideOlds())
    builder.add_stream("to-olds", table.out, "olds")
    builder.stream_of("olds", key=table.key_serde, value=list).to(topic)


def random_steps(rng: random.Random, count: int, values: str, *, spread_ms: int, clock: bool) -> list[Step]:
    """Records of a few keys, out of order, some of them null, with commits and restarts between."""
    steps: list[Step] = [Wait(1)]
    at = rng.choice((0, 3, 500))
    for _ in range(count):
        at += rng.choice((0, 0, 1, 2, 5, 12)) if rng.random() < 0.95 else 4 * spread_ms
        ts = max(at - (0 if rng.random() < 0.6 else rng.randrange(2 * spread_ms)), 0)
        key = None if rng.random() < 0.02 else rng.choice("aab")
        steps.append(Put(key, None if rng.random() < 0.02 else rng.choice(values), ts))
        if rng.random() < 0.1:
            steps.append(rng.choice((COMMIT, COMMIT, RESTART, RESTORE)))
        if clock and rng.random() < 0.5:
            steps.append(Wait(rng.choice((1, 2, 9, 40))))
    return [*steps, Put("z", values[0], at)]


def take_step(driver: TopologyTestDriver, step: Wait | str) -> None:
    """Take a step between records."""
    if isinstance(step, Wait):
        driver.advance_wall_time(step.ms)
    elif step == COMMIT:
        driver.commit()
    else:
        driver.restart(restore=step == RESTORE)


def take_all(
    driver: TopologyTestDriver, steps: Sequence[Record | Wait | str], look: Callable[[TopologyTestDriver], Any]
) -> list[Any]:
    """Take steps and records of the topic ``in``, commit, and restore. Returns what ``look`` saw at each ``READ``."""
    waiting: list[Record] = []
    seen = []
    for step in [*steps, COMMIT, RESTORE]:
        if isinstance(step, Record):
            waiting.append(step)
            continue
        driver.pipe_all("in", waiting)
        waiting.clear()
        if step == READ:
            seen.append(look(driver))
        elif step == DISCARD:
            for task in driver.tasks.values():
                task.discard(task._start)
        else:
            take_step(driver, step)
    return seen


def left_behind(driver: TopologyTestDriver) -> dict[str, Any]:
    """What a run to ``out`` wrote, logged, stored and dropped."""
    stores = {
        (task, name): list(state.range())
        for task, running in driver.tasks.items()
        for name, state in running.stores.items()
    }
    return {
        "written": driver.read_raw("out"),
        "changelogs": driver.changelogs,
        "stores": stores,
        "dropped": +driver.dropped_records,
    }


def play(topology: Topology, steps: Sequence[Step], size: int) -> Played:
    """Play the steps in batches of at most ``size``; topics: ``in``, ``out`` and, if written, ``late``."""
    options = TaskOptions(batch_max_records=size, wall_resolution_ms=1)
    driver = TopologyTestDriver(topology, options=options, auto_commit=False)
    waiting: list[Record] = []

    def pipe() -> None:
        driver.pipe_all("in", waiting)
        waiting.clear()

    for step in steps:
        if isinstance(step, Put):
            waiting.append(Record(step.key, step.value, step.ts))
            continue
        pipe()
        take_step(driver, step)
    pipe()
    driver.commit()
    written = {s.topic for s in (topology.sink(n) for sub in topology.subtopologies for n in sub.sinks)}
    return Played(
        _shown(driver, "out"),
        _shown(driver, "late") if "late" in written else [],
        dict(driver.dropped_records),
        {s.name: list(driver.store(s.name).all()) for s in topology.stores},
    )


def _shown(driver: TopologyTestDriver, topic: str) -> list[Shown]:
    return [Shown(r.key, r.value, r.timestamp_ms) for r in driver.read(topic)]
