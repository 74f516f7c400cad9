"""Latency of ``enrich`` at a steady rate: from handing a click to the producer until its enriched click is received.

The click carries the microsecond at which it was due, so a producer that falls behind is counted too. The receiver
reads committed records only. Measuring begins when the table is loaded and a while has passed.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.bench import Bench
from benchmarks.processes import stolen_cpu_s, stop, tree, usage
from benchmarks.systems import System, UnavailableError
from benchmarks.topics import arrived
from benchmarks.workloads import WORKLOADS

# Spark answers in batches that may take seconds each.
AFTER_S = 20.0
FIRST_OUTPUT_S = 120.0
TICK_S = 0.005


class Receiver(threading.Thread):
    """Reads a topic and keeps, of each record, when its click was due and when it came; both in microseconds."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.received: list[tuple[int, int]] = []
        self.halt = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-probe",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def run(self) -> None:
        """Until ``halt`` is set."""
        while not self.halt.is_set():
            messages = arrived(self._consumer, 500, TICK_S)
            now_us = time.time_ns() // 1000
            for message in messages:
                value = message.value()
                if not message.error() and value is not None:
                    self.received.append((json.loads(value)["ts"], now_us))
        self._consumer.close()


class Sender:
    """Sends clicks of users chosen evenly from all."""

    def __init__(self, bootstrap: str, topic: str, users: int) -> None:
        self._topic = topic
        self._users = users
        self._random = np.random.default_rng(1)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 1,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
            }
        )

    def send(self, count: int) -> None:
        """Hand over that many clicks, due now."""
        for user in self._random.integers(0, self._users, count).tolist():
            due_us = time.time_ns() // 1000
            value = b'{"user":"u%07d","url":"/page/1","ts":%d}' % (user, due_us)
            self._producer.produce(self._topic, value, data.user_key(user), timestamp=due_us // 1000)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all are with the broker."""
        self._producer.flush()


class Load(NamedTuple):
    """Clicks a second, and how long they are sent before and while it is measured."""

    rate_per_s: int
    warm_s: float = 10.0
    measured_s: float = 30.0


def latency(
    bench: Bench,
    system: System,
    guarantee: str,
    load: Load,
    commit_ms: int = 100,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One measurement, as plain values; void unless every measured click came back exactly once (``ALO``: at least
    once)."""
    bench.log.load("users", WORKLOADS["enrich"].table_rows(bench.variant))
    application = bench.new_application(system, "latency")
    for suffix in ("in", "out"):
        bench.log.create(f"{application}-{suffix}")
    facts: dict[str, Any] = {"system": system.name, "guarantee": guarantee, "rate_per_s": load.rate_per_s, "void": ""}
    more = {"COMMIT_MS": str(commit_ms), **(environment or {})}
    try:
        process = bench.start(system, "enrich", guarantee, application, f"{application}-in", more)
    except UnavailableError as error:
        bench.clean(application)
        return {**facts, "void": str(error)}
    receiver = Receiver(bench.log.bootstrap, f"{application}-out", bench.variant.partitions)
    receiver.start()
    try:
        facts |= _measure(bench, process, receiver, _sender(bench, f"{application}-in"), load)
    finally:
        receiver.halt.set()
        receiver.join()
        stop(process)
        bench.clean(application)
    return facts


def floor(bench: Bench, guarantee: str, load: Load) -> dict[str, Any]:
    """What the clicks wait without any system: from the producer through the broker to the receiver, once. A system adds
    to this, and passes the broker twice."""
    topic = f"floor-{time.time_ns()}"
    bench.log.create(topic)
    receiver = Receiver(bench.log.bootstrap, topic, bench.variant.partitions)
    receiver.start()
    try:
        found = _steadily(bench, [], receiver, _sender(bench, topic), load)
    finally:
        receiver.halt.set()
        receiver.join()
        bench.log.delete([topic])
    return {"system": "none", "guarantee": guarantee, "rate_per_s": load.rate_per_s, "void": "", **found}


def _sender(bench: Bench, topic: str) -> Sender:
    return Sender(bench.log.bootstrap, topic, bench.variant.keys)


def _measure(
    bench: Bench, process: subprocess.Popen[bytes], receiver: Receiver, sender: Sender, load: Load
) -> dict[str, Any]:
    patience = time.monotonic() + FIRST_OUTPUT_S
    while len(receiver.received) < 20:
        if process.poll() is not None or time.monotonic() > patience:
            return {"void": f"no output within {FIRST_OUTPUT_S:.0f} s (exit code {process.returncode}), see its log"}
        sender.send(10)
        time.sleep(0.5)
    return _steadily(bench, tree(process.pid), receiver, sender, load)


def _steadily(bench: Bench, members: list[int], receiver: Receiver, sender: Sender, load: Load) -> dict[str, Any]:
    """Send, and measure the second part of it. ``members``: the system's processes."""
    _send_steadily(sender, load.rate_per_s, load.warm_s)
    began_us, before, broker_before_s = time.time_ns() // 1000, usage(members), bench.broker_cpu_s()
    stolen_before_s = stolen_cpu_s()
    sent = _send_steadily(sender, load.rate_per_s, load.measured_s)
    after, broker_after_s, stolen_after_s = usage(members), bench.broker_cpu_s(), stolen_cpu_s()
    sender.flush()
    waits = _waits(receiver, began_us, sent)
    if len(waits) < sent:
        return {"void": f"{len(waits):,} of {sent:,} clicks came back within {AFTER_S:.0f} s of the last"}
    quantiles = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "max_ms": 100}
    return {
        **{name: float(np.percentile(waits, part)) for name, part in quantiles.items()},
        "cpu_share": (after.cpu_s - before.cpu_s) / load.measured_s,
        "broker_share": (broker_after_s - broker_before_s) / load.measured_s,
        "stolen_cores": (stolen_after_s - stolen_before_s) / load.measured_s,
        "peak_bytes": after.resident_bytes,
    }


def _waits(receiver: Receiver, began_us: int, sent: int) -> NDArray[np.float64]:
    """Milliseconds that each measured click took, once all came or ``AFTER_S`` seconds are over."""
    patience = time.monotonic() + AFTER_S
    while True:
        time.sleep(0.5)
        waits = np.array([(came - due) / 1000 for due, came in receiver.received if due >= began_us])
        if len(waits) >= sent or time.monotonic() > patience:
            return waits


def _send_steadily(sender: Sender, rate_per_s: int, seconds: float) -> int:
    """Send at the rate for so long; how many."""
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        if due := int(passed * rate_per_s) - sent:
            sender.send(due)
            sent += due
        time.sleep(TICK_S)
    return sent
