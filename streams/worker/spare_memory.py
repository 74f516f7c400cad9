"""Memory that a worker has freed goes back to the system when it comes to rest.

A turn makes and frees megabytes. The C library keeps what is freed for the next turn, which is right while turns follow
each other: with a low limit for what it keeps, draining events cost half again as much CPU, for pages that went and came. A
worker that has caught up needs none of it: 20 to 30 MB of 145.

Each thread that asks for memory while others do gets an arena of its own, up to eight for each processor, and what it freed
there helps no other: a worker whose memory is bounded has two (``few_arenas``), before its clients start their threads.

Only for the GNU C library; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

REST_S = 0.5
"""A worker without a record for this long is at rest."""

WORTH_RECORDS = 20_000
"""Fewer since the last time leave little behind: giving back takes some milliseconds, and the pages come again."""

ARENAS = 2
_M_ARENA_MAX = -8
"""Of ``malloc.h``."""


@lru_cache(maxsize=1)
def trim() -> Callable[[], None] | None:
    """Gives back what is free, or ``None`` where the C library cannot."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, TypeError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: found(0)


def few_arenas() -> bool:
    """Limit the C library to ``ARENAS`` arenas. Returns whether it accepted that."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS))
    except (OSError, TypeError, AttributeError):
        return False


class SpareMemory:
    """Told after every turn; ``give_back`` is called once when a worker that had something to do has come to rest. Pure but
    for it."""

    def __init__(self, give_back: Callable[[], None] | None) -> None:
        self._give_back = give_back
        self._records = 0
        self._busy_s = 0.0

    def turn(self, now_s: float, records: int, *, uncommitted: bool = False) -> None:
        """A turn with this many records ended now, on a clock that does not jump. If records are ``uncommitted``,
        wait: a commit leaves as much behind as turns do."""
        if records:
            self._records += records
            self._busy_s = now_s
            return
        rested = now_s - self._busy_s >= REST_S and not uncommitted
        if rested and self._records >= WORTH_RECORDS and self._give_back is not None:
            self._records = 0
            self._give_back()
