"""Tables of a real Postgres as a source: the contract, transactions that end in another order, and what is refused."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.connectors import PostgresSource, Source, SourceReader
from penstock.state.errors import IncompatibleError, RetriableError, SettingsError
from penstock.streams.connectors import postgres_source
from penstock.testing import SourceContract
from tests.postgres_server import PostgresServer

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop."the orders" (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, city TEXT, at TIMESTAMPTZ);
CREATE TABLE events (id SERIAL, n INTEGER);
CREATE TABLE ahead (id BIGINT GENERATED ALWAYS AS IDENTITY (CACHE 20));
CREATE TABLE plain (id BIGINT, n INTEGER);
INSERT INTO shop."the orders" (city, at) SELECT 'c' || n % 3, to_timestamp(n) FROM generate_series(1, 7) AS n;
INSERT INTO events (n) SELECT n FROM generate_series(1, 3) AS n;
DELETE FROM shop."the orders" WHERE id = 4;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def conninfo(server: PostgresServer) -> str:
    return server.database(TABLES)


class TestTables(SourceContract):
    @pytest.fixture(autouse=True)
    def _database(self, conninfo: str) -> None:
        self.conninfo = conninfo

    def source(self) -> Source:
        return PostgresSource(["shop.the orders", "events"], conninfo=self.conninfo)


def numbers(reader: SourceReader, most: int = 100) -> list[int]:
    """What it gives up to its end."""
    found: list[int] = []
    while True:
        batch = reader.read(most)
        found += [record.value["n"] for record in batch.records]
        if batch.ended:
            return found


def test_rows_have_key_time_and_place(conninfo: str) -> None:
    source = PostgresSource("shop.the orders", conninfo=conninfo, key="city", timestamp="at")
    assert source.splits() == ["shop.the orders"] and source.describe() == "PostgresSource shop.the orders"
    reader = source.open("shop.the orders", None)
    records = reader.read(2).records or reader.read(2).records
    reader.close()
    assert [(r.key, r.timestamp_ms, r.value["id"]) for r in records] == [("c1", 1_000, 1), ("c2", 2_000, 2)]
    assert records[1].place == "shop.the orders, id 2"


def test_a_row_of_an_older_transaction_is_waited_for(conninfo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number was taken first, and it is seen last."""
    monkeypatch.setattr(postgres_source, "_WAIT_S", 0.0)
    reader = PostgresSource("events", conninfo=conninfo).open("events", None)
    with psycopg.connect(conninfo) as older, psycopg.connect(conninfo, autocommit=True) as newer:
        older.execute("INSERT INTO events (n) VALUES (4)")
        newer.execute("INSERT INTO events (n) VALUES (5)")
        for _ in range(3):
            batch = reader.read(100)
            assert batch.records == [] and not batch.ended
        older.commit()
        assert numbers(reader) == [1, 2, 3, 4, 5]
        older.execute("SELECT nextval('events_id_seq')")
        newer.execute("INSERT INTO events (n) VALUES (7)")
        assert reader.read(100).records == []
        older.execute("INSERT INTO events (id, n) VALUES (6, 6)")
        older.commit()
        assert numbers(reader) == [6, 7]
        older.execute("INSERT INTO events (n) VALUES (8)")
        newer.execute("INSERT INTO events (n) VALUES (9)")
        older.rollback()
        assert numbers(reader) == [9]
    reader.close()


def test_transactions_that_begin_later_hold_nothing_up(conninfo: str) -> None:
    reader = PostgresSource("events", conninfo=conninfo).open("events", None)
    assert numbers(reader) == [1, 2, 3]
    with psycopg.connect(conninfo) as other:
        other.execute("INSERT INTO events (n) VALUES (4)")
        other.commit()
        assert numbers(reader) == [4]
    reader.close()


def test_every_row_once_while_many_sessions_insert(conninfo: str) -> None:
    """Transactions of several rows, some rolled back, that end in any order; the reader is reopened at its position."""
    source, stopped = PostgresSource("events", conninfo=conninfo), threading.Event()

    def insert(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(conninfo) as db:
            for _ in range(40):
                for _ in range(rng.randrange(1, 4)):
                    db.execute("INSERT INTO events (n) VALUES (%s)", [seed])
                    stopped.wait(rng.choice([0, 0.002]))
                db.rollback() if rng.random() < 0.2 else db.commit()

    sessions = [threading.Thread(target=insert, args=(seed,)) for seed in range(6)]
    for session in sessions:
        session.start()
    found: list[int] = []
    position = None
    rng = random.Random(9)
    while True:
        running = any(session.is_alive() for session in sessions)
        reader = source.open("events", position)
        for _ in range(rng.randrange(1, 5)):
            batch = reader.read(rng.randrange(1, 30))
            found += [record.value["id"] for record in batch.records]
            position = batch.position
        reader.close()
        if batch.ended and not running:
            break
    for session in sessions:
        session.join()
    with psycopg.connect(conninfo) as db:
        there = [number for (number,) in db.execute("SELECT id FROM events ORDER BY id")]
    assert found == there and len(there) > 100


def test_a_table_that_was_recreated_is_refused(conninfo: str) -> None:
    source = PostgresSource("events", conninfo=conninfo)
    with psycopg.connect(conninfo, autocommit=True) as db:
        db.execute("TRUNCATE events RESTART IDENTITY")
    with pytest.raises(IncompatibleError, match="read up to id 3, and its sequence is at 0"):
        source.open("events", "3")


def test_tables_and_servers_that_cannot_be_read(conninfo: str, server: PostgresServer) -> None:
    def opened(table: str, **given: Any) -> None:
        PostgresSource(table, **{"conninfo": conninfo} | given).open(table, None).close()

    with pytest.raises(SettingsError, match="column 'id' of table plain is not filled by a sequence"):
        opened("plain")
    with pytest.raises(SettingsError, match="has CACHE 20"):
        opened("ahead")
    with pytest.raises(SettingsError, match=r"Postgres: .*none.* does not exist.*; correct the names"):
        opened("none")
    with pytest.raises(SettingsError, match="correct the names"):
        opened("events", column="nope")
    with pytest.raises(SettingsError, match=r"does not exist.*; look at conninfo"):
        opened("events", conninfo=server.conninfo("nothing"))
    with pytest.raises(RetriableError, match="Postgres: "):
        opened("events", conninfo="host=127.0.0.1 port=1 dbname=x user=y")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tables": []}, "give the name of a table"),
        ({"tables": ["a", "a"]}, "a list of different ones"),
        ({"tables": "a", "statement_timeout": 0}, "must be above 0"),
        ({"tables": "a", "conninfo": "postgres//x"}, "give postgresql://"),
    ],
)
def test_settings_that_cannot_work(given: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        PostgresSource(**given)
