"""The share of its ceiling that a workload reaches.

The ceiling of a workload is ``min(F(i), P(o) ÷ w)`` input records per second: F and P are the fastest fetch and produce
that the roofline measured, for records of i bytes (key and value of the input) and o bytes (of what is written); w is how
many records are written per input record, changelogs and repartition topics among them. Both are measured alone, with the
broker on the same machine, by one loop with batches of the roofline's size: a yardstick, and no bound. What fetches and
produces shares the cores and mostly stays below it, but noise, other batches and fetching while producing may pass it
by some per cent. The report names such shares as *ceiling measured too low*.

A rate at a size between the two that were measured follows from a cost per record and one per byte.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks import data
from benchmarks.machine import kind
from benchmarks.workloads import WORKLOADS, Workload

FILE = "roofline-{machine}.json"
Points = Sequence[tuple[float, float]]
"""Bytes of a record, and records per second at that size."""


def rate_at(points: Points, size: float) -> float:
    """Records per second at a size, by a line through the seconds per record at the smallest and the largest size
    measured; never faster than the fastest one measured, nor faster beyond the largest size than at it."""
    (small, at_small), (large, at_large) = min(points), max(points)
    if small == large:
        return at_small
    per_byte_s = (1 / at_large - 1 / at_small) / (large - small)
    if per_byte_s < 0:
        size = min(max(size, small), large)
    seconds = 1 / at_small + (size - small) * per_byte_s
    return 1 / max(seconds, 1 / max(rate for _, rate in points))


def ceiling(fetch: Points, produce: Points, read_bytes: float, written_bytes: float, writes: float) -> float:
    """Input records per second; ``writes`` per input record, 0 if nothing is written."""
    fetched = rate_at(fetch, read_bytes)
    return min(fetched, rate_at(produce, written_bytes) / writes) if writes > 0 else fetched


def mean_bytes(data_set: str) -> float:
    """Key and value of a record of the data set, by its first thousand."""
    block = next(data.DATA_SETS[data_set](1_000, 1_795_219_200_000))
    return (sum(map(len, block.values)) + sum(map(len, block.keys or ()))) / len(block.values)


@dataclasses.dataclass(frozen=True)
class Ceilings:
    """What the last roofline on this kind of machine found for the log."""

    fetch: Points
    produce: Points

    @classmethod
    def read(cls, work: Path) -> Self | None:
        """From the scratch folder; ``None`` if ``make roofline`` has not run."""
        path = work / FILE.format(machine=kind())
        return cls.of_rows(json.loads(path.read_text())["rows"]) if path.exists() else None

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Self | None:
        """From the roofline's rows: per size the fastest client; ``None`` if one of the two is missing."""
        best: dict[str, dict[float, float]] = {"fetch": {}, "produce": {}}
        for row in rows:
            if row["group"] in best and row.get("bytes"):
                sizes = best[row["group"]]
                sizes[row["bytes"]] = max(sizes.get(row["bytes"], 0.0), row["per_s"])
        if not all(best.values()):
            return None
        return cls(*(tuple(best[group].items()) for group in ("fetch", "produce")))

    def of_restore(self) -> float:
        """Changelog records per second: a restore fetches them, and writes nothing to the log."""
        return rate_at(self.fetch, WORKLOADS["keyed-count"].written_bytes)

    def of(self, workload: Workload, result: Mapping[str, Any]) -> float | None:
        """The workload's ceiling in records per second, given what a run of it wrote per input record."""
        if result["void"]:
            return None
        writes = result["writes_per_input"]
        return ceiling(self.fetch, self.produce, mean_bytes(workload.data_set), workload.written_bytes, writes)
