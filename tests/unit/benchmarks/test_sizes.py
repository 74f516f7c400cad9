"""The search for the smallest heap, the marks of a long run, and budgets."""

from __future__ import annotations

import pytest

from benchmarks import harness
from benchmarks.curves import PARTS, between_marks, records_of
from benchmarks.heap import FIRST_MB, LEAST_MB, Try, smallest
from benchmarks.workloads import WORKLOADS


def rate_with(enough_mb: int, tried: list[int]) -> object:
    """A system that keeps its rate from so many MB on, and dies with less than a quarter of it."""

    def rate(heap_mb: int) -> Try:
        tried.append(heap_mb)
        kept = 1.0 if heap_mb >= enough_mb else 0.0 if heap_mb * 4 < enough_mb else 0.5
        return Try(heap_mb, 1_000.0 * kept, heap_mb << 20, heap_mb << 20)

    return rate


@pytest.mark.parametrize(
    ("enough_mb", "found_mb"),
    [(2_000, 2_048), (1_400, 2_048), (1_000, 1_024), (64, 64), (60, 64), (90, 128), (1, LEAST_MB)],
)
def test_the_smallest_heap_is_found_to_a_power_of_two(enough_mb: int, found_mb: int) -> None:
    tried: list[int] = []
    tries, found = smallest(rate_with(enough_mb, tried))  # type: ignore[arg-type]  # a function, told as an object
    assert found is not None
    assert found.heap_mb == found_mb
    assert tried[0] == FIRST_MB
    assert [one.heap_mb for one in tries] == tried


def test_without_a_rate_there_is_no_heap() -> None:
    assert smallest(lambda heap_mb: Try(heap_mb, 0.0, 0, 0))[1] is None


def test_marks_cost_what_lies_between_them() -> None:
    # 2 CPU-seconds of start, then 1 per million up to 5 M, 3 behind it.
    samples = [(float(i), 2.0 + i + max(i - 5, 0) * 2, 1, i * 1_000_000) for i in range(1, 11)]
    marks = dict(between_marks(samples, (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)))
    assert marks == {2_000_000: 1.0, 5_000_000: 1.0, 10_000_000: 3.0}
    assert list(between_marks([], (1,))) == []


def test_every_curve_has_points_with_enough_records() -> None:
    for points in PARTS.values():
        for point in points:
            assert records_of(point) >= WORKLOADS[point.workload].records["penstock"]
            if point.workload == "keyed-count":
                assert records_of(point) >= 2 * point.variant.keys


def test_a_budget_ends_before_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(harness.time, "monotonic", lambda: now_s)
    budget = harness.Budget(10.0)
    assert budget.allows("the first")
    now_s = 240.0
    assert budget.allows("the second")
    now_s = 300.0
    assert budget.allows("a third, which fits if it lasts 240 s")
    now_s = 400.0
    assert not budget.allows("a fourth, which would end at 640 s")
