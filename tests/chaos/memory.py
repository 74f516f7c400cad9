"""The workers' resident memory while faults strike, and whether it grows."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.chaos.workers import WorkerProcess

EVERY_S = 5.0
WARM_PART = 0.25
"""Of a life: its caches fill, and its first restores are over."""
LEAST_SAMPLES = 20


class Growth(NamedTuple):
    """The memory of one life of a worker behind its warm part. ``mib_per_hour``: the slope of the line of least squares."""

    worker: str
    minutes: float
    first_mib: float
    last_mib: float
    most_mib: float
    mib_per_hour: float


class MemorySamples:
    """Samples the workers' memory in a ``with`` block."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self._workers = workers
        self._lives: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def longest(self) -> Growth | None:
        """That of the longest life; ``None`` if no life was long enough."""
        grown = [g for (worker, _), samples in self._lives.items() if (g := growth(worker, samples)) is not None]
        return max(grown, key=lambda g: g.minutes, default=None)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for worker in self._workers:
                pid = worker.pid
                if pid is not None:
                    with contextlib.suppress(OSError, IndexError):  # it has just ended
                        self._lives[worker.name, worker.lives].append((time.monotonic(), resident_mib(pid)))


def resident_mib(pid: int) -> float:
    """The resident memory of a process."""
    (line,) = [x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS:")] or [""]
    return int(line.split()[1]) / 1024


def growth(worker: str, samples: Sequence[tuple[float, float]]) -> Growth | None:
    """What the samples of one life, ``(seconds, MiB)``, say; ``None`` if they are too few."""
    if len(samples) < LEAST_SAMPLES:
        return None
    warm = samples[int(len(samples) * WARM_PART) :]
    times_s, mib = zip(*warm, strict=True)
    slope = statistics.linear_regression(times_s, mib).slope * 3_600
    minutes = (samples[-1][0] - samples[0][0]) / 60
    return Growth(worker, round(minutes, 1), mib[0], mib[-1], max(mib), round(slope, 2))
