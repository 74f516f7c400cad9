"""The slots of a state folder: what tells apart the worker processes that share it."""

from __future__ import annotations

from pathlib import Path

from penstock.state.errors import PenstockError, RetriableError
from penstock.state.machine.state_directory import StateDirectory, TaskLock

SLOTS_MAX = 64
"""How many worker processes may share one state folder."""


def take_slot(directory: StateDirectory) -> tuple[TaskLock, int]:
    """The first free slot of this folder, and its number. Workers that share it get different transactional ids, and a
    restarted worker finds its former id again and so ends the transaction that it left open."""
    Path(directory.path).mkdir(parents=True, exist_ok=True)
    for number in range(SLOTS_MAX):
        try:
            return directory.lock(f"slot-{number}", timeout_s=0), number
        except RetriableError:
            continue
    raise PenstockError(f"{SLOTS_MAX} workers hold slots of {directory.path}; give this one a state_dir of its own")
