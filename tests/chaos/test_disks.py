"""Disks that are full, that fail to sync, and state folders that come from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.faults.workers import CommandWorker, StruckApplication
from tests.integration.worker.application import until

pytestmark = pytest.mark.long
LINES = 150
AT_ONCE = 3
FSYNC_FAILS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int fails(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0 || access("broken", F_OK)) return 0;
  path[n] = 0;
  return strstr(path, "rocksdb") && strstr(path, ".sst");
}
#define WRAP(name) int name(int fd) { \\
  static int (*real)(int); if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, #name); \\
  if (fails(fd)) { errno = EIO; return -1; } return real(fd); }
WRAP(fsync)
WRAP(fdatasync)
"""
"""Syncing a table file of a store fails while there is a file ``broken`` in the folder that the process began in."""


def fill(worker: CommandWorker, mount: Path) -> None:
    """Leave no room on the disk that only this process sees."""
    target = Path(f"/proc/{worker.pid}/root") / mount.relative_to("/") / "filler"
    with target.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"0" * 4_096)


def full_disk(kafka: str, folder: Path) -> None:
    """S2: the worker ends with an error that says what to do; with room again it goes on."""
    app = StruckApplication(kafka, "full", folder)
    app.add_lines(LINES)
    mount = folder / "state"
    mount.mkdir()
    script = f'mount -t tmpfs -o size=64m t "{mount}" && exec "$@"'
    small = app.worker("state", prefix=["unshare", "-rm", "sh", "-c", script, "sh"])
    try:
        app.wait()
        fill(small, mount)
        app.add_lines(LINES)
        assert small.wait() == 1, small.said
        assert "No space left on device" in small.said, small.said
        assert "free" in small.said, small.said
        assert "Traceback" not in small.said, small.said
    finally:
        small.kill()
    roomy = app.worker("state")
    try:
        app.wait()
        roomy.stop()
    finally:
        roomy.kill()
    app.assert_exact()


def full_disk_at_the_start(kafka: str, folder: Path) -> None:
    """S2: not even the folder's identity can be written."""
    app = StruckApplication(kafka, "full-start", folder)
    mount = folder / "state"
    mount.mkdir()
    script = f'mount -t tmpfs -o size=64k t "{mount}" && dd if=/dev/zero of="{mount}/all" bs=4k 2>/dev/null; exec "$@"'
    worker = app.worker("state", prefix=["unshare", "-rm", "sh", "-c", script, "sh"])
    try:
        assert worker.wait() == 1, worker.said
        assert "No space left on device" in worker.said, worker.said
        assert "Traceback" not in worker.said, worker.said
    finally:
        worker.kill()


