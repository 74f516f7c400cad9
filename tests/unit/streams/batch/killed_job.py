"""A program that runs a job again and again, each time in a process that is killed before one of its changes of a folder.

It reads lines ``FOLDER NUMBER`` and answers each with the exit code of that process: -9 where it was killed, 0 where the job
makes fewer changes than that. The job is a pickled function of the folder.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")


def strike(folder: str, number: int) -> None:
    """Kill this process before it changes something below ``folder`` for the ``number``th time."""
    left = number

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        changes = event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES)
        if changes and isinstance(args[0], str | os.PathLike) and os.fspath(args[0]).startswith(folder):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main() -> None:
    """See the module."""
    job = pickle.loads(Path(sys.argv[1]).read_bytes())
    for line in sys.stdin:
        folder, number = line.rsplit(" ", 1)
        child = os.fork()
        if child == 0:
            strike(folder, int(number))
            job(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
