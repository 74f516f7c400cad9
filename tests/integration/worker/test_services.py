"""The services of the documents: an HTTP server and a Postgres table that a worker asks for each record, exactly once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import UNDISTURBED, Cluster, until
from tests.postgres_server import PostgresServer
from tests.test_site import code_of

RECORDS = 400
ITEMS = 40
LIMITS = """
CREATE TABLE limits (shop TEXT PRIMARY KEY, cents INTEGER);
INSERT INTO limits SELECT 's' || n, n * 100 FROM generate_series(0, 6) n;
"""


class Prices(BaseHTTPRequestHandler):
    """Gives seven cents times the number of the item. The first request for each tenth item is answered by 503."""

    seen: Counter[str]
    turn = threading.Lock()

    def do_GET(self) -> None:
        with self.turn:
            self.seen[self.path] += 1
            times = self.seen[self.path]
        number = int(self.path.removeprefix("/"))
        body = json.dumps({"cents": 7 * number}).encode()
        self.send_response(503 if number % 10 == 0 and times == 1 else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def prices() -> Iterator[tuple[str, Counter[str]]]:
    """The server's address, and how often each item was asked for."""
    handler = type("Handler", (Prices,), {"seen": Counter()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler.seen  # type: ignore[attr-defined]  # set above
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_http_service_and_a_postgres_table_are_asked_once_for_each_record(
    kafka: str, tmp_path: Path, prices: tuple[str, Counter[str]]
) -> None:
    """Over a stop in the middle: what was committed is not asked again."""
    url, seen = prices
    names: dict[str, Any] = {}
    exec(compile(code_of("howto/call-services.md", "python")[0], "call-services.md", "exec", dont_inherit=True), names)
    cluster = Cluster(kafka, "services")
    orders, checked, dead = cluster.create("orders"), cluster.create("checked"), cluster.create("dead")
    keys = [f"s{n % 8}" for n in range(RECORDS)]
    values: list[bytes | None] = [json.dumps({"item": n % ITEMS, "n": n}).encode() for n in range(RECORDS)]
    cluster.write(orders, values, keys=[key.encode() for key in keys])
    settings = load_settings(
        env={},
        application_id=cluster.name,
        bootstrap_servers=kafka,
        state_dir=str(tmp_path),
        guarantee="exactly_once",
        commit_interval_ms=50,
        batch_max_records=20,
        policies={"dead_letter_topic": dead},
        **UNDISTURBED,
    )

    with PostgresServer() as server:
        conninfo = server.database(LIMITS)
        for enough in (20, RECORDS):
            topology = names["build"](names["Price"](url), names["Limit"](conninfo), orders, checked)
            with Worker(topology, settings) as worker:
                until("answers", lambda: not worker.running or len(cluster.read(checked)) >= enough, every_s=0.3)  # noqa: B023  # called here

    found = {w["n"]: w for w in (json.loads(r.value) for r in cluster.read(checked) if r.value is not None)}
    limits = {f"s{n}": n * 100 for n in range(7)} | {"s7": None}
    expected = {
        n: {"item": n % ITEMS, "n": n, "cents": 7 * (n % ITEMS), "limit": limits[keys[n]]} for n in range(RECORDS)
    }
    assert found == expected
    again = {f"/{item}" for item in range(0, ITEMS, 10)}
    assert seen == {f"/{item}": RECORDS // ITEMS + (f"/{item}" in again) for item in range(ITEMS)}
    assert cluster.read(dead) == []
