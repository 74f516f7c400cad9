"""Holds processes of a Spark job at a named place, while a test strikes. Of the standard library alone, because it is also
the ``sitecustomize`` of executors."""

from __future__ import annotations

import os
import sys
import time
from functools import partial, wraps
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


PASSED = {
    "changes": ("penstock.streams.batch.last_changes", "LastChanges", "put"),
    "rows": ("penstock.streams.spark.frames.store_columns", "StoreColumns", "batches"),
}
"""The methods behind which a process may be held: it has read a part of a changelog to compact it, or all of a store's
to give its rows out."""


def arm_failpoints(folder: str) -> None:
    """Have this process held at failpoints and behind the methods of ``PASSED``, if the Penstock that it uses has any."""
    if (found := sys.modules.get("penstock.state.failpoints")) is not None:
        found.arm(partial(held, folder))
    for place, (module, owner, method) in PASSED.items():
        if (found := sys.modules.get(module)) is not None:
            _hold_behind(getattr(found, owner), method, folder, place)


def _hold_behind(owner: type, name: str, folder: str, place: str) -> None:
    method = getattr(owner, name)
    if hasattr(method, "__wrapped__"):
        return

    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        answer = method(*args, **named)
        held(folder, place)
        return answer

    setattr(owner, name, call)


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
