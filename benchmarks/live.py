"""What the benchmarks that send by the clock share: a schedule that does not wait for answers, receivers that note when
each record came, workers of other topologies than the workloads', and quantiles.

A record is due at its place in the schedule, whenever it is really sent: a sender or a worker that falls behind makes the
waits longer, and never the load smaller.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from numpy.typing import NDArray

from benchmarks import penstock_app
from benchmarks.bench import Bench
from benchmarks.systems import GUARANTEES, ROOT
from benchmarks.topics import arrived
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology

TICK_S = 0.005
CHUNK = 2_000
"""Records that are handed over at once at most, so that a sender which is behind still serves its client."""

Ints = NDArray[np.int64]


def now_us() -> int:
    """The clock's time in microseconds."""
    return time.time_ns() // 1000


def due_places(passed_s: float, rate_per_s: float, sent: int, total: int) -> range:
    """The places of the schedule that are due and not sent, ``CHUNK`` at most. Pure."""
    return range(sent, max(sent, min(int(passed_s * rate_per_s), total, sent + CHUNK)))


def send_at_rate(send: Callable[[Ints], None], rate_per_s: float, seconds: float, tick_s: float = TICK_S) -> float:
    """Call ``send`` with the moments (µs) at which records are due, as soon as they are, asking the clock every
    ``tick_s``. Returns by how many seconds the sender was behind at worst."""
    began_us, sent, behind_us = now_us(), 0, 0
    total = int(rate_per_s * seconds)
    while sent < total:
        places = due_places((now_us() - began_us) / 1e6, rate_per_s, sent, total)
        if not places:
            sleep(tick_s)
            continue
        moments: Ints = began_us + (np.arange(places.start, places.stop) * (1e6 / rate_per_s)).astype(np.int64)
        behind_us = max(behind_us, now_us() - int(moments[0]))
        send(moments)
        sent = places.stop
    return behind_us / 1e6


def new_producer(bootstrap: str) -> Producer:
    """One that sends at once, places keys as Java does, and holds what a slow broker makes it hold."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def produce(producer: Producer, topic: str, key: bytes | None, value: bytes, timestamp_ms: int) -> None:
    """Hand one record over, waiting while the client's queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.01)


class Receiver(threading.Thread):
    """Reads topics from their beginnings, committed records only, and gives what came to ``take`` with the time (µs).
    An exception of ``take`` is raised by ``close``."""

    def __init__(
        self, bootstrap: str, topics: Sequence[str], partitions: int, take: Callable[[list[Message], int], None]
    ) -> None:
        super().__init__(daemon=True)
        self._take, self._halt = take, threading.Event()
        self._error: Exception | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topics[0]}-probe",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
                "fetch.queue.backoff.ms": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in topics for p in range(partitions)])

    def run(self) -> None:
        """Until ``close``."""
        try:
            while not self._halt.is_set():
                messages = arrived(self._consumer, 1_000, TICK_S)
                came_us = now_us()
                if fine := [message for message in messages if not message.error()]:
                    self._take(fine, came_us)
        except Exception as exc:
            self._error = exc
        finally:
            self._consumer.close()

    def close(self) -> None:
        """End it."""
        self._halt.set()
        self.join()
        if self._error is not None:
            raise self._error


def quantiles(waits_ms: NDArray[np.float64]) -> dict[str, float]:
    """p50, p99 and the longest, in milliseconds; not numbers where nothing came."""
    if not len(waits_ms):
        return dict.fromkeys(("p50_ms", "p99_ms", "max_ms"), float("nan"))
    return {name: float(np.percentile(waits_ms, p)) for name, p in (("p50_ms", 50), ("p99_ms", 99), ("max_ms", 100))}


def run_worker(topology: Topology) -> None:
    """Run a worker until SIGTERM, or several, by the orders of ``start_worker``."""
    penstock_app.in_processes(lambda: penstock_app.run_until_stopped(Worker(topology, penstock_app.settings())))


def start_worker(
    bench: Bench, module: str, words: Sequence[str], application: str, guarantee: str, more: Mapping[str, Any]
) -> subprocess.Popen[bytes]:
    """Start ``python -m module words…``, which calls ``run_worker``; what it prints goes to the application's log."""
    return start_program(bench, [sys.executable, "-m", module, *words], application, guarantee, more)


def start_program(
    bench: Bench, command: Sequence[str], application: str, guarantee: str, more: Mapping[str, Any]
) -> subprocess.Popen[bytes]:
    """Start a program with its orders in the environment; what it prints goes to the application's log."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)]),
        "APP_ID": application,
        "STATE_DIR": str(bench.state_folder(application)),
        "BOOTSTRAP": bench.log.bootstrap,
        "GUARANTEE": GUARANTEES[guarantee],
        "COMMIT_MS": "1000",
        "THREADS": str(bench.threads),
        **bench.extra,
        **{name: str(value) for name, value in more.items()},
    }
    logs = bench.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / f"{application}.log").open("ab") as output:
        return subprocess.Popen(command, env=environment, cwd=bench.work, stdout=output, stderr=subprocess.STDOUT)
