"""One word-count application on a real cluster: its topics, its input, its worker processes, and the count that needs no
Penstock to be known.

Every update of a count is written, so under exactly-once the output must hold 1, 2, … n for each word, in this order and
nothing else: a lost, repeated or reordered update shows at once.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.state.log import Headers, TopicPartition
from penstock.streams.events.measurements import CommitStep
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import TopicSpec
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.examples import word_count
from penstock.topologies.graph.topology import Topology
from tests.child_process import started

ROOT = Path(__file__).parents[3]
SESSION_TIMEOUT_MS = 6_000
PARTITIONS = 4
LIMIT_S = 300.0
"""No wait should take long; this one ends the wait for what does not come, also on a slow machine."""
UNDISTURBED: dict[str, Any] = {"session_timeout_ms": 120_000, "transaction_timeout_ms": 120_000}
"""Settings for tests that count what happens and kill no worker: a machine that stalls for a while ends no session and no
transaction."""
WORDS = [f"w{i}" for i in range(40)]
NOW_MS = 1_700_000_000_000


@dataclasses.dataclass(frozen=True)
class Written:
    """A record that readers of committed records see."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


def until(what: str, condition: Callable[[], object], limit_s: float = LIMIT_S, every_s: float = 0.1) -> None:
    """Wait for a condition; fails with its name."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {limit_s} s: {what}"
        time.sleep(every_s)


def free_port() -> int:
    """A port that nothing listens at. It is below those that systems give to outgoing connections, one of which could
    take it before the worker does."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Cluster:
    """Topics and records of a running cluster, under names of their own."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.name = f"{name}-{time.time_ns():x}"
        self.admin = KafkaAdmin(admin_config(bootstrap_servers, {}))

    def create(self, stem: str, partitions: int = PARTITIONS, **config: str) -> str:
        """A topic; returns its name. Dots of setting names are written as underscores."""
        topic = f"{self.name}-{stem}"
        keys = {k.replace("_", "."): v for k, v in {"retention_ms": "-1", **config}.items()}
        self.admin.create_topics([TopicSpec(topic, partitions, 1, keys)])
        return topic

    def write(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[Headers] | None = None,
        partition: int | None = None,
    ) -> None:
        """Write records and wait for the acknowledgements."""
        producer = KafkaProducer(producer_config(self.bootstrap_servers, {}))
        times = timestamps or [NOW_MS + i for i in range(len(values))]
        producer.send(topic, keys or [None] * len(values), values, times, headers, partition=partition)
        producer.flush(60)
        producer.close()

    def read(self, topic: str, partitions: int = PARTITIONS) -> list[Written]:
        """Everything committed, partition by partition. Waits for transactions that are open, or whose commit was answered
        before its markers were everywhere."""
        config = consumer_config(self.bootstrap_servers, f"{self.name}-reader", {})
        places = [TopicPartition(topic, p) for p in range(partitions)]
        call_executor = KafkaConsumer({**config, "isolation.level": "read_uncommitted"})
        targets = {tp: call_executor.watermarks(tp)[1] for tp in places}
        call_executor.close()
        consumer = KafkaConsumer(config)
        consumer.assign_at(dict.fromkeys(places, 0))
        out: list[Written] = []
        left = {tp for tp in places if targets[tp]}
        deadline = time.monotonic() + LIMIT_S
        while left:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end"
            fetched = consumer.poll(50_000, 0.2)
            for c in fetched.chunks:
                headers = c.headers or [()] * len(c)
                rows = zip(c.offsets, c.keys, c.values, c.timestamps, headers, strict=True)
                out += [Written(c.partition, *row) for row in rows]
                if c.offsets[-1] + 1 >= targets[TopicPartition(c.topic, c.partition)]:
                    left.discard(TopicPartition(c.topic, c.partition))
            left -= {tp for tp, end in fetched.ends.items() if end >= targets[tp]}
        consumer.close()
        return sorted(out, key=lambda w: (w.partition, w.offset))

    def committed(self, group: str, topic: str, partitions: int = PARTITIONS) -> int:
        """The sum of the group's committed offsets."""
        consumer = KafkaConsumer(consumer_config(self.bootstrap_servers, group, {}))
        found = consumer.committed([TopicPartition(topic, p) for p in range(partitions)])
        consumer.close()
        return sum(c.offset for c in found.values() if c is not None)


