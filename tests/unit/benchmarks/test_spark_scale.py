"""The plan of Spark jobs: the fit finds the costs that made the figures, and the plan names what bounds a job."""

from __future__ import annotations

import random

import pytest

from benchmarks import scale_model
from benchmarks.spark_scale import (
    FITTED,
    FORETOLD,
    Cluster,
    Costs,
    Run,
    fitted,
    foretold,
    held_rows,
    makespan,
    plan_rows,
    planned,
    skewed,
)

COSTS = Costs(start_s=9.0, driver_s=0.02, task_s=0.4, record_s=1.2e-6)
BROKERS = scale_model.Costs()


def test_the_fit_finds_what_made_the_figures() -> None:
    found = fitted([Run(shape, foretold(COSTS, shape)) for shape in FITTED])
    assert found == pytest.approx(COSTS)
    assert [row[5] for row in held_rows(found, [Run(s, foretold(COSTS, s)) for s in FORETOLD])] == ["1.00", "1.00"]


def test_noise_makes_no_cost_negative() -> None:
    draw = random.Random(5)
    without = Costs(9.0, 0.0, 0.0, 1.2e-6)
    for _ in range(200):
        found = fitted([Run(shape, foretold(without, shape) * draw.uniform(0.95, 1.05)) for shape in FITTED])
        assert min(found) >= 0
        assert found.record_s == pytest.approx(without.record_s, rel=0.25)


def test_largest_tasks_go_first() -> None:
    assert makespan([1, 1, 1, 1, 4], 2) == 4
    assert makespan([3.0, 1.0], 1) == 4.0
    assert makespan([2.0], 8) == 2.0


def test_what_bounds_a_job_is_named() -> None:
    even = [10_000_000] * 1_000
    assert planned(COSTS, even, Cluster(10), BROKERS).bound == "executors"
    assert planned(COSTS, skewed(1_000, 10_000_000_000, 60), Cluster(100), BROKERS).bound == "largest task"
    assert planned(COSTS, even, Cluster(100, brokers=2), BROKERS).bound == "brokers"
    assert planned(COSTS, [1_000] * 1_000, Cluster(100), BROKERS).bound == "start"


def test_more_executors_help_until_something_else_bounds() -> None:
    even = [10_000_000] * 1_000
    one, ten, many = (planned(COSTS, even, Cluster(n), BROKERS).seconds for n in (1, 10, 10_000))
    assert one / ten == pytest.approx(10, rel=0.15)
    # Each task has a core: the time of one task, behind the start.
    assert many == pytest.approx(9 + 20 + max(0.4 + 12, 10e9 * 0.55e-6 / 80))


def test_skew_keeps_all_records() -> None:
    tasks = skewed(10, 1_000, 5)
    assert sum(tasks) == 1_000
    assert tasks[0] == pytest.approx(5 * tasks[1], rel=0.05)


def test_the_table_has_a_row_for_each_number_of_executors() -> None:
    rows = plan_rows(COSTS)
    assert len(rows) == 10
    assert rows[3][2] == "100 × 4"
