"""Atomic file writes, and the translation of operating system errors."""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from contextlib import suppress
from pathlib import Path

from penstock.state.errors import EnvironmentFault

_CHUNK_BYTES = 1 << 20
_REMEDIES = {
    errno.ENOSPC: "free space on the disk (see: df -h)",
    errno.EDQUOT: "raise the disk quota",
    errno.EACCES: "give this user the folder (see: ls -la)",
    errno.EPERM: "give this user the folder (see: ls -la)",
    errno.EROFS: "mount the file system writable",
    errno.EMFILE: "raise the limit of open files (see: ulimit -n)",
    errno.ELOOP: "replace the symbolic link by what it leads to",
}


def environment_fault(exc: OSError, doing: str) -> EnvironmentFault:
    """Translate an operating system error met while ``doing`` something; ``remedy`` says how to fix it."""
    remedy = _REMEDIES.get(exc.errno or 0, "check the disk and the path")
    return EnvironmentFault(f"cannot {doing}: {exc}; {remedy}, then start again")


def sync_folder(path: Path) -> None:
    """Make renames within a folder survive a crash of the machine."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make a file's bytes survive a crash of the machine."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(target: Path, data: bytes, *, only_if_absent: bool = False) -> bool:
    """Write a file by fsync and rename: readers see the old bytes or the new ones, also after a crash.

    With ``only_if_absent`` an existing file stays, even one that another process creates meanwhile, and ``False`` is
    returned. Raises ``OSError``.
    """
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if only_if_absent:
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
        else:
            temporary.replace(target)
        sync_folder(target.parent)
        return True
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