class Application(Cluster):
    """The word count. ``module``: what its processes run; ``order``: what they are told besides."""

    module = "tests.integration.worker.process"

    def __init__(self, bootstrap_servers: str, name: str, folder: Path, guarantee: Guarantee = "exactly_once") -> None:
        super().__init__(bootstrap_servers, name)
        self.guarantee = guarantee
        self.folder = folder
        self.source = self.create("in")
        self.output = self.create("out")
        self.wanted: Counter[str] = Counter()
        self.order: dict[str, Any] = {}
        self._rng = random.Random(name)

    @property
    def topology(self) -> Topology:
        return word_count.build(self.source, self.output)

    def settings(self, state: str = "state", **more: Any) -> WorkerSettings:
        """Short sessions, small batches, so that a little input makes many commits."""
        given: dict[str, Any] = {
            "application_id": self.name,
            "bootstrap_servers": self.bootstrap_servers,
            "state_dir": str(self.folder / state),
            "guarantee": self.guarantee,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "commit_interval_ms": 50,
            "batch_max_records": 200,
            **more,
        }
        return load_settings(env={}, **given)

    def add_lines(self, count: int) -> None:
        """Write lines of eight words."""
        lines = [" ".join(self._rng.choices(WORDS, k=8)) for _ in range(count)]
        self.write(self.source, [line.encode() for line in lines])
        self.wanted.update(word for line in lines for word in line.split())

    def feed(self, what: str, condition: Callable[[], object]) -> None:
        """Write lines, a few at a time, until the condition holds: work for as many commits as that takes."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"not in {LIMIT_S} s: {what}"
            self.add_lines(10)
            time.sleep(0.2)

    def counts(self) -> dict[str, list[int]]:
        """The updates of each word, in the order of its partition."""
        out: dict[str, list[int]] = {}
        for w in self.read(self.output):
            assert w.key is not None
            assert w.value is not None
            out.setdefault(w.key.decode(), []).append(int(w.value))
        return out

    def reached(self) -> bool:
        """Whether every word's count is at least what it should become."""
        counts = self.counts()
        return all(max(counts.get(word, [0])) >= n for word, n in self.wanted.items())

    def wait(self) -> None:
        """Until every word has its count."""
        until(f"counts of {self.name}", self.reached, every_s=0.4)

    def assert_exact(self) -> None:
        """Each update once, in order."""
        counts = self.counts()
        assert {w: len(found) for w, found in counts.items()} == dict(self.wanted)
        for word, found in counts.items():
            assert found == list(range(1, len(found) + 1)), f"{word}: {found[:50]}"

    def process(self, state: str = "state", **more: Any) -> Process:
        """A worker process."""
        return Process(self, state, **more)


class Process:
    """A worker in a process of its own. ``signal_at``: the step, its number and the signal that it then sends itself."""

    def __init__(
        self,
        application: Application,
        state: str = "state",
        *,
        signal_at: tuple[CommitStep, int, int] | None = None,
        partitions: Sequence[int] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        given = application.settings(state, **(settings or {}))
        self.log = application.folder / f"worker-{time.time_ns():x}.log"
        order = {
            **application.order,
            "source": application.source,
            "output": application.output,
            "partitions": partitions,
            "signal_at": signal_at,
            "settings": {
                "application_id": given.application_id,
                "bootstrap_servers": given.bootstrap_servers,
                "state_dir": given.state_dir,
                "guarantee": given.guarantee,
                "session_timeout_ms": given.session_timeout_ms,
                "commit_interval_ms": given.commit_interval_ms,
                "batch_max_records": given.batch_max_records,
                "state_flush_interval_ms": given.state_flush_interval_ms,
                "transaction_timeout_ms": given.transaction_timeout_ms,
                "metrics_port": given.metrics_port,
                "consumer": dict(given.consumer),
            },
        }
        self._process = started(application.module, order, self.log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        """What it printed."""
        return self.log.read_text()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait()

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status; negative: the signal that ended it."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"process still runs after {limit_s} s; it said:\n{self.said}") from None

    def stop(self) -> None:
        """SIGTERM, and wait for its end, which must be well."""
        until("it listens to signals", lambda: "ready" in self.said)
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.said

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.kill()
