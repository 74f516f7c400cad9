"""The steady part of a run, and the spread of repetitions."""

from __future__ import annotations

import pytest

from benchmarks.steady import Sample, Steady, between, changes, cost_after, spread, steady

START_S = 100.0


def run(
    rate: float, cpu_s_per_million: float, *, records: int, started_s: float = 10.0, start_cpu_s: float = 16.0
) -> list[Sample]:
    """A run that commits once a second, sampled every 0.2 s: a start that costs much, then a steady rate; the last commit
    comes when its interval is over."""
    samples = []
    for tick in range(10_000):
        at_s = tick / 5
        whole = max(int(at_s - started_s), 0)
        committed = min(int(whole * rate), records)
        done = min(max(at_s - started_s, 0) * rate, records)
        cpu_s = min(at_s / started_s, 1) * start_cpu_s + done * cpu_s_per_million / 1e6
        samples.append(Sample(START_S + at_s, cpu_s, 10**8, done / 1e6, cpu_s + 0.5 * at_s, committed, 0))
        if committed == records and at_s > started_s + records / rate + 3:
            return samples
    raise AssertionError("the run does not end")


@pytest.mark.parametrize(("start_cpu_s", "started_s"), [(16.0, 10.0), (24.0, 16.4)])
def test_start_and_last_wait_are_no_part_of_the_figures(start_cpu_s: float, started_s: float) -> None:
    samples = run(100_000, 5.0, records=1_950_000, start_cpu_s=start_cpu_s, started_s=started_s)
    found = steady(samples, 1_950_000)
    assert isinstance(found, Steady)
    assert found.records == 1_100_000
    assert found.records_per_s == pytest.approx(100_000, rel=0.03)
    assert found.cpu_s_per_million == pytest.approx(5.0, rel=0.05)
    assert found.broker_cpu_s_per_million == pytest.approx(1.0, rel=0.05)
    assert found.others_cores == pytest.approx(0.5, rel=0.05)


def test_a_run_that_is_over_too_soon_says_so() -> None:
    assert "less than 3" in str(steady(run(400_000, 5.0, records=2_000_000), 2_000_000))
    assert "give it more" in str(steady(run(2_000_000, 5.0, records=2_000_000), 2_000_000))
    assert "0 commits" in str(steady([], 2_000_000))


def test_changes_keep_the_first_sample_of_each_commit() -> None:
    samples = run(100_000, 5.0, records=300_000)
    kept = changes(samples)
    assert [sample.committed for sample in kept] == [100_000, 200_000, 300_000]
    assert kept[0].at_s == pytest.approx(START_S + 11.0)


def test_nothing_between_two_samples_is_refused() -> None:
    sample = Sample(1.0, 1.0, 1, 1.0, 1.0, 5, 0)
    with pytest.raises(ValueError, match="further apart"):
        between(sample, sample)


def test_spread_is_the_median_and_half_the_range() -> None:
    of = spread([4.0, 5.0, 8.0])
    assert (of.median, of.low, of.high, of.times) == (5.0, 4.0, 8.0, 3)
    assert of.part == pytest.approx(0.4)


def test_the_cost_behind_the_start_leaves_the_start_out() -> None:
    seen = [(1.0, 9.0, 1, 50_000), (2.0, 10.0, 1, 100_000), (3.0, 12.0, 1, 600_000), (5.0, 14.0, 1, 1_000_000)]
    assert cost_after(seen, 1_000_000) == pytest.approx(4.0 / 0.9)
    with pytest.raises(ValueError, match="give it more"):
        cost_after(seen[-1:], 1_000_000)
    with pytest.raises(ValueError, match="0 commits"):
        cost_after([], 1_000_000)
