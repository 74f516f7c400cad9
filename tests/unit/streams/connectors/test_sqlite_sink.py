"""Rows into SQLite: the contract of exactly-once sinks, and what is SQLite's own."""

from __future__ import annotations

import os
import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from penstock.connectors import Sink, SinkPartition, SinkRows, SqliteSink
from penstock.state.errors import EnvironmentFault, ProcessingError, RetriableError, SettingsError
from penstock.testing import ExactlyOnceSinkContract

OF = SinkPartition("app", "s", "t", "id", 0)


def query(path: Any, sql: str) -> list[Any]:
    db = sqlite3.connect(path)
    try:
        return list(db.execute(sql))
    finally:
        db.close()


def made(path: Any, sql: str) -> None:
    if os.path.exists(path):
        return  # another process may hold its lock
    with sqlite3.connect(path) as db:
        db.executescript(sql)
    db.close()


class TestUpserts(ExactlyOnceSinkContract):
    def sink(self) -> Sink:
        made(self.folder / "db", "CREATE TABLE rows (k TEXT PRIMARY KEY, n INTEGER)")
        return SqliteSink("rows", path=str(self.folder / "db"), key="k", timeout="300ms")

    def contents(self) -> dict[str, list[int]]:
        return {k: [n] for k, n in query(self.folder / "db", "SELECT k, n FROM rows")}


class TestAppends(ExactlyOnceSinkContract):
    folds = False

    def sink(self) -> Sink:
        made(self.folder / "db", "PRAGMA journal_mode = WAL; CREATE TABLE rows (k TEXT, n INTEGER)")
        return SqliteSink("rows", path=str(self.folder / "db"), key="k", mode="append", timeout="300ms")

    def contents(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for k, n in query(self.folder / "db", "SELECT k, n FROM rows ORDER BY rowid"):
            out.setdefault(k, []).append(n)
        return out


@pytest.fixture
def path(tmp_path: Any) -> str:
    file = str(tmp_path / "db")
    made(file, 'CREATE TABLE "my rows" (id TEXT PRIMARY KEY, "a ""b" INTEGER CHECK ("a ""b" < 100), tags TEXT)')
    return file


def rows(sink: Sink, *records: tuple[Any, Any]) -> SinkRows:
    return SinkRows([sink.row(k, v, 0, ()) for k, v in records], list(range(len(records))))


def test_deletes_partial_rows_and_names_in_quotes(path: str) -> None:
    sink = SqliteSink("my rows", path=path, key="id")
    writer = sink.open(OF, 0)
    given = [("x", {'a "b': 1, "tags": ["p", {"q": 1}]}), ("y", {'a "b': 2}), ("x", {'a "b': 3}), ("z", {"tags": "t"})]
    writer.write(rows(sink, *given, ("y", None), ("none", None), ("z", {})), 7)
    writer.close()
    assert query(path, 'SELECT * FROM "my rows" ORDER BY id') == [("x", 3, '["p",{"q":1}]'), ("z", None, "t")]


def test_a_row_that_the_table_refuses_is_named_and_nothing_is_written(path: str) -> None:
    sink = SqliteSink("my rows", path=path, key="id")
    writer = sink.open(OF, 0)
    for wrong, why in (({'a "b': 100}, "CHECK"), ({"nope": 1}, "nope"), ({'a "b': 1 << 64}, "too large")):
        with pytest.raises(ProcessingError, match=rf"refuses the row of offset 1 \(.*{why}"):
            writer.write(rows(sink, ("x", {'a "b': 1}), ("y", wrong), ("z", {})), 3)
        assert query(path, 'SELECT * FROM "my rows"') == []
    writer.write(rows(sink, ("x", {'a "b': 1})), 3)
    writer.close()
    assert query(path, "SELECT sink, topic, partition, next_offset FROM penstock_positions") == [("s", "t", 0, 3)]


def test_a_lock_of_another_program_is_waited_for(path: str) -> None:
    sink = SqliteSink("my rows", path=path, key="id", timeout=timedelta(milliseconds=50))
    writer = sink.open(OF, 0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RetriableError, match="locked"):
        writer.write(rows(sink, ("x", {})), 1)
    with pytest.raises(RetriableError, match="locked"):
        sink.open(OF, 0)
    other.execute("COMMIT")
    other.close()
    writer.write(rows(sink, ("x", {})), 1)
    writer.close()


def test_settings_and_tables_that_cannot_work(path: str, tmp_path: Any) -> None:
    with pytest.raises(SettingsError, match="an upsert needs key="):
        SqliteSink("rows", path=path)
    with pytest.raises(SettingsError, match="mode='replace'; choose one of upsert, append"):
        SqliteSink("rows", path=path, key="id", mode="replace")  # type: ignore[arg-type]  # that is refused
    with pytest.raises(SettingsError, match="path=':memory:'"):
        SqliteSink("rows", path=":memory:", key="id")
    with pytest.raises(SettingsError, match="has no table 'rows'; create it first"):
        SqliteSink("rows", path=path, key="id").open(OF, 0)
    with pytest.raises(SettingsError, match=r"has no column 'key'.*it has: id"):
        SqliteSink("my rows", path=path, key="key").open(OF, 0)
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(EnvironmentFault, match="not a database"):
        SqliteSink("rows", path=str(tmp_path / "text"), key="id").open(OF, 0)
    with pytest.raises(EnvironmentFault, match="unable to open"):
        SqliteSink("rows", path=str(tmp_path / "no" / "db"), key="id").open(OF, 0)


def test_an_upsert_needs_a_unique_key(tmp_path: Any) -> None:
    made(tmp_path / "db", "CREATE TABLE rows (id TEXT, n INTEGER)")
    sink = SqliteSink("rows", path=str(tmp_path / "db"), key="id")
    with pytest.raises(SettingsError, match=r"'rows'.*no primary key or unique index over id"):
        sink.open(OF, 0)


def test_null_in_append_mode_is_an_error_of_the_record(path: str) -> None:
    sink = SqliteSink("my rows", path=path, mode="append")
    with pytest.raises(ValueError, match="no rows to delete"):
        sink.row("x", None, 0, ())
    assert sink.row("x", {"id": "y"}, 0, ()).columns == {"id": "y"}


def test_it_describes_itself(path: str) -> None:
    assert SqliteSink("rows", path="a.db", key="id").describe() == "table rows, upsert, SQLite a.db"
