"""The stores that an executor's machine keeps between the pieces of a stream.

They are in the state folder of a worker, in its form. So a piece that comes back to the same machine restores
nothing, one that moved restores the part of the changelog that its folder lacks, and a worker of this machine goes on
with the same files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory

from penstock.state.errors import RetriableError
from penstock.state.log import TaskId
from penstock.state.machine.state_directory import StateDirectory

LOCK_WAIT_S = 5.0
"""An attempt that was fenced needs a moment to end."""


@contextmanager
def kept_folder(state_dir: str, application_id: str, tasks: Iterable[TaskId]) -> Iterator[str]:
    """The folder for a piece of these tasks, all of one partition: ``state_dir``. If another process holds one of the tasks
    there, such as an attempt that was frozen and wakes some day, an empty folder that is removed: the stores are restored
    into it."""
    directory = StateDirectory(state_dir, application_id)
    ids = sorted(tasks)
    with ExitStack() as held:
        folder = state_dir
        try:
            # Attempts take this lock first, so no other one can take the tasks' own locks after they were looked at.
            held.enter_context(directory.lock(f"piece-{ids[0].partition}", timeout_s=LOCK_WAIT_S))
            for task in ids:
                directory.lock(str(task), timeout_s=LOCK_WAIT_S).release()
        except RetriableError:
            folder = held.enter_context(TemporaryDirectory(prefix="penstock-stream-"))
        yield folder
