"""Holds processes of a Spark job at a named place, while a test strikes. Of the standard library alone, because it is also
the ``sitecustomize`` of executors."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

LIMIT_S = 300.0


def held(folder: str, place: str) -> None:
    """While the test holds ``place``, note that this process is there, and wait."""
    flag = os.path.join(folder, f"hold-{place}")
    if not os.path.exists(flag):
        return
    Path(folder, f"at-{place}-{os.getpid()}").touch()
    until_s = time.monotonic() + LIMIT_S
    while os.path.exists(flag) and time.monotonic() < until_s:
        time.sleep(0.02)


FOLDERS = {"penstock-snapshot-": "snapshot", "penstock-entries-": "entries"}
"""The places at which a process makes a folder of this name: for the files of a snapshot, to read those of another one."""


def hold_executors(folder: str) -> None:
    """Hold this process, from now on, where it makes a folder of ``FOLDERS``, before it puts one of a replay's files in
    place (``put``), and at failpoints once it has begun on a task."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "tempfile.mkdtemp" and "penstock-" in (made := os.path.basename(str(args[0]))):
            arm_failpoints(folder)
            for name, place in FOLDERS.items():
                if made.startswith(name):
                    held(folder, place)
        elif event == "shutil.copyfile" and ".parquet" in str(args[1]):
            held(folder, "put")

    sys.addaudithook(hook)


def arm_failpoints(folder: str) -> None:
    """Have this process held at failpoints, if the Penstock that it uses has any."""
    if (found := sys.modules.get("penstock.state.failpoints")) is not None:
        found.arm(partial(held, folder))


class Hold:
    """The test's side: processes that come to ``place`` stay there while this context lasts."""

    def __init__(self, folder: Path, place: str) -> None:
        self._folder, self._place = folder, place
        self._flag = folder / f"hold-{place}"

    def __enter__(self) -> Hold:
        for note in self._folder.glob(f"at-{self._place}-*"):
            note.unlink()
        self._flag.touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._flag.unlink(missing_ok=True)

    def wait(self, *besides: int) -> int:
        """Wait until a process is there that is none of ``besides``; returns its id."""
        until_s = time.monotonic() + LIMIT_S
        while True:
            there = {int(note.name.rsplit("-", 1)[1]) for note in self._folder.glob(f"at-{self._place}-*")}
            if found := sorted(there.difference(besides)):
                return found[0]
            assert time.monotonic() < until_s, f"no process came to {self._place}"
            time.sleep(0.05)
