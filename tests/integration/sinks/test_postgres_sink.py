"""Rows into Postgres: the contract of exactly-once sinks on a real server, and what is Postgres' own."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.connectors import PostgresSink, Sink, SinkPartition, SinkRows, SinkWriter
from penstock.state.errors import ProcessingError, RetriableError, SettingsError, TaskMigratedError
from penstock.testing import ExactlyOnceSinkContract
from tests.postgres_server import PostgresServer

OF = SinkPartition("app", "s", "t", "id", 0)
TABLES = """
CREATE SCHEMA more;
CREATE TABLE more."my rows" (
    id TEXT PRIMARY KEY, "100% ""b" INTEGER CHECK ("100% ""b" < 100), tags JSONB, raw BYTEA, many INTEGER[],
    price NUMERIC, rate DOUBLE PRECISION, day DATE, note TEXT DEFAULT 'none', email TEXT UNIQUE,
    twice INTEGER GENERATED ALWAYS AS ("100% ""b" * 2) STORED);
CREATE TABLE facts (id SERIAL, k TEXT, n INTEGER);
CREATE TABLE late (id TEXT PRIMARY KEY, n INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED);
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def query(conninfo: str, sql: str) -> list[Any]:
    with psycopg.connect(conninfo, autocommit=True) as db:
        cursor = db.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


class OnServer(ExactlyOnceSinkContract):
    table = ""

    @pytest.fixture(autouse=True)
    def _own_database(self, server: PostgresServer) -> None:
        self.conninfo = server.database(self.table)


class TestUpserts(OnServer):
    table = "CREATE TABLE rows (k TEXT PRIMARY KEY, n INTEGER)"

    def sink(self) -> Sink:
        return PostgresSink("rows", conninfo=self.conninfo, key="k", lock_timeout="300ms")

    def contents(self) -> dict[str, list[int]]:
        return {k: [n] for k, n in query(self.conninfo, "SELECT k, n FROM rows")}


class TestAppends(OnServer):
    folds = False
    table = "CREATE TABLE rows (id SERIAL, k TEXT, n INTEGER)"

    def sink(self) -> Sink:
        return PostgresSink("rows", conninfo=self.conninfo, key="k", mode="append", lock_timeout="300ms")

    def contents(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for k, n in query(self.conninfo, "SELECT k, n FROM rows ORDER BY id"):
            out.setdefault(k, []).append(n)
        return out


@pytest.fixture
def conninfo(server: PostgresServer) -> str:
    return server.database(TABLES)


@pytest.fixture
def sink(conninfo: str) -> PostgresSink:
    return PostgresSink("more.my rows", conninfo=conninfo, key="id", lock_timeout="200ms", statement_timeout="20s")


def rows(sink: Sink, *records: tuple[Any, Any]) -> SinkRows:
    return SinkRows([sink.row(k, v, 0, ()) for k, v in records], list(range(len(records))))


def held(sink: PostgresSink, columns: str) -> list[Any]:
    return query(sink.conninfo, f'SELECT id, {columns} FROM more."my rows" ORDER BY id')


def write(sink: Sink, *records: tuple[Any, Any]) -> None:
    """By a writer of its own."""
    writer = sink.open(OF, 0)
    given = rows(sink, *records)
    stop = writer.position + len(given)
    writer.write(SinkRows(given.rows, list(range(writer.position, stop))), stop)
    writer.close()


B = '100% "b'


def test_deletes_partial_rows_and_names_in_quotes(sink: PostgresSink) -> None:
    write(sink, ("old", {B: 5, "note": "x"}), ("gone", {B: 6}))
    given = [("x", {B: 1, "note": "p"}), ("y", {B: 2}), ("x", {B: 3}), ("z", {"note": "t"})]
    write(sink, *given, ("y", None), ("none", None), ("z", {}), ("old", None), ("old", {B: 7}), ("gone", None))
    assert held(sink, '"100% ""b", note, twice') == [("old", 7, "none", 14), ("x", 3, "p", 6), ("z", None, "t", None)]


def test_values_of_many_types(sink: PostgresSink) -> None:
    big = 10**30
    value = {"tags": ["p", {"q": "%s"}], "raw": b"\x00\xff", "many": [1, 2], "price": big, "rate": float("inf")}
    write(sink, ("x", {**value, "day": "2024-02-01", "note": "ä\\'"}))
    found = held(sink, "tags, raw, many, price::text, rate, day::text, note")
    assert found == [("x", ["p", {"q": "%s"}], b"\x00\xff", [1, 2], str(big), float("inf"), "2024-02-01", "ä\\'")]


def test_rows_that_only_their_order_allows(sink: PostgresSink) -> None:
    """A unique value goes from one row to another within a commit: one statement cannot do it."""
    write(sink, ("a", {"email": "e"}), ("b", {"email": "f"}))
    write(sink, ("b", None), ("a", {"email": "f"}), ("c", {"email": "e", B: 1}), ("c", None), ("d", {"email": "e"}))
    assert held(sink, "email") == [("a", "f"), ("d", "e")]
    write(sink, ("a", {"email": "g"}), ("b", {"email": "f", B: 1}), ("d", {"email": "h"}), ("a", {"email": "e"}))
    assert held(sink, "email") == [("a", "e"), ("b", "f"), ("d", "h")]
    assert query(sink.conninfo, "SELECT next_offset FROM penstock_positions") == [(11,)]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({B: 100}, "check constraint"),
        ({"nope": 1}, "nope"),
        ({B: 1 << 40}, "out of range"),
        ({B: "text"}, "invalid input syntax"),
        ({"note": "a\0b"}, "cannot be converted to text"),
        ({"twice": 1}, "twice"),
        ({"note": "\ud800"}, "surrogates not allowed"),
    ],
    ids=["check", "column", "range", "type", "nul", "generated", "unicode"],
)
def test_a_row_that_the_table_refuses_is_named_and_nothing_is_written(
    sink: PostgresSink, wrong: dict[str, Any], why: str
) -> None:
    writer = sink.open(OF, 0)
    with pytest.raises(
        ProcessingError, match=rf"(?s)sink s/t-0: .*refuses the row of offset 1 \(.*{why}.*Change the table"
    ):
        writer.write(rows(sink, ("x", {B: 1}), ("y", wrong), ("z", {})), 3)
    assert held(sink, "note") == []
    writer.write(rows(sink, ("x", {B: 1})), 3)
    writer.close()
    assert query(sink.conninfo, "SELECT sink, topic, partition, next_offset FROM penstock_positions") == [
        ("s", "t", 0, 3)
    ]


