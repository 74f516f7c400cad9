"""State backends in folders: what a worker opens for a task, and a batch engine for the stores that it makes.

RocksDB's is the one that workers take; ``Worker(…, open_backend=…)`` takes another. A snapshot is a set of table files,
whatever backend it was made from; ``penstock.state.rocksdb.scratch.read_tables`` gives their entries to a backend
that cannot take the files themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from penstock.state.stores.store import StateBackend, StoreSpec


class DurableBackend(StateBackend, Protocol):
    """A ``StateBackend`` in a folder. Closed and opened again, it has every commit; after a crash of the machine, each
    store is at a commit no older than its last flush."""

    def ingest(self, store: str, files: Sequence[Path], *, move: bool = False) -> None:
        """Take a snapshot's table files, ascending and disjoint, into an empty store; their entries and their position
        appear at once. ``move``: the files may be moved from where they are. Raises ``ValueError`` when the store is not
        empty, and ``StateCorruptedError``, leaving it empty, for files that cannot be read or have no position."""


OpenBackend = Callable[[Path, Sequence[StoreSpec]], DurableBackend]
"""Opens the stores of a task in a folder, which is made if it is missing. Raises ``StateCorruptedError`` for stores that
cannot be trusted, ``IncompatibleError`` for a folder with stores that are not declared, and ``RetriableError`` while
another process has it open."""
