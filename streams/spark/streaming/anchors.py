"""One Spark partition for each partition of the application, run where it ran before.

Spark sends a task to the executor that has the cached data of its partition, if it is free within ``spark.locality.wait``.
So a number is cached for each partition. If its executor is gone, Spark runs the task elsewhere, and caches it there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyspark import SparkContext, StorageLevel

T = TypeVar("T")
W = TypeVar("W")
SPREAD_S = 0.2
"""A free executor would take all of these tasks if each took no time."""


class Anchors:
    """The cached numbers from 0 to ``count``."""

    def __init__(self, context: SparkContext, count: int) -> None:
        self._context = context
        self._numbers = context.parallelize(range(count), count).persist(StorageLevel.MEMORY_AND_DISK)
        self._numbers.foreach(lambda _: time.sleep(SPREAD_S))

    def run(self, work: Mapping[int, W], do: Callable[[W], T]) -> list[T]:
        """Call ``do`` in an executor with the work of each partition; those that come first are started first."""
        given = dict(work)
        return self._context.runJob(self._numbers, lambda numbers: [do(given[n]) for n in numbers], list(given))

    def close(self) -> None:
        """Release the cache."""
        self._numbers.unpersist()
