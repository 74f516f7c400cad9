"""A backend of somebody else: it passes the public contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.ports import StoreSpec
from penstock.state.errors import StateCorruptedError
from penstock.testing import DurableBackendContract
from tests.sqlite_backend import SqliteBackend


class TestSqliteBackend(DurableBackendContract):
    def open(self, folder: Path, stores: Sequence[StoreSpec]) -> SqliteBackend:
        return SqliteBackend(folder, stores)


def test_a_file_that_is_no_database_is_damage(tmp_path: Path) -> None:
    (tmp_path / "stores.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StateCorruptedError, match="quarantine"):
        SqliteBackend(tmp_path, [])
