"""A thread for the length of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """Run ``work(stop)`` in a thread while the block runs. The end of the block, by an error too, sets ``stop`` and waits
    until ``work`` has returned."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), name=f"penstock-{name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
