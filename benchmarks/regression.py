"""Whether a cost has grown, told from noise. Pure.

A cost is CPU-seconds per million records, divided by the CPU-seconds that a fixed loop took just before and just after on
the same machine: what slows everything (another clock rate, a busy neighbour on the host) slows both. Stored costs are
those of the same kind of machine. One repetition says little, so a workload has regressed only if the median of its
repetitions lies above the stored one by more than the threshold, and the lowest of them by more than half of it: a cost
that really grew has grown in every repetition.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

THRESHOLD = 0.15
IN_TURNS_THRESHOLD = 0.03
"""Of runs that took turns."""


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


def compare(workload: str, ours: Sequence[float], theirs: Sequence[float]) -> Finding:
    """Compare the costs of two checkouts that took turns: of each pair of neighbours the ratio. Regressed: the median of
    the ratios is above 1 by more than the threshold, and most pairs say so. Raises ``ValueError`` without a pair."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    if not ratios:
        raise ValueError(f"{workload}: nothing to compare; run it at least once")
    median, lowest = statistics.median(ratios), min(ratios)
    limit = 1 + IN_TURNS_THRESHOLD
    regressed = median > limit and sum(ratio > limit for ratio in ratios) * 3 >= len(ratios) * 2
    pairs = ", ".join(f"{a:.2f} / {b:.2f}" for a, b in zip(ours, theirs, strict=True))
    return Finding(
        workload, median, lowest, regressed, f"{'REGRESSED: ' if regressed else ''}{median - 1:+.1%} ({pairs})"
    )


def missing(baseline: Mapping[str, Any], workloads: Sequence[str]) -> list[str]:
    """Workloads without a stored cost."""
    return [workload for workload in workloads if workload not in baseline.get("workloads", {})]
