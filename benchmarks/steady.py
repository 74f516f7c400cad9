"""The steady part of a run, from what was seen of it while it ran. Pure.

A rate is taken within one run, between two commits that were seen: the first behind ``WARM_PART`` of the records, and
the last before the input's end, since the very last waits for its interval to pass with nothing to do. Start-up, loading
of tables and what a compiler does at first lie before it, and both ends are of one process. A difference of two runs
carries the noise of two starts instead: on two cores, a JVM that drained a million events used 16 to 24 CPU-seconds,
nearly all of it start and compiling, which alone moved its CPU per million over the next three million between 2.8 and 5.8.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

WARM_PART = 0.4
STARTED_PART = 0.1
"""Where start-up and the loading of tables are over, for programs that do not compile while they run."""
SHORTEST_S = 3.0


class Sample(NamedTuple):
    """What was seen at one moment of a run. CPU since the process's, the broker's and the machine's start;
    ``committed`` records of the input; ``waiting`` records of repartition topics."""

    at_s: float
    cpu_s: float
    resident_bytes: int
    broker_cpu_s: float
    others_cpu_s: float
    committed: int
    waiting: int


class Steady(NamedTuple):
    """Figures of the steady part; ``others_cores``: cores busy with what is neither system, broker nor harness."""

    records: int
    seconds: float
    records_per_s: float
    cpu_s_per_million: float
    broker_cpu_s_per_million: float
    others_cores: float


def changes(samples: Sequence[Sample]) -> list[Sample]:
    """The first sample of each state of progress, in which something was committed already."""
    kept: list[Sample] = []
    for sample in samples:
        if sample.committed > 0 and (not kept or _progress(sample) != _progress(kept[-1])):
            kept.append(sample)
    return kept


def _progress(sample: Sample) -> tuple[int, int]:
    return sample.committed, sample.waiting


def between(first: Sample, last: Sample) -> Steady:
    """The figures of the part between two samples. Raises ``ValueError`` if nothing lies between them."""
    records, seconds = last.committed - first.committed, last.at_s - first.at_s
    if records <= 0 or seconds <= 0:
        raise ValueError(f"{records} records in {seconds:.1f} s lie between the two samples; take two further apart")
    cpu_s, broker_s = last.cpu_s - first.cpu_s, last.broker_cpu_s - first.broker_cpu_s
    return Steady(
        records,
        seconds,
        records / seconds,
        cpu_s / records * 1e6,
        broker_s / records * 1e6,
        (last.others_cpu_s - first.others_cpu_s - cpu_s) / seconds,
    )


def steady(samples: Sequence[Sample], records: int, warm_part: float = WARM_PART) -> Steady | str:
    """The steady part of a run over so many records, or why there is none."""
    warm = [s for s in changes(samples) if warm_part * records <= s.committed < records]
    if not warm or warm[0].committed >= warm[-1].committed:
        return f"{len(warm)} commits were seen between {warm_part:.0%} of its records and their end: give it more"
    found = between(warm[0], warm[-1])
    if found.seconds < SHORTEST_S:
        return f"its steady part lasted {found.seconds:.1f} s, less than {SHORTEST_S:g}: give it more records"
    return found


def cost_after(seen: Sequence[tuple[float, float, int, int]], records: int, part: float = STARTED_PART) -> float:
    """CPU-seconds per million records from the first commit behind ``part`` of the records to the last one; ``seen`` is
    ``Run.samples``. Raises ``ValueError`` if fewer than two commits lie there."""
    counted = [sample for sample in seen if sample[3] >= part * records]
    if not counted or counted[0][3] >= counted[-1][3]:
        raise ValueError(f"{len(counted)} commits were seen behind {part:.0%} of the records: give it more")
    return (counted[-1][1] - counted[0][1]) / (counted[-1][3] - counted[0][3]) * 1e6


class Spread(NamedTuple):
    """Repetitions of one figure: the median and the ends."""

    median: float
    low: float
    high: float
    times: int

    @property
    def part(self) -> float:
        """Half the distance of the ends, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))
