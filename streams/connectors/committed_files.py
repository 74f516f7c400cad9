"""Files of rows that appear whole and once: the place of one partition in a folder, with its position.

Below the folder, ``.penstock/<partition>/`` holds one directory ``gen-N``, and in it the position. Two renames do the work:

- An opening renames ``gen-N`` to ``gen-N+1``. From then on an older writer, even one that was frozen, finds its directory
  gone and changes nothing.
- A commit renames a new position into ``gen-N``. It names the file of rows that belongs to it, which lies in the same place,
  complete and on the disk. Only then that file is moved to its name in the folder. If the process ends between the two,
  the next opening moves it.

So a file of rows is seen if, and only if, its position is kept. Both must be on one file system whose renames are atomic,
as those of local disks and of NFS are. Object stores have none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.state.errors import RetriableError, TaskMigratedError
from penstock.state.machine.atomic_files import environment_fault, sync_folder
from penstock.topologies.operator_api.external_sinks import SinkPartition

HIDDEN: Final = ".penstock"
_GENERATION: Final = re.compile(r"gen-(\d+)")
_PASSING: Final = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.ETIMEDOUT}


class _KeptPosition(msgspec.Struct):
    """``part``: the file of the last rows, in the place, and ``file``: its name in the folder."""

    of: list[str]
    next_offset: int
    part: str | None = None
    file: str | None = None


class FilePlace:
    """One writer's hold of the place of a partition. ``suffix``: of the files' names. Raises ``RetriableError`` if the
    disk may take it later, else ``EnvironmentFault``."""

    def __init__(self, folder: Path, partition: SinkPartition, start: int, suffix: str) -> None:
        self._folder, self._partition, self._suffix = folder, partition, suffix
        self._of = [str(part) for part in partition]
        digest = hashlib.sha256("\0".join(self._of).encode()).hexdigest()[:12]
        self._prefix = f"{partition.topic}-{partition.partition}-{digest}"
        self._home = folder / HIDDEN / digest
        with translated(f"write files to {folder}"):
            self._number, self._generation = self._taken(start)
            try:
                found = msgspec.json.decode((self._generation / "position").read_bytes(), type=_KeptPosition)
            except FileNotFoundError as exc:
                raise RetriableError(f"another writer of {partition} was opened at the same time") from exc
            self.position = found.next_offset
            self._show(found)
            self._tidy()

    def _taken(self, start: int) -> tuple[int, Path]:
        """The number and the directory of a new generation."""
        while True:
            found = _generation_of(self._home)
            if found is None:
                self._make(start)
                continue
            number, current = found
            new = self._home / f"gen-{number + 1}"
            with suppress(FileNotFoundError):  # another writer was opened meanwhile: look again
                current.rename(new)
                sync_folder(self._home)
                return number + 1, new

    def _make(self, start: int) -> None:
        """A place with its first generation. It is never without one, so that no other can take its name."""
        self._home.parent.mkdir(parents=True, exist_ok=True)
        made = self._home.parent / f"new-{uuid.uuid4().hex}"
        (made / "gen-0").mkdir(parents=True)
        _write(made / "gen-0" / "position", _KeptPosition(self._of, start))
        sync_folder(made / "gen-0")
        sync_folder(made)
        try:
            made.rename(self._home)
        except OSError as exc:
            shutil.rmtree(made, ignore_errors=True)
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync_folder(self._home.parent)

    def _tidy(self) -> None:
        """Remove what older writers have begun and can no longer commit, but nothing of a newer one."""
        older = [path for path in self._home.glob("*.part") if int(path.name.partition("-")[0]) < self._number]
        for path in [*older, *self._generation.glob("next-*")]:
            path.unlink(missing_ok=True)

    def new_part(self) -> Path:
        """The path of a file to write rows to."""
        return self._home / f"{self._number}-{uuid.uuid4().hex}.part"

    def commit(self, position: int, part: Path | None) -> None:
        """Keep the position, and with it show the rows of a file that is complete and on the disk. Raises
        ``TaskMigratedError`` if another writer was opened since."""
        file = None
        if part is not None:
            file = f"{self._prefix}-{self.position:019}-{position:019}{self._suffix}"
        kept = _KeptPosition(self._of, position, None if part is None else part.name, file)
        with translated(f"write files to {self._folder}"):
            try:
                self._keep(kept)
            except FileNotFoundError as exc:
                raise self.lost() from exc
            self.position = position
            self._show(kept)

    def lost(self) -> TaskMigratedError:
        """The error of a writer whose files are gone: a newer one has removed them."""
        return TaskMigratedError(f"another writer of {self._partition} was opened since, or {self._home} was removed")

    def _keep(self, kept: _KeptPosition) -> None:
        new = self._generation / f"next-{uuid.uuid4().hex}"
        inside = os.open(self._generation, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _write(new, kept)
            new.rename(self._generation / "position")  # by its path, which an opening takes away
            os.fsync(inside)
        finally:
            os.close(inside)

    def _show(self, kept: _KeptPosition) -> None:
        if kept.part is None or kept.file is None:
            return
        with suppress(FileNotFoundError):  # it was shown already, perhaps by another writer
            (self._home / kept.part).rename(self._folder / kept.file)
            sync_folder(self._folder)


def _write(path: Path, kept: _KeptPosition) -> None:
    with path.open("xb") as file:
        file.write(msgspec.json.encode(kept))
        file.flush()
        os.fsync(file.fileno())


def _generation_of(home: Path) -> tuple[int, Path] | None:
    """The current generation of a place; ``None`` if there is none."""
    if not home.is_dir():
        return None
    found = [(int(match[1]), path) for path in home.iterdir() if (match := _GENERATION.fullmatch(path.name))]
    return max(found) if found else None


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Errors of the file system as ours."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _PASSING:
            raise RetriableError(f"cannot {doing}: {exc}") from exc
        raise environment_fault(exc, doing) from exc
