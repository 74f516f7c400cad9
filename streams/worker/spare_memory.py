"""Returns freed memory to the system when a worker comes to rest.

A turn allocates and frees megabytes. The C library keeps freed memory for the next turn, which is right while turns
follow each other: with a low limit for what it keeps, draining events cost half as much CPU again, for pages that
were returned and requested again. A worker that has caught up does not need that memory: 20 to 30 MB of 145.

Each thread that allocates while others do gets an arena of its own, up to eight per processor, and memory freed in
one arena is of no use to the others. A worker has two (``few_arenas``), before its clients start their threads: its peak was
then 2 to 6 % lower on four workloads, whose CPU was equal within 2 %, or lower.

Only for the GNU C library; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import lru_cache

REST_S = 0.5
"""A worker without a record for this long is at rest."""

LAST_S = 60.0
"""Other threads (the clients', the store's) free memory later, each at its own time. So memory is returned again after
twice as long a rest, and so on up to this one."""

WORTH_RECORDS = 20_000
"""After fewer records there is little to return: it takes some milliseconds, and the pages are soon needed again."""

ARENAS = 2
_M_ARENA_MAX = -8
"""A constant of ``malloc.h``."""


@lru_cache(maxsize=1)
def trim() -> Callable[[], None] | None:
    """A function that returns free memory to the system, or ``None`` if the C library cannot."""
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
    """Call ``turn`` after every turn; ``give_back`` is called when a worker that had work has come to rest, and again
    after rests of twice that time each. Pure except for that."""

    def __init__(self, give_back: Callable[[], None] | None) -> None:
        self._give_back = give_back
        self._records = 0
        self._busy_s = 0.0
        self._next_s = math.inf
        """The rest after which memory is returned next."""

    def turn(self, now_s: float, records: int, *, uncommitted: bool = False) -> None:
        """A turn with this many records ended now, on a clock that does not jump. If records are ``uncommitted``,
        wait: a commit leaves as much behind as turns do."""
        if records:
            self._records += records
            self._busy_s = now_s
            if self._records >= WORTH_RECORDS:
                self._next_s = REST_S
            return
        rest_s = now_s - self._busy_s
        if rest_s < self._next_s or uncommitted or self._give_back is None:
            return
        self._records = 0
        while self._next_s <= rest_s:
            self._next_s *= 2
        if self._next_s > LAST_S:
            self._next_s = math.inf
        self._give_back()
