"""The gate's arithmetic, with planted regressions and planted noise."""

from __future__ import annotations

import pytest

from benchmarks.regression import THRESHOLD, Costs, compare, judge, missing, stored

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


@pytest.mark.parametrize(
    ("ours", "theirs", "regressed"),
    [
        ([4.2, 8.4, 4.3], [4.0, 8.0, 4.0], True),  # each is dearer than its neighbour, whatever the machine did
        ([4.1, 8.2, 4.0], [4.0, 8.0, 4.0], False),  # less than three per cent
        ([4.4, 8.0, 4.4, 4.0], [4.0, 8.0, 4.0, 4.1], False),  # two of four pairs: noise
        ([4.4, 8.0, 4.4], [4.0, 8.0, 4.0], True),  # two of three
        ([3.0, 3.0, 3.0], [4.0, 4.0, 4.0], False),
    ],
)
def test_checkouts_that_took_turns_are_compared_pair_by_pair(
    ours: list[float], theirs: list[float], regressed: bool
) -> None:
    finding = compare("ysb", ours, theirs)
    assert finding.regressed is regressed
    assert finding.words.startswith("REGRESSED") is regressed
    assert f"{ours[0]:.2f} / {theirs[0]:.2f}" in finding.words


def test_without_a_pair_there_is_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        compare("ysb", [], [])
