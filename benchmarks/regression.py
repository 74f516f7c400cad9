"""Whether a cost has grown, told from noise. Pure.

A cost is CPU-seconds per million records, divided by the CPU-seconds that a fixed loop took just before and just after on
the same machine: what slows everything (another clock rate, a busy neighbour on the host) slows both. Stored costs are
those of the same kind of machine. One repetition says little, so a workload has regressed only if the median of its
repetitions lies above the stored one by more than the threshold, and the lowest of them by more than half of it: a cost
that really grew has grown in every repetition.

Two checkouts that run at the same time need no stored cost: each pair of runs gives a ratio, and what the machine does to
one run it does to the other. ``compare`` says between which ends the ratio lies; the gate takes pairs until both ends are
on one side of the threshold.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

THRESHOLD = 0.15
COMPARED_THRESHOLD = 0.03
"""Of two checkouts that ran at the same time."""


class Verdict(enum.Enum):
    """What pairs of runs say of a figure."""

    HELD = "held"
    GREW = "REGRESSED"
    OPEN = "not decided"


class Costs(NamedTuple):
    """Repetitions of one workload: CPU-seconds per million records, and the loop's CPU-seconds beside each."""

    cpu_s_per_million: Sequence[float]
    loop_s: Sequence[float]

    @property
    def relative(self) -> list[float]:
        """Each cost as a multiple of its loop."""
        return [cost / loop for cost, loop in zip(self.cpu_s_per_million, self.loop_s, strict=True)]


class Finding(NamedTuple):
    """One workload against its stored cost. ``median`` and ``lowest`` are multiples of the stored median."""

    workload: str
    median: float
    lowest: float
    regressed: bool
    words: str


class Comparison(NamedTuple):
    """A figure here as a multiple of the figure there, with the ends between which it lies with nine chances in ten."""

    what: str
    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """Whether it grew by more than the threshold."""
        limit = 1 + COMPARED_THRESHOLD
        if self.low > limit:
            return Verdict.GREW
        return Verdict.HELD if self.high <= limit else Verdict.OPEN

    @property
    def words(self) -> str:
        """One line for people."""
        ends = f"{self.low - 1:+.1%} to {self.high - 1:+.1%}" if self.pairs > 1 else "one pair"
        return f"{self.ratio - 1:+.1%} ({ends}; {self.pairs} pairs): {self.verdict.value}"


def stored(costs: Costs) -> dict[str, Any]:
    """What is kept of a workload."""
    return {
        "relative": round(statistics.median(costs.relative), 4),
        "cpu_s_per_million": round(statistics.median(costs.cpu_s_per_million), 3),
        "loop_s": round(statistics.median(costs.loop_s), 4),
        "repetitions": len(costs.loop_s),
    }


def judge(workload: str, costs: Costs, baseline: Mapping[str, Any], threshold: float = THRESHOLD) -> Finding:
    """Compare repetitions with the stored cost. Raises ``ValueError`` without a repetition or for a stored cost of 0."""
    if not costs.loop_s or baseline["relative"] <= 0:
        raise ValueError(f"{workload}: nothing to compare; run it at least once and store a cost above 0")
    against = [cost / baseline["relative"] for cost in costs.relative]
    median, lowest = statistics.median(against), min(against)
    regressed = median > 1 + threshold and lowest > 1 + threshold / 2
    if regressed:
        words = f"REGRESSED: {median - 1:+.0%}, at best {lowest - 1:+.0%}"
    elif median > 1 + threshold:
        words = f"{median - 1:+.0%}, but {lowest - 1:+.0%} at best: noise"
    elif median < 1 - threshold:
        words = f"{median - 1:+.0%}: store the better cost with --update"
    else:
        words = f"{median - 1:+.0%}"
    return Finding(workload, median, lowest, regressed, words)


def compare(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare figures of two checkouts, pair by pair: the mean of the logarithms of the ratios, and its interval by
    Student's t, 5 % on each side. Raises ``ValueError`` without a pair or for a figure that is not above 0."""
    if not ours or min(*ours, *theirs) <= 0:
        raise ValueError(f"{what}: nothing to compare; run it at least once, and take figures above 0")
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(logs)
    half = math.inf
    if len(logs) > 1:
        half = _student_t(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Comparison(what, math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def _student_t(freedom: int) -> float:
    """The 95th percentile of Student's distribution, by the expansion of Abramowitz and Stegun, 26.7.5; exact for 1 and 2
    degrees of freedom."""
    if freedom == 1:
        return math.tan(0.45 * math.pi)
    if freedom == 2:
        return 0.9 * math.sqrt(2 / (4 * 0.95 * 0.05))
    x: float = statistics.NormalDist().inv_cdf(0.95)
    terms: tuple[float, ...] = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + sum(term / float(freedom) ** power for power, term in enumerate(terms, 1))


def missing(baseline: Mapping[str, Any], workloads: Sequence[str]) -> list[str]:
    """Workloads without a stored cost."""
    return [workload for workload in workloads if workload not in baseline.get("workloads", {})]
