"""How much memory this process may use, as the machine or its container says, and the part that stores take by default.

Every processor may have a worker of its own, and none of them knows of the others: all together take an eighth, so each
takes that over the number of processors. An eighth leaves room for the broker's or the workers' other memory, and for the
page cache, from which RocksDB reads its files.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_ALL_PROCESSES = 8
"""What part of the memory the stores of all processes take."""
_UNLIMITED = 1 << 60
"""Limits from here on are none: version 1 of cgroups writes the highest number of pages."""


def share_bytes(memory_bytes: int, processors: int) -> int:
    """What the stores of one process take of so much memory."""
    return memory_bytes // _ALL_PROCESSES // max(processors, 1)


@lru_cache(maxsize=1)
def own_share_bytes() -> int:
    """What the stores of this process take where nothing else is said; 0 where the machine does not tell its memory."""
    known = [found for found in (_physical_bytes(), cgroup_limit_bytes(_OWN_CGROUPS, _CGROUPS)) if found is not None]
    return share_bytes(min(known, default=0), _processors())


def cgroup_limit_bytes(own: Path, mounted: Path) -> int | None:
    """The lowest memory limit of the process's control group and those above it; ``None`` where there is none.

    ``own``: the list of the groups it is in; ``mounted``: the folder of all. In a container the list may name folders that
    are not there, since the container's own group is the topmost that it sees: those above are looked at all the same.
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
    except OSError:  # no such limit, or none of ours to read: then there is none that is known
        return []


def _physical_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not a system that tells
        return None


def _processors() -> int:
    """Those that the process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
