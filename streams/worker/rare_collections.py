"""Lets Python's garbage collector run less often while workers of this process run.

A poll creates thousands of messages, which are freed without the collector, and scanning them again and again costs a
fifth of the CPU. The thresholds belong to the process, not to a worker: several workers may run in one process and end
in any order. So the first that starts keeps what the process had, the last that ends gives it back, and in between the
lowest threshold that a running worker asks for holds.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

OLDER_ROUNDS = 100
"""After this many scans of young objects, instead of 10, the older ones are scanned: most are cached state, which
stays."""

_lock = threading.Lock()
_asked: Counter[int] = Counter()
_before: tuple[int, int, int] = (0, 0, 0)
"""The thresholds that the process had before the first worker. Valid while ``_asked`` has entries."""


@contextmanager
def rare_collections(young_objects: int) -> Iterator[None]:
    """Within, the collector runs after ``young_objects`` new objects, or later if the process had a higher threshold.
    A process that has switched the collector off keeps it off."""
    global _before
    with _lock:
        if not _asked:
            _before = gc.get_threshold()
        _asked[young_objects] += 1
        _apply()
    try:
        yield
    finally:
        with _lock:
            _asked[young_objects] -= 1
            if not _asked[young_objects]:
                del _asked[young_objects]
            _apply()


def _apply() -> None:
    young, older, oldest = _before
    if not young:
        return
    if _asked:
        gc.set_threshold(max(young, min(_asked)), max(older, OLDER_ROUNDS), oldest)
    else:
        gc.set_threshold(young, older, oldest)
