"""An application whose rows go to a database, on a real cluster: topology, worker processes, and what must be there.

Keys are ``w0`` to ``w39`` and the values of each are 1, 2, 3 …, so that a lost, repeated or reordered row shows at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import psycopg

import penstock as ps
from penstock.connectors import Sink
from penstock.topologies.graph.topology import Topology
from tests.child_process import started
from tests.integration.worker.application import Cluster, Process, until
from tests.postgres_server import PostgresServer

PARTITIONS = 4
KEYS = [f"w{i}" for i in range(40)]
SESSION_TIMEOUT_MS = 6_000
Step = Literal["opened", "before", "after"]


class Database(Protocol):
    """Where the rows go: three tables, of all rows, of the latest row per key, and of counts."""

    def order(self) -> dict[str, str]:
        """What a worker process needs to make the sinks."""

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""


TABLES = """
CREATE TABLE every (k TEXT, n BIGINT);
CREATE TABLE latest (k TEXT PRIMARY KEY, n BIGINT);
CREATE TABLE counts (k TEXT PRIMARY KEY, total BIGINT);
"""


class SqliteFile:
    """A SQLite file."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "shop.db")
        with contextlib.closing(sqlite3.connect(self._path)) as db:
            db.executescript(f"PRAGMA journal_mode = WAL; {TABLES}")

    def order(self) -> dict[str, str]:
        return {"kind": "sqlite", "place": self._path}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=60)) as db:
            return list(db.execute(sql))


class PostgresDatabase:
    """A database of a Postgres server."""

    def __init__(self, server: PostgresServer) -> None:
        self._conninfo = server.database(TABLES)

    def order(self) -> dict[str, str]:
        return {"kind": "postgres", "place": self._conninfo}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._conninfo) as db:
            return db.execute(sql.encode()).fetchall()


