"""A real worker on stores of another kind, given by the public arguments."""

from __future__ import annotations

from pathlib import Path

from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import Application
from tests.sqlite_backend import SqliteBackend


def test_a_worker_takes_stores_of_another_kind(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, "sqlite", tmp_path)
    for _ in range(2):
        worker = Worker(app.topology, app.settings(), open_backend=SqliteBackend)
        worker.start()
        app.add_lines(300)
        app.wait()
        worker.stop()
    app.assert_exact()
    assert list(tmp_path.rglob("stores.sqlite"))
    assert not list(tmp_path.rglob("*.sst"))
