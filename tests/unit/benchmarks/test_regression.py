"""The gate's arithmetic, with planted regressions and planted noise."""

from __future__ import annotations

import math
import statistics

import pytest

from benchmarks.regression import THRESHOLD, Costs, Verdict, compare, judge, missing, stored

BASELINE = stored(Costs([4.0, 4.1, 3.9], [1.0, 1.0, 1.0]))


@pytest.mark.parametrize("growth", [1.2, 1.5, 3.0])
def test_a_cost_that_grew_in_every_repetition_is_a_regression(growth: float) -> None:
    finding = judge("ysb", Costs([4.0 * growth, 4.2 * growth, 3.9 * growth], [1.0, 1.0, 1.0]), BASELINE)
    assert finding.regressed
    assert finding.words.startswith("REGRESSED")


@pytest.mark.parametrize("cost", [3.0, 3.9, 4.0, 4.3, 4.5])
def test_a_cost_within_the_threshold_is_none(cost: float) -> None:
    assert not judge("ysb", Costs([cost] * 3, [1.0] * 3), BASELINE).regressed


def test_a_slower_machine_is_none() -> None:
    assert not judge("ysb", Costs([8.0, 8.2, 7.8], [2.0, 2.05, 1.95]), BASELINE).regressed


def test_a_regression_on_a_faster_machine_is_one() -> None:
    assert judge("ysb", Costs([4.0, 4.1, 3.9], [0.7, 0.7, 0.7]), BASELINE).regressed


def test_one_good_repetition_among_bad_ones_is_noise() -> None:
    finding = judge("ysb", Costs([6.0, 6.2, 4.05], [1.0, 1.0, 1.0]), BASELINE)
    assert not finding.regressed
    assert "noise" in finding.words


def test_the_threshold_can_be_set() -> None:
    costs = Costs([4.4, 4.4, 4.4], [1.0] * 3)
    assert not judge("ysb", costs, BASELINE, THRESHOLD).regressed
    assert judge("ysb", costs, BASELINE, 0.05).regressed


def test_a_better_cost_asks_to_be_stored() -> None:
    assert "--update" in judge("ysb", Costs([2.0] * 3, [1.0] * 3), BASELINE).words


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        judge("ysb", Costs([], []), BASELINE)
    with pytest.raises(ValueError, match="nothing to compare"):
        judge("ysb", Costs([1.0], [1.0]), {"relative": 0.0})
    assert missing({"workloads": {"ysb": BASELINE}}, ["ysb", "restore"]) == ["restore"]
    assert missing({}, ["ysb"]) == ["ysb"]


PAIRS_OF_ONE_COST = [
    *((12.60, 13.39), (14.70, 14.71), (14.32, 14.46), (12.51, 12.12)),
    *((20.27, 19.90), (18.61, 17.76), (16.83, 17.78), (15.27, 15.45)),
]
"""CPU-seconds of one checkout, run twice at the same time: pairs differ by a third, the runs of a pair by a few per cent."""


@pytest.mark.parametrize(
    ("growth", "verdict"), [(0.9, Verdict.HELD), (1.0, Verdict.HELD), (1.03, Verdict.OPEN), (1.1, Verdict.GREW)]
)
def test_what_grew_is_told_from_what_the_machine_does(growth: float, verdict: Verdict) -> None:
    here, there = zip(*PAIRS_OF_ONE_COST, strict=True)
    found = compare("ysb", [cost * growth for cost in here], there)
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(growth, rel=0.01)
    assert found.low < found.ratio < found.high
    assert verdict.value in found.words


def test_what_holds_by_chance_stays_open() -> None:
    assert compare("ysb", [4.0], [4.4]).verdict is Verdict.OPEN
    assert compare("ysb", [4.0, 4.0], [4.4, 4.0]).verdict is Verdict.OPEN
    assert "one pair" in compare("ysb", [4.0], [4.4]).words


@pytest.mark.parametrize(
    ("pairs", "percentile"), [(2, 6.314), (3, 2.920), (4, 2.353), (5, 2.132), (8, 1.895), (16, 1.753), (200, 1.653)]
)
def test_the_ends_are_student_s(pairs: int, percentile: float) -> None:
    """Against the published table of the 95th percentile."""
    logs = [0.01 * (-1) ** place for place in range(pairs)]
    found = compare("ysb", [math.exp(value) for value in logs], [1.0] * pairs)
    spread = statistics.stdev(logs) / math.sqrt(pairs)
    assert (math.log(found.high) - statistics.fmean(logs)) / spread == pytest.approx(percentile, rel=0.005)
    assert math.log(found.high) - statistics.fmean(logs) == pytest.approx(statistics.fmean(logs) - math.log(found.low))


def test_without_figures_there_is_nothing_to_compare() -> None:
    for here, there in (([], []), ([0.0], [1.0]), ([1.0], [-1.0])):
        with pytest.raises(ValueError, match="nothing to compare"):
            compare("ysb", here, there)
