"""Translate RocksDB's errors, which are all bare ``Exception`` with a text, to Penstock's exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.state.errors import EnvironmentFault, PenstockError, RetriableError, StateCorruptedError


@contextmanager
def translated(
    path: Path, doing: str, on_damage: Callable[[StateCorruptedError], None] | None = None
) -> Iterator[None]:
    """Translate what RocksDB or the operating system raises while ``doing`` something in ``path``. Calls ``on_damage``
    before raising for damage."""
    try:
        yield
    except Exception as exc:
        if type(exc) is not Exception and not isinstance(exc, OSError):
            raise  # Python's own errors, such as MemoryError, say nothing about the files
        error = translate(exc, path, doing)
        if on_damage is not None and isinstance(error, StateCorruptedError):
            on_damage(error)
        raise error from exc


def translate(exc: Exception, path: Path, doing: str) -> PenstockError:
    """The exception to raise for ``exc``.

    Anything not known to be the machine's fault counts as damage: a rebuild from the changelog is always safe, but
    continuing with files that RocksDB complains about is not.
    """
    text = str(exc)
    seen = f"cannot {doing} in {path}: {text}"
    if "/LOCK:" in text or "lock hold by current process" in text:
        holder = "this process, or an iterator that it still reads," if "current process" in text else "another process"
        return RetriableError(
            f"{seen}; {holder} holds the database{_owner_hint(path)}: close it there and try again, "
            "or give this worker a state folder of its own"
        )
    for cause, remedy in _MACHINE_FAULTS.items():
        if cause in text:
            return EnvironmentFault(f"{seen}; {remedy}, then start again: nothing that was committed is lost")
    return StateCorruptedError(f"{seen}; quarantine the files and restore the task")


_MACHINE_FAULTS = {
    "No space left on device": "free space on the disk (see: df -h) or move state_dir to a larger one",
    "Disk quota exceeded": "raise the disk quota or move state_dir elsewhere",
    "Too many open files": "raise the limit of open files (see: ulimit -n)",
    "Permission denied": "give this user the folder (see: ls -la)",
    "Operation not permitted": "give this user the folder (see: ls -la)",
    "Read-only file system": "mount the file system writable or move state_dir elsewhere",
    "Not a directory": "move the file that stands in the folder's place",
    "Cannot allocate memory": "free memory or lower block_cache_bytes and write_buffer_bytes",
}


def _owner_hint(path: Path) -> str:
    """The process named in the task's lock file, next to the database; empty if none is named."""
    try:
        pid = (path.parent / "lock").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (the task's lock file names process {pid})" if pid.isdigit() else ""
