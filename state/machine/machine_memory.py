"""The memory limit of this process, from the machine or its container, and the stores' default share of it.

Each processor may run a worker, and workers do not know of each other. Together they take an eighth of the memory, so
each takes an eighth divided by the number of processors. The rest is for a broker, for the workers' other memory, and
for the page cache, from which RocksDB reads its files.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_ALL_PROCESSES = 8
"""The divisor: the stores of all processes together take this fraction of the memory."""
_UNLIMITED = 1 << 60
"""Higher limits mean "unlimited": version 1 of cgroups writes the highest number of pages."""


def share_bytes(memory_bytes: int, processors: int) -> int:
    """The share of this much memory that the stores of one process take."""
    return memory_bytes // _ALL_PROCESSES // max(processors, 1)


@lru_cache(maxsize=1)
def own_share_bytes() -> int:
    """The stores' share in this process if nothing else is set; 0 if the machine's memory cannot be determined."""
    known = [found for found in (_physical_bytes(), cgroup_limit_bytes(_OWN_CGROUPS, _CGROUPS)) if found is not None]
    return share_bytes(min(known, default=0), _processors())


def cgroup_limit_bytes(own: Path, mounted: Path) -> int | None:
    """The lowest memory limit of the process's control group and its ancestors; ``None`` without a limit.

    ``own``: the file that lists the process's groups; ``mounted``: the folder of all groups. In a container the list
    may name folders that do not exist, since the container sees no group above its own: their ancestors are still read.
    """
    limits = []
    for line in _lines(own):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        below = Path(path.lstrip("/"))
        for folder in (below, *below.parents):
            limits += [int(text) for text in _lines(top / folder / name)[:1] if text.isdigit()]
    found = min((limit for limit in limits if limit > 0), default=_UNLIMITED)
    return found if found < _UNLIMITED else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # no such limit, or not readable: treat it as unknown
        return []


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # this system does not report it
        return None


def _processors() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
