"""Storage of snapshot repositories: a local folder, or any URL that fsspec knows (object stores, HDFS…).

Both promise that a file written by ``write`` or ``put`` appears under its name completely or not at all.
"""

from __future__ import annotations

import errno
import importlib
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from penstock.state.errors import EnvironmentFault, PenstockError, RetriableError, SettingsError
from penstock.state.machine.atomic_files import environment_fault, replace_file, sync_file, sync_folder


class Storage(Protocol):
    """Files below one root. Paths are relative, with ``/``; folders are created with their first file.

    Raises ``EnvironmentFault`` if the disk refuses, and ``RetriableError`` if a service does not answer.
    """

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if the folder does not exist."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, ``None`` when there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Write or replace a small file."""

    def put(self, local: Path, path: str) -> None:
        """Copy a local file here."""

    def get(self, path: str, local: Path) -> bool:
        """Copy a file from here to a local path; False when there is none."""

    def size_bytes(self, path: str) -> int | None:
        """A file's size, ``None`` when there is none."""

    def delete(self, path: str) -> None:
        """Remove a file if it is there."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder and its contents, if it exists. Not atomic: readers may find a part of it."""


def open_storage(url: str | Path) -> Storage:
    """Open the storage at a path or URL. Raises ``SettingsError`` for a URL that no installed package can read."""
    text = str(url)
    if "://" not in text:
        return LocalStorage(Path(text))
    if text.startswith("file://"):
        return LocalStorage(Path(text.removeprefix("file://")))
    return FsspecStorage(text)


class LocalStorage:
    """A local or mounted folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, folder: str) -> list[str]:
        with self._faults("list", folder):
            try:
                return sorted(p.name for p in (self._root / folder).iterdir())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def read(self, path: str) -> bytes | None:
        with self._faults("read", path), suppress(FileNotFoundError):
            return (self._root / path).read_bytes()
        return None

    def write(self, path: str, data: bytes) -> None:
        with self._faults("write", path):
            replace_file(self._place(path), data)

    def put(self, local: Path, path: str) -> None:
        with self._faults("write", path):
            target = self._place(path)
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
            try:
                shutil.copyfile(local, temporary)
                sync_file(temporary)
                temporary.replace(target)
                sync_folder(target.parent)
            finally:
                temporary.unlink(missing_ok=True)

    def get(self, path: str, local: Path) -> bool:
        source = self._root / path
        with self._faults("copy", path):
            if not source.is_file():
                return False
            shutil.copyfile(source, local)
            return True

    def size_bytes(self, path: str) -> int | None:
        with self._faults("look at", path), suppress(FileNotFoundError):
            return (self._root / path).stat().st_size
        return None

    def delete(self, path: str) -> None:
        with self._faults("remove", path):
            (self._root / path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        with self._faults("remove", folder), suppress(FileNotFoundError):
            shutil.rmtree(self._root / folder)

    def _place(self, path: str) -> Path:
        target = self._root / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return target

    @contextmanager
    def _faults(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise environment_fault(exc, f"{doing} {self._root / path} of the snapshot repository") from exc


class FsspecStorage:
    """Any file system that fsspec has an implementation for."""

    def __init__(self, url: str) -> None:
        protocol = url.split("://", 1)[0]
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError as exc:
            raise EnvironmentFault(
                f"a snapshot repository at {protocol}:// needs the package fsspec: pip install fsspec"
            ) from exc
        try:
            fs, root = core.url_to_fs(url)
        except (ImportError, ValueError) as exc:
            # Not the URL itself: it may hold a password.
            raise SettingsError(
                f"no file system is known for a snapshot repository at {protocol}:// ({exc}); install the package that "
                "fsspec names, or use a local folder"
            ) from exc
        self._fs: Any = fs
        self._root = str(root).rstrip("/")

    def names(self, folder: str) -> list[str]:
        with self._faults("list", folder):
            try:
                # A listing may be cached by the file system, and others write here too.
                self._fs.invalidate_cache(self._at(folder))
                found = self._fs.ls(self._at(folder), detail=False)
            except FileNotFoundError:
                return []
            return sorted({str(p).rstrip("/").rsplit("/", 1)[-1] for p in found})

    def read(self, path: str) -> bytes | None:
        with self._faults("read", path), suppress(FileNotFoundError):
            return bytes(self._fs.cat_file(self._at(path)))
        return None

    def write(self, path: str, data: bytes) -> None:
        with self._faults("write", path):
            temporary = self._beside(path)
            self._fs.pipe_file(temporary, data)
            self._fs.mv(temporary, self._at(path))

    def put(self, local: Path, path: str) -> None:
        with self._faults("write", path):
            temporary = self._beside(path)
            self._fs.put_file(str(local), temporary)
            self._fs.mv(temporary, self._at(path))

    def get(self, path: str, local: Path) -> bool:
        with self._faults("copy", path), suppress(FileNotFoundError):
            self._fs.get_file(self._at(path), str(local))
            return True
        return False

    def size_bytes(self, path: str) -> int | None:
        with self._faults("look at", path), suppress(FileNotFoundError):
            return int(self._fs.size(self._at(path)))
        return None

    def delete(self, path: str) -> None:
        with self._faults("remove", path), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(path))

    def delete_folder(self, folder: str) -> None:
        with self._faults("remove", folder), suppress(FileNotFoundError):
            self._fs.invalidate_cache(self._at(folder))
            self._fs.rm(self._at(folder), recursive=True)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _beside(self, path: str) -> str:
        folder, _, name = self._at(path).rpartition("/")
        self._fs.makedirs(folder, exist_ok=True)
        return f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"

    @contextmanager
    def _faults(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except (PenstockError, FileNotFoundError):
            raise
        except OSError as exc:
            if exc.errno in (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS):
                raise environment_fault(exc, f"{doing} {path} of the snapshot repository") from exc
            raise self._unreachable(doing, path, exc) from exc
        except Exception as exc:
            raise self._unreachable(doing, path, exc) from exc

    def _unreachable(self, doing: str, path: str, exc: Exception) -> RetriableError:
        return RetriableError(
            f"cannot {doing} {path} of the snapshot repository ({type(exc).__name__}: {exc}); "
            "check that its service answers and lets this user in, and try again"
        )
