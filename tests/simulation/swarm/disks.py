"""Disks whose blocks go bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TaskId
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from tests.simulation.swarm.snapshots import read_table
from tests.simulation.world import Disk


class BadBlocks(MemoryBackend):
    """Stores that break at the ``left``-th touch from when that was set."""

    left = 0

    def _touched(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                self.damaged = "the swarm damaged a block"
        if self.damaged is not None:
            raise StateCorruptedError(self.damaged)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        self._touched()
        return super().get_many(store, keys)

    def range(
        self, store: str, low: bytes | None, high: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._touched()
        return super().range(store, low, high, reverse=reverse)

    def commit(self, writes: Sequence[StoreWrites]) -> None:
        self._touched()
        super().commit(writes)

    def flush(self, stores: Sequence[str] | None = None) -> None:
        self._touched()
        super().flush(stores)

    def contents(self, store: str) -> dict[bytes, bytes]:
        """As a test sees it, without touching the disk."""
        return dict(super().range(store, None, None))

    def ingest(self, store: str, files: Sequence[Path], *, move: bool = False) -> None:
        """See ``DurableBackend``."""
        self._touched()
        if not self.is_empty(store):
            raise ValueError(f"store {store} is not empty")
        for position, entries in map(read_table, files):
            super().commit([StoreWrites(store, entries, position)])


class SwarmDisk(Disk):
    """Of one host."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: dict[TaskId, object] = {}
        """Of the process that runs there."""

    def make(self, stores: Sequence[StoreSpec]) -> BadBlocks:
        """Empty stores."""
        return BadBlocks(stores, keep_flushed=True)

    def damage(self, nth: int) -> None:
        """A block of one task's stores goes bad; the nth touch meets it."""
        sound = [b for _, b in sorted(self.backends.items()) if b.damaged is None]
        if sound:
            backend = sound[nth % len(sound)]
            assert isinstance(backend, BadBlocks)
            backend.left = nth

    def heal(self) -> None:
        """No block goes bad any more."""
        for backend in self.backends.values():
            assert isinstance(backend, BadBlocks)
            backend.left = 0
