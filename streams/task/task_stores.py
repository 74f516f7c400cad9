"""A task's open stores. Pure: they are closed through the objects that opened them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from penstock.state.errors import StateCorruptedError
from penstock.state.stores.store import StateBackend


class Releasable(Protocol):
    """Something held for a task, such as the lock of its folder."""

    def release(self) -> None:
        """Let go."""


@dataclasses.dataclass(frozen=True)
class CommittedPositions:
    """The positions of a task's last commit: the offset of each input topic, the changelog offset of each store, and the
    epoch of the leader that had the changelog up to there, where it is known."""

    inputs: Mapping[str, int]
    changelogs: Mapping[str, int]
    epochs: Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TaskStores:
    """The stores, and the lock that makes the task their only user."""

    backend: StateBackend
    lock: Releasable | None = None

    def close(self) -> None:
        """Close the stores, then release the lock, even if they cannot be closed. Damage is not an error here:
        the next one to open the stores quarantines them."""
        try:
            with suppress(StateCorruptedError):
                self.backend.close()
        finally:
            if self.lock is not None:
                self.lock.release()
