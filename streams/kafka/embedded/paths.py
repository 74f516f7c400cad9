"""The cache of Penstock: jars and the state files of embedded clusters."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from penstock.state.errors import EnvironmentFault


def cache_dir() -> Path:
    """The cache folder: ``PENSTOCK_CACHE`` when set, else the platform's cache folder of the user."""
    override = os.environ.get("PENSTOCK_CACHE")
    return Path(override).expanduser().absolute() if override else platformdirs.user_cache_path("penstock")


def ensure_dir(path: Path) -> Path:
    """Create ``path`` (mode 0700) unless it exists. Raises ``EnvironmentFault`` if it cannot be created or written
    to."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise EnvironmentFault(
            f"cannot make the folder {path}: {exc.strerror or exc}. Make it writable, or name another one "
            "with PENSTOCK_CACHE (jars and cluster files) or --data (broker data)"
        ) from exc
    if not os.access(path, os.W_OK | os.X_OK):
        raise EnvironmentFault(
            f"cannot write to {path}. Run: chmod u+rwx '{path}', or name another folder with PENSTOCK_CACHE "
            "(jars and cluster files) or --data (broker data)"
        )
    return path


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``path`` among processes, waiting for it. The file stays: if it were removed,
    a third process could lock a file that no other process sees."""
    ensure_dir(path.parent)
    try:
        handle = path.open("a")
    except OSError as exc:
        raise EnvironmentFault(f"cannot open the lock file {path}: {exc.strerror or exc}. Make it writable") from exc
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
