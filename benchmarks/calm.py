"""Which of repeated latencies count. Pure.

A wait of some milliseconds is at the mercy of who else wants the processor: on a machine that shares its host, the host may
take a third of it away for minutes, and p99 of records that pass no system at all then rises from 8 to 200 ms. So each point
is measured beside the time that the host took, and again where that was much.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.workloads import Variant

CALM_CORES = 0.1
"""Where the host took less than so many processors, the figures are the system's own."""

Point = dict[str, Any]


def is_calm(point: Point) -> bool:
    """Whether little was taken; true where it is not known."""
    return bool(point.get("stolen_cores", 0.0) <= CALM_CORES)


def typical(points: Iterable[Point]) -> list[Point]:
    """One point per series, guarantee, rate and table, void ones left out: medians of its calm runs, of all if none was."""
    groups: dict[tuple[str, str, int, int], list[Point]] = {}
    for point in points:
        if not point["void"]:
            place = (point["series"], point["guarantee"], point["rate_per_s"], point.get("keys", Variant.keys))
            groups.setdefault(place, []).append(point)
    found = []
    for some in groups.values():
        calm = [point for point in some if is_calm(point)] or some
        quantiles = {name: median(point[name] for point in calm) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")}
        found.append({**calm[-1], **quantiles})
    return found