def test_what_is_refused_at_the_end_names_the_rows_between(conninfo: str) -> None:
    sink = PostgresSink("late", conninfo=conninfo, key="id")
    writer = sink.open(OF, 0)
    with pytest.raises(ProcessingError, match="refuses the rows of offsets 0 to 1 "):
        writer.write(rows(sink, ("x", {"n": 1}), ("y", {"n": 1})), 2)
    writer.write(rows(sink, ("x", {"n": 1}), ("y", {"n": 2})), 2)
    writer.close()
    assert query(conninfo, "SELECT * FROM late ORDER BY id") == [("x", 1), ("y", 2)]


def test_an_older_writer_is_refused_row_by_row_too(sink: PostgresSink) -> None:
    old = sink.open(OF, 0)
    sink.open(OF, 0).close()
    with pytest.raises(TaskMigratedError, match="another writer of s/t-0 was opened since"):
        old.write(rows(sink, ("x", {B: 100})), 1)
    old.close()
    assert held(sink, "note") == []


def test_a_lock_of_another_program_is_waited_for(sink: PostgresSink) -> None:
    write(sink, ("x", {B: 1}))
    writer = sink.open(OF, 0)
    with psycopg.connect(sink.conninfo) as other:
        other.execute('UPDATE more."my rows" SET note = NULL')
        with pytest.raises(RetriableError, match="lock timeout"):
            writer.write(SinkRows([sink.row("x", {B: 2}, 0, ())], [1]), 2)
    writer.write(SinkRows([sink.row("x", {B: 2}, 0, ())], [1]), 2)
    writer.close()
    assert held(sink, '"100% ""b", note') == [("x", 2, None)]


def session_of(writer: SinkWriter) -> psycopg.Connection[Any]:
    return vars(writer)["_db"]


def test_the_session_of_an_older_writer_is_ended_if_it_holds_a_lock(sink: PostgresSink) -> None:
    """As one does that was frozen while it wrote row by row."""
    old = sink.open(OF, 0)
    session_of(old).execute("BEGIN")
    session_of(old).execute("UPDATE penstock_positions SET next_offset = 7")
    new = sink.open(OF, 0)
    assert new.position == 0
    with pytest.raises(RetriableError):
        old.write(rows(sink, ("x", {})), 1)
    new.write(rows(sink, ("x", {B: 1})), 1)
    old.close()
    new.close()
    assert held(sink, '"100% ""b"') == [("x", 1)]


