"""One measured ceiling, and the clockwork that measures it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Ceiling(NamedTuple):
    """``per_s`` of ``unit`` (records, keys, MB …); ``cpu_us``: microseconds of this process's CPU per unit, threads
    included; ``bytes``: of a record, where the figure depends on it. ``note`` says why there is no figure, or what else
    was seen."""

    group: str
    name: str
    unit: str
    per_s: float
    cpu_us: float
    bytes: float = 0.0
    note: str = ""


def measure(group: str, name: str, unit: str, work: Callable[[], float], **more: Any) -> Ceiling:
    """Run ``work`` once, which says how many units it did."""
    cpu, wall = time.process_time(), time.perf_counter()
    done = work()
    seconds, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    return Ceiling(group, name, unit, done / seconds, cpu_s / done * 1e6, **more)


def best(times: int, run: Callable[[], Ceiling]) -> Ceiling:
    """The fastest of some runs: what disturbs only slows, and a ceiling is what can be reached."""
    return max((run() for _ in range(times)), key=lambda found: found.per_s)
