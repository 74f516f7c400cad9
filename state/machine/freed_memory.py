"""Memory that a process has freed and its allocator keeps.

glibc's allocator returns little of what was freed to the machine, and has a heap ("arena") per thread, of which a database
has several: a process that opened and closed stores keeps hundreds of megabytes. Other allocators have no such functions,
and nothing happens there. See ``mallopt(3)`` and ``malloc_trim(3)``.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

_M_ARENA_MAX = -8


@lru_cache(maxsize=1)
def _allocator() -> ctypes.CDLL | None:
    found = ctypes.CDLL(None)
    return found if hasattr(found, "mallopt") and hasattr(found, "malloc_trim") else None


def allocate_from_one_arena() -> None:
    """Let threads that start from now on share the heap of the others."""
    if (allocator := _allocator()) is not None:
        allocator.mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return what is free to the machine."""
    if (allocator := _allocator()) is not None:
        allocator.malloc_trim(ctypes.c_size_t(0))