def test_a_server_that_says_nothing_is_given_up(conninfo: str) -> None:
    sink = PostgresSink("more.my rows", conninfo=conninfo, key="id", statement_timeout="300ms", connect_timeout="200ms")
    writer = sink.open(OF, 0)
    backend = session_of(writer).info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(RetriableError, match=r"no answer within 0\.5 s"):
            writer.write(rows(sink, ("x", {B: 1})), 1)
    finally:
        os.kill(backend, signal.SIGCONT)
    writer.close()
    again = PostgresSink("more.my rows", conninfo=conninfo, key="id").open(OF, 0)
    again.write(rows(sink, ("x", {B: 1})).from_offset(again.position), 1)
    again.close()
    assert held(sink, '"100% ""b"') == [("x", 1)]


def test_a_lost_session_is_retried(sink: PostgresSink) -> None:
    writer = sink.open(OF, 0)
    query(sink.conninfo, f"SELECT pg_terminate_backend({session_of(writer).info.backend_pid})")
    with pytest.raises(RetriableError, match=r"terminating connection|closed"):
        writer.write(rows(sink, ("x", {})), 1)
    writer.close()


def test_many_open_at_once_where_the_positions_are_missing(conninfo: str) -> None:
    sink = PostgresSink("facts", conninfo=conninfo, key="k", mode="append")
    failed: list[BaseException] = []

    def opened(partition: int) -> None:
        try:
            sink.open(OF._replace(partition=partition), 0).close()
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=opened, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert query(conninfo, "SELECT count(*) FROM penstock_positions") == [(8,)]


def test_settings_and_tables_that_cannot_work(conninfo: str, server: PostgresServer) -> None:
    def opening(table: str, conninfo: str = conninfo, **settings: Any) -> None:
        PostgresSink(table, conninfo=conninfo, **{"key": "id", **settings}).open(OF, 0)

    with pytest.raises(SettingsError, match="lock_timeout=0; give a duration above 0"):
        opening("late", lock_timeout=0)
    with pytest.raises(SettingsError, match=r"conninfo: .*\"hots\".*; give postgresql://"):
        opening("late", "hots=db.example")
    with pytest.raises(SettingsError, match="has no table 'rows' here; create it first"):
        opening("rows")
    with pytest.raises(SettingsError, match=r"has no column 'key'.*it has: id, n"):
        opening("late", key="key")
    with pytest.raises(SettingsError, match=r"'facts'.*no primary key or unique index over id"):
        opening("facts")
    with pytest.raises(SettingsError, match=r"'late'.*no primary key or unique index over n"):
        opening("late", key="n")  # deferrable
    with pytest.raises(SettingsError, match='database "none" does not exist'):
        opening("late", server.conninfo("none"))
    with pytest.raises(RetriableError, match="refused"):
        opening("late", "postgresql://postgres@127.0.0.1:1/x")


def test_rights(conninfo: str) -> None:
    query(conninfo, "CREATE ROLE shop LOGIN")
    theirs = conninfo.replace("postgres@", "shop@")
    sink = PostgresSink("late", conninfo=theirs, key="id")
    try:
        with pytest.raises(SettingsError, match=r"permission denied.*penstock_positions.*create that beforehand"):
            sink.open(OF, 0)
        PostgresSink("late", conninfo=conninfo, key="id").open(OF, 0).close()
        query(conninfo, "GRANT SELECT, INSERT, UPDATE ON penstock_positions TO shop")
        writer = sink.open(OF, 0)
        with pytest.raises(SettingsError, match="permission denied for table late"):
            writer.write(rows(sink, ("x", {"n": 1})), 1)
        query(conninfo, "GRANT SELECT, INSERT, UPDATE, DELETE ON late TO shop")
        writer.write(rows(sink, ("x", {"n": 1})), 1)
        writer.close()
    finally:
        query(conninfo, "DROP OWNED BY shop; DROP ROLE shop")


def test_a_password_is_in_no_text() -> None:
    sink = PostgresSink("late", conninfo="postgresql://shop:secret@db/shop", key="id")
    assert "secret" not in repr(sink) + sink.describe()
    assert sink.describe() == "table late, upsert, Postgres"
