"""Work inside an executor's process: where its temporary folders are, and that it takes no more memory than it uses.

What a task's stores free while they are written and merged lies between what they keep, so the allocator holds on to it:
without giving it back all the time, a process takes twice as much as it uses, and more the longer it runs.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from penstock.state.machine.freed_memory import allocate_from_one_arena, give_back

_GIVEN = (("LOCAL_DIRS", ","), ("SPARK_EXECUTOR_DIRS", os.pathsep), ("SPARK_LOCAL_DIRS", ","))
"""How YARN, a standalone cluster and Kubernetes name an executor's own folders, and what separates them."""
_EVERY_S = 0.5
"""Giving back takes some milliseconds."""


@contextmanager
def executor_work() -> Iterator[None]:
    """Within it a process does one piece of a job's work. Memory that is free is given back meanwhile, and in the end."""
    use_local_dirs()
    allocate_from_one_arena()
    ended = threading.Event()
    giving = threading.Thread(target=_give_back_until, args=(ended,), daemon=True)
    giving.start()
    try:
        yield
    finally:
        ended.set()
        giving.join()


def _give_back_until(ended: threading.Event) -> None:
    while not ended.wait(_EVERY_S):
        give_back()
    pa.default_memory_pool().release_unused()
    give_back()


def use_local_dirs(env: Mapping[str, str] = os.environ) -> None:
    """Make temporary folders of this process where Spark has its own. The cluster manager removes those with the
    application, so that stores of an executor that was killed do not stay on its machine."""
    for name, separator in _GIVEN:
        for folder in env.get(name, "").split(separator):
            if os.path.isdir(folder):
                tempfile.tempdir = folder
                return
