"""Holds processes of a Spark job at a named place, while a test strikes. Of the standard library alone, because it is also
the ``sitecustomize`` of executors."""

from __future__ import annotations

import os
import sys
import time
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


def hold_snapshots(folder: str) -> None:
    """Hold this process, from now on, before it makes the files of a snapshot (``snapshot``)."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "tempfile.mkdtemp" and "penstock-snapshot-" in str(args[0]):
            held(folder, "snapshot")

    sys.addaudithook(hook)


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
