"""The state folder of an application: its layout, its identity, the lock of each task, and quarantine.

::

    <state_dir>/<application.id>/
        identity.json                 whose state this is, and in which place
        <task>/
            lock                      names the owner's process id; held while a worker has the task
            rocksdb/                  the task's database
            rocksdb.quarantine-<n>/   a database that could not be trusted, with reason.txt

Several processes of one host share the folder; one process at a time owns a task. Only the user may read the folders
(0700).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import msgspec

from penstock.state.errors import (
    EnvironmentFault,
    IncompatibleError,
    RetriableError,
    SettingsError,
    StateCorruptedError,
)
from penstock.state.failpoints import failpoint
from penstock.state.machine.atomic_files import environment_fault, replace_file, sync_folder

IDENTITY_VERSION = 1
NAME_BYTES_MAX = 200
QUARANTINED_MAX = 3
IDENTITY_LOCK_S = 10.0
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_LOCK_RETRY_S = 0.05
_PLAIN = re.compile(r"[A-Za-z0-9._-]")


def safe_name(name: str) -> str:
    """Turn a name of any characters into a folder name: letters, digits, ``.``, ``_`` and ``-`` stay, every other
    byte becomes ``%XX``. Different names stay different. Raises ``SettingsError`` for an empty or too long one."""
    if name in (".", ".."):
        out = name.replace(".", "%2E")
    else:
        out = "".join(c if _PLAIN.fullmatch(c) else "".join(f"%{b:02X}" for b in c.encode()) for c in name)
    if not 0 < len(out) <= NAME_BYTES_MAX:
        raise SettingsError(
            f"{name[:50]!r} gives a folder name of {len(out)} bytes; choose a name of 1 to {NAME_BYTES_MAX}"
        )
    return out


class Identity(msgspec.Struct, frozen=True):
    """The owner of a folder's state. ``fingerprint``: the caller's digest of all that the stores' layout depends on.
    ``process_uuid`` is created once and kept, so that a restarted worker keeps its name. ``place``: a digest of the
    machine and the folder in which the identity was created. A copy of the folder is another place and gets its own
    ``process_uuid``, because two workers with one name would fence each other endlessly."""

    version: int
    application_id: str
    cluster_id: str
    fingerprint: str
    process_uuid: str
    place: str = ""


class StateDirectory:
    """The folder of one application. The constructor touches no file; every method may raise ``EnvironmentFault``."""

    def __init__(self, state_dir: Path | str, application_id: str) -> None:
        self.application_id = application_id
        self.path = Path(state_dir) / safe_name(application_id)

    def task_path(self, task: str) -> Path:
        """The folder of a task; ``task`` is the task id's text, such as ``0_3``."""
        return self.path / safe_name(task)

    def database_path(self, task: str) -> Path:
        """The folder of the task's database."""
        return self.task_path(task) / "rocksdb"

    def size_bytes(self, task: str) -> int:
        """The size of the files of the task's database; 0 if there is none, or it is being removed."""
        try:
            return sum(file.stat().st_size for file in self.database_path(task).iterdir())
        except OSError:
            return 0

    def tasks(self) -> list[str]:
        """The folder names of the tasks that have a database here (warm state), of whatever kind, sorted."""
        if not self.path.is_dir():
            return []
        return sorted(p.name for p in self.path.iterdir() if any((p / "rocksdb").glob("*")))

    def check(self, *, cluster_id: str, fingerprint: str) -> None:
        """Raise what ``claim`` would raise for an identity that is there; create nothing."""
        target = self.path / "identity.json"
        try:
            data = target.read_bytes() if target.exists() else None
        except OSError as exc:
            raise environment_fault(exc, f"read the identity in {target}") from exc
        if data is not None:
            self._compatible(target, data, cluster_id, fingerprint)

    def claim(self, *, cluster_id: str, fingerprint: str) -> Identity:
        """Read the folder's identity, or create it.

        Raises ``IncompatibleError`` for a folder of another application, cluster or topology, and
        ``StateCorruptedError`` for an identity that cannot be read.
        """
        target = self.path / "identity.json"
        try:
            _make_folder(self.path)
            place = _place(self.path)
            if not target.exists():
                made = Identity(
                    IDENTITY_VERSION, self.application_id, cluster_id, fingerprint, str(uuid.uuid4()), place
                )
                replace_file(target, _identity_bytes(made), only_if_absent=True)
            found = self._compatible(target, target.read_bytes(), cluster_id, fingerprint)
            failpoint("identity.kept")
            if found.place == place:
                return found
            with self.lock("identity", timeout_s=IDENTITY_LOCK_S):  # processes that start together share one
                found = self._compatible(target, target.read_bytes(), cluster_id, fingerprint)
                if found.place != place:
                    name = str(uuid.uuid4()) if found.place else found.process_uuid
                    found = msgspec.structs.replace(found, process_uuid=name, place=place)
                    replace_file(target, _identity_bytes(found))
        except OSError as exc:
            raise environment_fault(exc, f"keep the identity in {target}") from exc
        return found

    def _compatible(self, target: Path, data: bytes, cluster_id: str, fingerprint: str) -> Identity:
        remedy = (
            f"use another state_dir or application id, or remove {self.path}: "
            "what it holds is restored from snapshots and changelogs"
        )
        try:
            found = msgspec.json.decode(data, type=Identity)
        except (msgspec.MsgspecError, ValueError, RecursionError) as exc:  # text that is not UTF-8 is a ValueError
            raise StateCorruptedError(f"{target} cannot be read ({exc}); {remedy}") from exc
        if found.version != IDENTITY_VERSION:
            raise IncompatibleError(
                f"{target} has version {found.version}, and this release reads version {IDENTITY_VERSION}; {remedy}"
            )
        for word, theirs, ours in (
            ("application", found.application_id, self.application_id),
            ("cluster", found.cluster_id, cluster_id),
            ("topology", found.fingerprint, fingerprint),
        ):
            if theirs != ours:
                raise IncompatibleError(
                    f"{self.path} holds the state of {word} {theirs!r}, and this is {word} {ours!r}; {remedy}"
                )
        return found

    def lock(self, task: str, *, timeout_s: float) -> TaskLock:
        """Take the task's lock; wait at most ``timeout_s`` for its owner to release it.

        Raises ``RetriableError``, with the owner's process id, after that time.
        """
        path = self.task_path(task) / "lock"
        try:
            _make_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise environment_fault(exc, f"open the lock file {path}") from exc
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(min(_LOCK_RETRY_S, timeout_s))
                    continue
                owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(fd)
                raise RetriableError(
                    f"task {task} in {self.path} is held by process {owner}, for {timeout_s} s now; "
                    "stop that process, or give this worker a state_dir of its own"
                ) from None
            except OSError as exc:
                os.close(fd)
                raise environment_fault(exc, f"lock {path}") from exc
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError as exc:
            os.close(fd)
            raise environment_fault(exc, f"write to {path}") from exc
        return TaskLock(fd)

    def quarantine(self, task: str, reason: str) -> Path:
        """Quarantine the task's database: rename it and write the reason into it, so that a new one can be created. The
        caller holds the lock and has closed the database. Returns the new path. Removes the oldest beyond
        ``QUARANTINED_MAX``."""
        source = self.database_path(task)
        try:
            earlier = _quarantined(source)
            number = earlier[-1][0] + 1 if earlier else 1
            target = source.with_name(f"{source.name}.quarantine-{number}")
            # Rename before writing anything: the disk may be full.
            source.rename(target)
            sync_folder(source.parent)
            failpoint("restore.quarantined")
            for _, old in earlier[: max(len(earlier) + 1 - QUARANTINED_MAX, 0)]:
                shutil.rmtree(old)
            replace_file(target / "reason.txt", f"{reason}\n".encode())
        except OSError as exc:
            raise environment_fault(exc, f"quarantine {source}") from exc
        return target