def sync_that_fails(kafka: str, folder: Path) -> None:
    """S3: what could not be made durable is not taken for it: the store is put aside and restored."""
    app = StruckApplication(kafka, "fsync", folder)
    source, library = folder / "sync.c", folder / "sync.so"
    source.write_text(FSYNC_FAILS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    app.add_lines(LINES)
    begun = ["env", f"--chdir={folder}", f"LD_PRELOAD={library}"]
    first = before = app.worker("state", prefix=begun)
    try:
        app.wait()
        until("its stores are on the disk", lambda: "flush.done" in first.passed)
        (folder / "broken").touch()
        app.add_lines(LINES)
        until(
            "it is met", lambda: first.reported("StoreQuarantined") or first.reported("TaskReopened") or not first.alive
        )
        (folder / "broken").unlink()
        if not first.alive:  # it met the fault again while it restored
            assert first.wait() == 1, first.said
            first = app.worker("state", prefix=begun)
        app.add_lines(LINES)
        app.wait()
        first.stop()
    finally:
        first.kill()
    assert "Input/output error" in before.said
    assert "Traceback" not in before.said + first.said
    app.assert_exact()


@contextmanager
def mounted(*arguments: str) -> Iterator[None]:
    """A file system, as ``mount`` is told; it is taken off again."""
    subprocess.run(["mount", *arguments], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", arguments[-1]], check=True)


@contextmanager
def weak_device(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A file as a device, and a file to fill: when it is full, the device answers with I/O errors. A file system on memory
    with too little room has a file with another file system, which has the device: the first refuses the second's blocks
    for lack of room, and the second cannot write the device's."""
    memory, between = folder / "memory", folder / "between"
    for path in (memory, between):
        path.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=96m", "t", str(memory)):
        made(memory / "disk", "1G")
        with mounted("-o", "loop", str(memory / "disk"), str(between)):
            made(between / "device", "512M")
            yield between / "device", memory / "filler"


def made(path: Path, size: str) -> None:
    """An empty file system in a file of this size, of which next to nothing takes room yet."""
    subprocess.run(["truncate", "-s", size, str(path)], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(path)], check=True)


def disk_that_fails(kafka: str, folder: Path) -> None:
    """S3: the device refuses blocks: writes seem to work, syncs fail, then the kernel lets nothing be written. The worker
    ends and says so. On another disk it goes on: nothing that was committed hung on the one that failed."""
    app = StruckApplication(kafka, "device", folder)
    mount = folder / "state"
    mount.mkdir()
    with weak_device(folder) as (device, filler), mounted("-o", "loop", str(device), str(mount)):
        worker = app.worker("state")
        try:
            app.add_lines(LINES)
            app.wait()
            until("its stores are on the disk", lambda: "flush.done" in worker.passed)
            with filler.open("wb", buffering=0) as out, suppress(OSError):
                while True:
                    out.write(b"0" * 65_536)
            app.add_lines(LINES)
            until("it ends", lambda: not worker.alive)
        finally:
            worker.kill()
    assert worker.wait() == 1, worker.said
    assert "Input/output error" in worker.said or "Read-only file system" in worker.said, worker.said
    assert str(mount) in worker.said, worker.said
    assert "Traceback" not in worker.said, worker.said
    again = app.worker("state")
    try:
        app.add_lines(LINES)
        app.wait()
        again.stop()
    finally:
        again.kill()
    assert "Traceback" not in again.said, again.said
    app.assert_exact()


def restored_backup(kafka: str, folder: Path) -> None:
    """S9: an older copy of the state folder takes the newer one's place: only what it lacks is read."""
    app = StruckApplication(kafka, "backup", folder)
    app.add_lines(LINES)
    first = app.worker("state")
    try:
        app.wait()
        first.stop()
        shutil.copytree(folder / "state", folder / "backup")
        app.add_lines(LINES)
        second = app.worker("state")
        app.wait()
        second.stop()
        shutil.rmtree(folder / "state")
        shutil.move(folder / "backup", folder / "state")
        app.add_lines(LINES)
        third = app.worker("state")
        app.wait()
        third.stop()
    finally:
        first.kill()
    assert third.restores
    assert all(offset > 0 for _, offset, _ in third.restores), third.restores
    assert not third.reported("StoreQuarantined")
    app.assert_exact()


CASES: dict[str, Callable[[str, Path], None]] = {
    "S2 full disk": full_disk,
    "S2 full disk at the start": full_disk_at_the_start,
    "S3 sync that fails": sync_that_fails,
    "S3 disk that fails": disk_that_fails,
    "S9 restored backup": restored_backup,
}
NEEDED: dict[Callable[[str, Path], None], str] = {
    full_disk: "unshare",
    full_disk_at_the_start: "unshare",
    sync_that_fails: "cc",
    disk_that_fails: "mkfs.ext4",
}


def possible(case: Callable[[str, Path], None]) -> bool:
    """Whether this machine has what the case needs."""
    if NEEDED.get(case) == "unshare":
        tried = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "t", "/mnt"], capture_output=True, check=False
        )
        return tried.returncode == 0
    if case is disk_that_fails and (os.geteuid() != 0 or not Path("/dev/loop-control").exists()):
        return False
    return case not in NEEDED or shutil.which(NEEDED[case]) is not None


@pytest.fixture(scope="module")
def running(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """Every case, a few at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(case, bootstrap_servers, tmp_path_factory.mktemp("disks"))
            for name, case in CASES.items()
            if possible(case)
        }


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_taken_for_durable_that_is_not(case: str, running: dict[str, Future[None]]) -> None:
    if case not in running:
        pytest.skip("this machine has no user namespaces, no C compiler, or no loop devices for its root")
    running[case].result()
