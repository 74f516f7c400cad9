"""Find the heavy keys of a task's records.

Every ``SAMPLED``-th record goes into at most ``COUNTERS`` counters (Misra and Gries, with batches merged as by Agarwal
and others). A key is undercounted by at most a ``COUNTERS``-th of the sample, so every key with a larger share is
found. The weight of old records decays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from penstock.streams.task.feed import Run

SAMPLED: Final = 128
COUNTERS: Final = 64
HEAVY_SHARE: Final = 0.1
_REMEMBERED: Final = 1 << 12
"""After this many samples, older ones count half."""


class HeavyKey(NamedTuple):
    """A key and its share of a topic's records, as its task sees them; a lower bound."""

    topic: str
    key: bytes
    share: float


class HeavyKeys:
    """The counters of one task, by topic."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[bytes]] = {}
        self._samples: Counter[str] = Counter()
        self._skip = 0

    def see(self, runs: Iterable[Run]) -> None:
        """Count records that were taken."""
        for run in runs:
            count = run.stop - run.start
            if count <= self._skip:
                self._skip -= count
                continue
            places = range(run.start + self._skip, run.stop, SAMPLED)
            self._skip = places[-1] + SAMPLED - run.stop
            self._add(run.chunk.topic, _keys(run, places), len(places))

    def _add(self, topic: str, keys: list[bytes | None], samples: int) -> None:
        counts = self._counts.setdefault(topic, Counter())
        counts.update(k for k in keys if k is not None)
        self._samples[topic] += samples
        least = 0
        if len(counts) > COUNTERS:
            least = sorted(counts.values())[-COUNTERS - 1]
        halved = self._samples[topic] > _REMEMBERED
        if least or halved:
            by = 2 if halved else 1
            self._counts[topic] = Counter({k: (n - least) // by for k, n in counts.items() if (n - least) // by > 0})
            self._samples[topic] //= by

    def found(self) -> list[HeavyKey]:
        """Return the heavy keys, heaviest first. If another thread adds meanwhile, its last batch may be missing."""
        heavy = [
            HeavyKey(topic, key, count / samples)
            for topic, counts in list(self._counts.items())
            if (samples := self._samples[topic]) >= COUNTERS
            for key, count in list(counts.items())
            if count >= HEAVY_SHARE * samples
        ]
        return sorted(heavy, key=lambda h: (-h.share, h.topic, h.key))


def _keys(run: Run, places: range) -> list[bytes | None]:
    column = run.chunk.key_column
    if column is not None:
        return column.take(np.fromiter(places, np.intp, len(places))).to_list()
    return run.chunk.keys[places.start : places.stop : places.step]
