"""Rows of real workers in real databases and files, exactly once: workers are killed and frozen around the commit, others
take over, and the frozen ones wake. The cases run side by side: most of their time is waiting for sessions."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.sinks.shop import (
    SESSION_TIMEOUT_MS,
    Database,
    FilesAndSqlite,
    PostgresDatabase,
    Shop,
    SqliteFile,
    Step,
)
from tests.integration.worker.application import until
from tests.postgres_server import PostgresServer

KINDS = ("sqlite", "postgres", "files")
CASES: list[tuple[str, str, Step, str]] = [
    ("exactly_once", "kill", "after", "sqlite"),
    ("at_least_once", "freeze", "after", "sqlite"),
    ("exactly_once", "freeze", "before", "sqlite"),
    ("exactly_once", "kill", "after", "postgres"),
    ("at_least_once", "freeze", "before", "postgres"),
    ("exactly_once", "kill", "after", "files"),
    ("at_least_once", "freeze", "before", "files"),
]
"""Guarantee, what strikes, around which step, which database."""
LONG = [
    (guarantee, how, step, kind)
    for guarantee in ("exactly_once", "at_least_once")
    for how in ("kill", "freeze")
    for step in ("opened", "before", "after")
    for kind in KINDS
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def database(kind: str, folder: Path, server: PostgresServer) -> Database:
    """An empty one."""
    if kind == "postgres":
        return PostgresDatabase(server)
    folder.mkdir(parents=True)
    return FilesAndSqlite(folder) if kind == "files" else SqliteFile(folder)


def struck(kafka: str, server: PostgresServer, folder: Path, case: tuple[str, str, Step, str]) -> None:
    """The first worker is struck, the second takes over; a frozen one wakes once that has gone on."""
    guarantee, how, step, kind = case
    shop = Shop(kafka, f"shop-{'-'.join(case)}", folder, database(kind, folder / "db", server), guarantee)
    shop.add(400)
    number = signal.SIGKILL if how == "kill" else signal.SIGSTOP
    with shop.worker("first", (step, 3, number)) as first:
        shop.feed("the first worker is struck", lambda: "signal" in first.said)
        with shop.worker("second") as second:
            if how == "freeze":
                time.sleep(SESSION_TIMEOUT_MS / 1000)
            shop.add(200)
            shop.wait()
            if how == "freeze":
                first.signal(signal.SIGCONT)
                shop.add(200)
                shop.wait()
                until("the frozen one is a member again", lambda: shop.admin.group_members(shop.name) == 2)
                assert first.alive, first.said
                shop.add(200)
                shop.wait()
                first.stop()
            second.stop()
    shop.assert_exact()


@pytest.fixture(scope="module")
def running(
    kafka: str, server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[object, Future[None]]]:
    """Every case at once."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        folders = {case: tmp_path_factory.mktemp("shop") / "it" for case in CASES}
        yield {case: pool.submit(struck, kafka, server, folders[case], case) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_every_row_once(case: tuple[str, str, Step, str], running: dict[object, Future[None]]) -> None:
    running[case].result()


@pytest.mark.long
@pytest.mark.parametrize("case", LONG, ids=" ".join)
def test_every_row_once_long(
    case: tuple[str, str, Step, str], kafka: str, server: PostgresServer, tmp_path: Path
) -> None:
    struck(kafka, server, tmp_path / "it", case)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_random_strikes(kind: str, seed: int, kafka: str, server: PostgresServer, tmp_path: Path) -> None:
    """Two workers, struck at any moment for a minute and a half."""
    rng = random.Random(seed)
    shop = Shop(kafka, f"storm-{kind}-{seed}", tmp_path / "it", database(kind, tmp_path / "db", server), "exactly_once")
    workers = {name: shop.worker(name) for name in "ab"}
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline:
            shop.add(rng.randint(10, 200))
            time.sleep(rng.uniform(0.1, 3.0))
            name = rng.choice("ab")
            if rng.random() < 0.5:
                workers[name].kill()
                workers[name] = shop.worker(name)
            else:
                workers[name].signal(signal.SIGSTOP)
                time.sleep(rng.choice([0.5, 9.0]))
                workers[name].signal(signal.SIGCONT)
        shop.wait()
        for worker in workers.values():
            worker.stop()
    finally:
        for worker in workers.values():
            if worker.alive:
                worker.signal(signal.SIGCONT)
                worker.kill()
    shop.assert_exact()
