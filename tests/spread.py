"""How pytest-xdist spreads the suite over processes: by file, what mostly waits first.

Tests of one file stay together, because they share clusters, data and running cases. Files that need a Spark session
stay together too: a session takes longer to start than most of what is asked of it. So do the files of tests/chaos/,
which share a cluster of three brokers. Each process starts a broker of its own, once, when a test of its share asks for
one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = ("tests/integration/spark/", "tests/integration/test_conform.py")
CHAOS = "tests/chaos/"
FIRST = (*SPARK, CHAOS, "tests/contract/", "tests/integration/")
"""What starts processes and waits for them: together at the beginning, so that it runs beside its like and not beside
what takes a whole core. Spark first, which takes longest and fetches its connector when it is not there."""
WORKERS_MAX = 4
"""Each may have a broker (0.5 GB) and workers beside it; one has Spark (1 GB)."""


def workers() -> int:
    """A process per core; two at least, since one of them often waits."""
    return max(2, min(os.cpu_count() or 1, WORKERS_MAX))


def group_of(nodeid: str) -> str:
    """The group that a test stays with."""
    file = nodeid.partition("::")[0]
    if file.startswith(CHAOS):
        return "chaos"
    return "spark" if file.startswith(SPARK) else file


def place_of(nodeid: str) -> int:
    """Where its group comes in the order."""
    return next((at for at, prefix in enumerate(FIRST) if nodeid.startswith(prefix)), len(FIRST))


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests as they are handed out."""
    return sorted(items, key=lambda item: place_of(item.nodeid))


class ByGroup(LoadScopeScheduling):
    """Hands out groups in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