class FilesAndSqlite(SqliteFile):
    """All rows in files of JSON lines, the other tables in a SQLite file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / "every"

    def order(self) -> dict[str, str]:
        return {"kind": "files", "place": self._path}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        if sql != "SELECT k, n FROM every":
            return super().query(sql)
        lines = [line for path in sorted(self._folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
        return [(row["k"], row["n"]) for row in map(json.loads, lines)]


def sinks_of(kind: str, place: str) -> tuple[Sink, Sink, Sink]:
    """The sinks of the three tables."""
    from penstock.connectors import JsonLinesSink, PostgresSink, SqliteSink

    if kind == "files":
        every = JsonLinesSink(str(Path(place).parent / "every"), key="k", value="n", roll_interval=0)
        return (every, *sinks_of("sqlite", place)[1:])
    if kind == "postgres":
        return (
            PostgresSink("every", conninfo=place, mode="append", key="k", value="n"),
            PostgresSink("latest", conninfo=place, key="k", value="n"),
            PostgresSink("counts", conninfo=place, key="k", value="total"),
        )
    return (
        SqliteSink("every", path=place, mode="append", key="k", value="n"),
        SqliteSink("latest", path=place, key="k", value="n"),
        SqliteSink("counts", path=place, key="k", value="total"),
    )


def topology(source: str, sinks: tuple[Sink, Sink, Sink]) -> Topology:
    """All rows and the latest ones straight from the topic, counts behind a repartition topic."""
    builder = ps.StreamsBuilder("shop", key=str, value=int)
    numbers = builder.stream(source)
    numbers.sink(sinks[0], name="every")
    numbers.sink(sinks[1], name="latest")
    numbers.group_by_key().count(name="n").to_stream().sink(sinks[2], name="counts")
    return builder.build()


class Shop(Cluster):
    """The application."""

    def __init__(self, servers: str, name: str, folder: Path, database: Database, guarantee: str) -> None:
        super().__init__(servers, name)
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.database = database
        self.guarantee = guarantee
        self.source = self.create("in", PARTITIONS)
        self.written: Counter[str] = Counter()
        self._next = 0

    def add(self, count: int) -> None:
        """Write records, one key after the other."""
        keys, values = [], []
        for _ in range(count):
            key = KEYS[self._next % len(KEYS)]
            self._next += 1
            self.written[key] += 1
            keys.append(key.encode())
            values.append(self.written[key].to_bytes(8, "big"))
        self.write(self.source, values, keys=keys)

    def worker(self, name: str, strike: tuple[Step, int, int] | None = None) -> ShopWorker:
        """A worker process. ``strike``: around a write of a sink, its number, and the signal that it then sends itself."""
        return ShopWorker(self, name, strike)

    def feed(self, what: str, condition: Any) -> None:
        """Write a few records at a time until the condition holds."""

        def more() -> bool:
            if condition():
                return True
            self.add(20)
            return False

        until(what, more, every_s=0.2)

    def wait(self) -> None:
        """Until everything written has arrived."""

        def arrived() -> bool:
            found = dict(self.database.query("SELECT k, n FROM latest"))
            totals = dict(self.database.query("SELECT k, total FROM counts"))
            return all(found.get(k) == n and totals.get(k, 0) >= n for k, n in self.written.items())

        until(f"rows of {self.name}", arrived, every_s=0.3)

    def assert_exact(self) -> None:
        """Each row once."""
        found: dict[str, list[int]] = {}
        for k, n in self.database.query("SELECT k, n FROM every"):
            found.setdefault(k, []).append(n)
        assert {k: sorted(rows) for k, rows in found.items()} == {
            k: list(range(1, n + 1)) for k, n in self.written.items()
        }
        assert dict(self.database.query("SELECT k, n FROM latest")) == dict(self.written)
        if self.guarantee == "exactly_once":
            assert dict(self.database.query("SELECT k, total FROM counts")) == dict(self.written)


class ShopWorker(Process):
    """A worker in a process of its own."""

    def __init__(self, shop: Shop, name: str, strike: tuple[Step, int, int] | None) -> None:
        self.log = shop.folder / f"{name}-{time.time_ns():x}.log"
        order = {
            "source": shop.source,
            "database": shop.database.order(),
            "strike": strike,
            "settings": {
                "application_id": shop.name,
                "bootstrap_servers": shop.bootstrap_servers,
                "state_dir": str(shop.folder / f"state-{name}"),
                "guarantee": shop.guarantee,
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "commit_interval_ms": 50,
            },
        }
        self._process = started("tests.integration.sinks.shop", order, self.log)


class Striking(Sink):
    """A sink that sends its process a signal around the nth write."""

    def __init__(self, inner: Sink, strike: Sequence[Any] | None) -> None:
        self._inner, self._strike = inner, strike
        self.by_key, self.append_only = inner.by_key, inner.append_only
        self._passed: Counter[str] = Counter()

    def row(self, *record: Any) -> Any:
        return self._inner.row(*record)

    def describe(self) -> str:
        return self._inner.describe()

    def passed(self, step: str) -> None:
        """A step was done."""
        self._passed[step] += 1
        if self._strike and self._strike[0] == step and self._passed[step] == self._strike[1]:
            print(f"signal {step}", flush=True)
            os.kill(os.getpid(), self._strike[2])

    def open(self, partition: Any, start: int) -> Any:
        writer = self._inner.open(partition, start)
        self.passed("opened")
        write = writer.write

        def striking(rows: Any, position: int) -> int:
            self.passed("before")
            done = write(rows, position)
            self.passed("after")
            return done

        writer.write = striking  # type: ignore[method-assign]  # the test's
        return writer


def main(order: dict[str, Any]) -> None:
    """Run until SIGTERM or an error."""
    from penstock.streams.worker.load_settings import load_settings

    first, *others = sinks_of(**order["database"])
    made = topology(order["source"], (Striking(first, order["strike"]), *others))  # type: ignore[arg-type]  # three
    worker = ps.Worker(made, load_settings(env={}, **order["settings"]))
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    print("ready", flush=True)
    worker.run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
