"""Work inside an executor's process: where its temporary folders are, and that it leaves no memory taken."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from penstock.state.machine.freed_memory import allocate_from_one_arena, give_back

_GIVEN = (("LOCAL_DIRS", ","), ("SPARK_EXECUTOR_DIRS", os.pathsep), ("SPARK_LOCAL_DIRS", ","))
"""How YARN, a standalone cluster and Kubernetes name an executor's own folders, and what separates them."""


@contextmanager
def executor_work() -> Iterator[None]:
    """Within it a process does one piece of a job's work. Spark uses the process again for the next piece, which finds
    the memory of this one given back."""
    use_local_dirs()
    allocate_from_one_arena()
    try:
        yield
    finally:
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
