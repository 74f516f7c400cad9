"""The contract of a state backend, held against ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend, StoreSpec
from penstock.testing import DurableBackendContract, StateBackendContract


class TestMemoryBackend(StateBackendContract):
    def open(self, folder: Path, stores: Sequence[StoreSpec]) -> StateBackend:
        return MemoryBackend(stores)


class TestRocksDBBackend(DurableBackendContract):
    def open(self, folder: Path, stores: Sequence[StoreSpec]) -> RocksDBBackend:
        return RocksDBBackend(folder, stores)
