"""``python -m benchmarks.spark_scale``: catch-ups measured on this machine, and what they foretell of a cluster.

A catch-up costs Spark's start, then each task (one a partition) a fixed part and its records. The driver's own part of
each task is not spread. Four catch-ups give these costs by least squares of relative errors; two more are foretold and
compared with what was seen. With the costs, ``planned`` says how long a job of many executors takes, and what bounds it:
its start, the largest task, the executors or the brokers. ``SCALE.md`` has the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import os
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import scale_model
from benchmarks.harness import Opened, add_common, open_bench, say
from benchmarks.report import markdown
from benchmarks.spark_jobs import caught_up
from benchmarks.spark_work import Topic
from benchmarks.workloads import Variant

TITLE = "Catch-ups in Spark, foretold"
KEYS = 100_000
CORES = "SPARK_CORES"


class Shape(NamedTuple):
    """A job: tasks of equal size, and how many executor cores work on them."""

    tasks: int
    records: int
    cores: int


class Run(NamedTuple):
    """A job that was measured. ``void``: why its seconds tell nothing."""

    shape: Shape
    seconds: float
    void: str = ""


class Costs(NamedTuple):
    """Seconds: ``start_s`` of every job; ``driver_s`` of each task, one after the other; ``task_s`` of each task and
    ``record_s`` of each record, on the core that has it."""

    start_s: float
    driver_s: float
    task_s: float
    record_s: float


class Cluster(NamedTuple):
    """``executors`` with ``cores`` each, and the brokers that they read and write."""

    executors: int
    cores: int = 4
    brokers: int = 10
    broker_cores: int = 8


class Plan(NamedTuple):
    """How long a job takes and what its length is: ``start``, ``largest task``, ``executors`` or ``brokers``."""

    seconds: float
    bound: str


FITTED = (Shape(4, 1_000_000, 2), Shape(4, 20_000_000, 2), Shape(16, 1_000_000, 2), Shape(16, 20_000_000, 1))
FORETOLD = (Shape(16, 20_000_000, 2), Shape(4, 20_000_000, 1))


def terms(shape: Shape) -> tuple[float, float, float, float]:
    """What each of the four costs is multiplied by."""
    turns = -(-shape.tasks // shape.cores)
    return 1.0, float(shape.tasks), float(turns), turns * shape.records / shape.tasks


def fitted(runs: Sequence[Run]) -> Costs:
    """The costs that come nearest to the runs: least squares of relative errors, none of the costs below 0. At least four
    runs, with two numbers of tasks, of records and of cores."""
    found = np.zeros(4)
    kept = [0, 1, 2, 3]
    rows = np.array([terms(run.shape) for run in runs]) / np.array([[run.seconds] for run in runs])
    while kept:
        # A cost below 0 is noise: it is taken for 0, and the others are fitted again.
        answer = np.linalg.lstsq(rows[:, kept], np.ones(len(runs)), rcond=None)[0]
        below = [place for place, value in zip(kept, answer, strict=True) if value < 0]
        if not below:
            found[kept] = answer
            break
        kept = [place for place in kept if place not in below]
    return Costs(*found.tolist())


def foretold(costs: Costs, shape: Shape) -> float:
    """Seconds of a job of equal tasks."""
    return float(np.dot(costs, terms(shape)))


def makespan(seconds: Sequence[float], cores: int) -> float:
    """When the last of these tasks ends: the largest first, each on the core that is free first, as the jobs order them."""
    free = [0.0] * cores
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def planned(costs: Costs, tasks: Sequence[int], cluster: Cluster, brokers: scale_model.Costs) -> Plan:
    """A job of ``tasks``, the records of each, on a cluster. Brokers read and write each record once."""
    seconds = [costs.task_s + costs.record_s * records for records in tasks]
    start = costs.start_s + costs.driver_s * len(tasks)
    work = makespan(seconds, cluster.executors * cluster.cores)
    served = sum(tasks) * (brokers.read_s + brokers.write_s) / (cluster.brokers * cluster.broker_cores)
    longest = max(work, served)
    if start > longest:
        return Plan(start + longest, "start")
    if served > work:
        return Plan(start + served, "brokers")
    return Plan(start + work, "largest task" if max(seconds) > 0.95 * work else "executors")


def skewed(tasks: int, records: int, times: float) -> list[int]:
    """Tasks of which the first has ``times`` the records of each of the others."""
    each = int(records / (tasks - 1 + times))
    return [records - each * (tasks - 1)] + [each] * (tasks - 1)


# -- measured --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def executor_cores(cores: int) -> Iterator[None]:
    """Let the processes that are started have this many."""
    before = os.environ.get(CORES)
    os.environ[CORES] = str(cores)
    try:
        yield
    finally:
        if before is None:
            del os.environ[CORES]
        else:
            os.environ[CORES] = before


def measured(opened: Opened, shapes: Sequence[Shape], limit_s: float) -> list[Run]:
    """Each job in a process of its own, its answer checked."""
    runs = []
    for name in ("logs", "state"):
        (opened.work / name).mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        bench = opened.bench(Variant(keys=KEYS, partitions=shape.tasks))
        name = bench.log.load("clicks", shape.records)
        topic = Topic(bench.log.bootstrap, name, shape.records, KEYS, bench.log.base_ms)
        with executor_cores(shape.cores):
            runs.append(Run(shape, *caught_up(bench.log, opened.work, topic, 0, limit_s)))
        say(f"{shape}: {runs[-1].seconds:.1f} s {runs[-1].void}")
    return runs


HELD_HEAD = ["tasks", "records", "cores", "seen s", "model s", "ratio", "role", "check"]
PLAN_HEAD = ["records", "tasks", "executors × cores", "minutes", "M records/s", "bound by"]
EXECUTORS = (1, 10, 50, 100, 200)
BACKLOG, TASKS = 10_000_000_000, 1_000


def held_rows(costs: Costs, runs: Sequence[Run]) -> list[list[str]]:
    """The runs and what the model says of them."""
    rows = []
    for run in runs:
        said = foretold(costs, run.shape)
        role = "fitted" if run.shape in FITTED else "foretold"
        what = [str(run.shape.tasks), f"{run.shape.records:,}", str(run.shape.cores), f"{run.seconds:.1f}"]
        rows.append([*what, f"{said:.1f}", f"{said / run.seconds:.2f}", role, run.void or "answers equal"])
    return rows


def plan_rows(costs: Costs) -> list[list[str]]:
    """A backlog of ten billion records, evenly and with one task ten times as large, by number of executors."""
    rows = []
    for what, tasks in (
        (f"{TASKS:,}", [BACKLOG // TASKS] * TASKS),
        (f"{TASKS:,}, one ten times as large", skewed(TASKS, BACKLOG, 10)),
    ):
        for executors in EXECUTORS:
            cluster = Cluster(executors)
            plan = planned(costs, tasks, cluster, scale_model.Costs())
            took = [f"{plan.seconds / 60:,.1f}", f"{BACKLOG / plan.seconds / 1e6:.1f}", plan.bound]
            rows.append([f"{BACKLOG:,}", what, f"{executors} × {cluster.cores}", *took])
    return rows


def main(argv: list[str] | None = None) -> int:
    """Measure, fit, and print both tables; 1 if an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=TITLE)
    add_common(parser)
    options = parser.parse_args(argv)
    with open_bench(options) as opened:
        runs = measured(opened, [*FITTED, *FORETOLD], options.limit)
    void = any(run.void for run in runs)
    if not void:
        costs = fitted([run for run in runs if run.shape in FITTED])
        print(costs, markdown(HELD_HEAD, held_rows(costs, runs)), sep="\n\n")
        print(markdown(PLAN_HEAD, plan_rows(costs)))
    return int(void)


if __name__ == "__main__":
    sys.exit(main())