class TaskLock:
    """A task's lock, held until ``release`` or the end of the process. Usable in a ``with`` statement."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        """Release the lock. Idempotent. The file stays: if it were removed, processes that wait on it and later ones
        would lock different files."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):  # the owner's id is for messages only
                os.ftruncate(fd, 0)
            os.close(fd)

    def __enter__(self) -> TaskLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _identity_bytes(identity: Identity) -> bytes:
    return msgspec.json.format(msgspec.json.encode(identity))


def _place(folder: Path) -> str:
    """A digest of this machine and this folder. A copy has another one, and so has the same volume on another
    machine."""
    machine = ""
    for path in MACHINE_ID_FILES:
        with suppress(OSError):
            machine = path.read_text().strip()
            break
    seen = f"{machine}\n{socket.gethostname()}\n{folder.stat().st_ino}"
    return hashlib.sha256(seen.encode()).hexdigest()[:32]


def _quarantined(source: Path) -> list[tuple[int, Path]]:
    """The databases that were quarantined from ``source``, oldest first."""
    prefix = f"{source.name}.quarantine-"
    found = [(p.name.removeprefix(prefix), p) for p in source.parent.glob(f"{prefix}*")]
    return sorted((int(number), path) for number, path in found if number.isdecimal())


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink():
        raise EnvironmentFault(f"{path} is a symbolic link; set state_dir to the folder that it points to")
