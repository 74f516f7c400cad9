"""Writes the input: users once, then orders without end, from a thread of its own."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Self

from confluent_kafka import Producer

USERS = 60
CITIES = 9


class OrderWriter:
    """Writes ``per_s`` orders a second while it runs, each user's in order. ``servers``: the brokers' own."""

    def __init__(self, servers: str, prefix: str, seed: int, per_s: float = 80.0) -> None:
        self.written = 0
        self._prefix = prefix
        self._per_s = per_s
        self._rng = random.Random(seed)
        self._counts: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "socket.timeout.ms": 10_000,
            }
        )

    def write_users(self) -> None:
        """One record per user, acknowledged."""
        for i in range(USERS):
            self._producer.produce(f"{self._prefix}-users", json.dumps({"city": f"c{i % CITIES}"}), key=f"u{i}")
        self.flush()

    def write(self, orders: int) -> None:
        """So many orders at once, acknowledged."""
        for _ in range(orders):
            self._order()
        self.flush()

    def flush(self, limit_s: float = 120.0) -> None:
        """Wait until all is acknowledged."""
        left = self._producer.flush(limit_s)
        assert left == 0, f"{left} orders were not acknowledged in {limit_s:g} s"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop writing and wait for the acknowledgements."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._order()
            due += self._rng.expovariate(self._per_s)
            pause = due - time.monotonic()
            if pause > 0:
                self._stop.wait(pause)
            elif pause < -1:
                due = time.monotonic()

    def _order(self) -> None:
        user = f"u{self._rng.randrange(USERS)}"
        self._counts[user] = n = self._counts.get(user, 0) + 1
        order = {"n": n, "amount": self._rng.randint(1, 1_000)}
        while True:
            try:
                self._producer.produce(f"{self._prefix}-orders", json.dumps(order), key=user)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)
        self.written += 1
