"""The slots of a state folder: what tells apart the worker processes that share it."""

from __future__ import annotations

from pathlib import Path

from penstock.state.errors import PenstockError, RetriableError
from penstock.state.machine.state_directory import StateDirectory, TaskLock

SLOTS_MAX = 64
"""How many worker processes may share one state folder."""


def take_slot(directory: StateDirectory, preferred: int = 0) -> tuple[TaskLock, int]:
    """The preferred slot of this folder, or else the first free one, and its number. Workers that share the folder get
    different transactional ids, and a restarted worker finds its former id again and so ends the transaction that it
    left open."""
    Path(directory.path).mkdir(parents=True, exist_ok=True)
    for number in (preferred, *(n for n in range(SLOTS_MAX) if n != preferred)):
        try:
            return directory.lock(f"slot-{number}", timeout_s=0), number
        except RetriableError:
            continue
    raise PenstockError(f"{SLOTS_MAX} workers hold slots of {directory.path}; give this one a state_dir of its own")
