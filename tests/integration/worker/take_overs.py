"""How long a take-over takes: ``python -m tests.integration.worker.take_overs [--keys N] [--rounds N] [--separate]``.

Two workers count by key, a task each with ``--keys`` keys in its store, on a broker with its default wait before it looks
for timed-out transactions. While records come all the time, the worker of one task is killed. The time is from the kill
until readers of committed records see an answer to a record of that task that was written after the kill. Then the killed
one is started again, and the next round begins when both have caught up. By default they share a state folder, as on one
machine; with ``--separate`` each has its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from penstock.state.log import TopicPartition
from penstock.streams.kafka.client_config import consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.group_view import GroupView
from penstock.streams.kafka.producer import KafkaProducer
from tests.integration.worker.application import ROOT, Cluster, until

TASKS = 2
LOAD_CHUNK = 50_000
BEAT_S = 0.05
LIMIT_S = 600.0
CAUGHT_UP_MS = 3_000
BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000"}
"""A broker's default, where the embedded one is quicker."""


@dataclasses.dataclass(eq=False)
class Beat(threading.Thread):
    """Writes a record to each partition every ``BEAT_S``, and reads when its answers become visible."""

    cluster: Cluster
    source: str
    output: str

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.written = 0
        self.seen_ms = [0] * TASKS
        """The youngest write, by partition, whose answer is visible: milliseconds since the start."""
        self.over = threading.Event()
        self._begun_s = time.monotonic()

    def now_ms(self) -> int:
        """Since the start; also what records have as their timestamps, which their answers take over."""
        return int((time.monotonic() - self._begun_s) * 1000) + 1

    def saw(self, partition: int, after_ms: int) -> bool:
        """Whether an answer to a younger write is visible."""
        return self.seen_ms[partition] > after_ms

    def run(self) -> None:
        """Until ``over``."""
        servers = self.cluster.bootstrap_servers
        producer = KafkaProducer(producer_config(servers, {}, low_latency=True))
        reader = KafkaConsumer(consumer_config(servers, f"{self.cluster.name}-beat", {}))
        places = [TopicPartition(self.output, p) for p in range(TASKS)]
        reader.assign_at({tp: reader.watermarks(tp)[1] for tp in places})
        while not self.over.is_set():
            for p in range(TASKS):
                producer.send(self.source, [b"beat-%d" % (self.written % 97)], [b"v"], [self.now_ms()], partition=p)
            self.written += 1
            for chunk in reader.poll(10_000, BEAT_S).chunks:
                self.seen_ms[chunk.partition] = max(self.seen_ms[chunk.partition], *chunk.timestamps)
        reader.close()
        producer.close()


class Workers:
    """The two of them, by slot."""

    def __init__(
        self, cluster: Cluster, folder: Path, session_ms: int, source: str, output: str, *, separate: bool
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._session_ms = session_ms
        self._separate = separate
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "counting.py").write_text(
            "from penstock.topologies.dsl.builder import StreamsBuilder\n"
            "builder = StreamsBuilder('keyed-count', key=bytes, value=bytes)\n"
            f"builder.stream({source!r}).group_by_key().count(name='counts').to({output!r})\n"
            "topology = builder.build()\n"
        )

    def start(self, slot: int) -> None:
        """A new process in this slot."""
        state = self._folder / (f"state-{slot}" if self._separate else "state")
        command = [
            sys.executable,
            "-m",
            "penstock.streams.cli.main",
            "worker",
            f"{self._folder / 'counting.py'}:topology",
        ]
        options = {
            "application-id": self._cluster.name,
            "bootstrap-server": self._cluster.bootstrap_servers,
            "state-dir": str(state),
            "guarantee": "exactly_once",
            "session-timeout-ms": str(self._session_ms),
            "log-format": "json",
        }
        command += [word for name, value in options.items() for word in (f"--{name}", value)]
        with (self._folder / f"said-{slot}").open("ab") as out:
            self.running[slot] = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT / ".package")}
            )

    def kill_one_with_a_task(self) -> tuple[int, int, float]:
        """Kill one that owns a partition; its slot, the partition, and when that was (monotonic)."""
        view = GroupView(self._cluster.bootstrap_servers, self._cluster.name)
        owners = {client: tp.partition for tp, client in view.owners().items()}
        view.close()
        for slot, process in self.running.items():
            said = (self._folder / f"said-{slot}").read_text().splitlines()
            facts = [json.loads(line) for line in said if line.startswith('{"time"')]
            partition = int([fact["task"] for fact in facts if fact.get("fact") == "TaskRunning"][-1].partition("_")[2])
            if partition in owners.values():
                process.kill()
                killed_s = time.monotonic()
                process.wait()
                return slot, partition, killed_s
        raise AssertionError("no worker has a task")

    def stop(self) -> None:
        """End both."""
        for process in self.running.values():
            process.kill()
            process.wait()


def load(cluster: Cluster, source: str, keys: int) -> None:
    """``keys`` keys for each task."""
    for p in range(TASKS):
        for start in range(0, keys, LOAD_CHUNK):
            wanted = [b"k%08d" % k for k in range(start, min(start + LOAD_CHUNK, keys))]
            cluster.write(source, [b"v"] * len(wanted), keys=wanted, timestamps=[1] * len(wanted), partition=p)


def measure(folder: Path, keys: int, rounds: int, session_ms: int, *, separate: bool) -> list[float]:
    """Seconds of each take-over."""
    took: list[float] = []
    with EmbeddedKafka(configs=BROKER) as kafka:
        cluster = Cluster(kafka.bootstrap_servers, "takeover")
        source, output = cluster.create("in", TASKS), cluster.create("out", TASKS)
        load(cluster, source, keys)
        beat = Beat(cluster, source, output)
        workers = Workers(cluster, folder, session_ms, source, output, separate=separate)
        try:
            workers.start(0)
            workers.start(1)
            beat.start()
            for number in range(rounds):
                until(
                    "both have caught up",
                    lambda: (
                        cluster.admin.group_members(cluster.name) == TASKS
                        and all(beat.now_ms() - seen < CAUGHT_UP_MS for seen in beat.seen_ms)
                    ),
                    LIMIT_S,
                )
                time.sleep(3.0 + number % 3 * 0.7)
                slot, partition, killed_s = workers.kill_one_with_a_task()
                killed_ms = beat.now_ms()
                until("its task is processed again", partial(beat.saw, partition, killed_ms), LIMIT_S, 0.01)
                took.append(time.monotonic() - killed_s)
                print(f"round {number}: partition {partition} of slot {slot} after {took[-1]:.2f} s", flush=True)
                workers.start(slot)
        finally:
            beat.over.set()
            beat.join()
            workers.stop()
    return took


def main(args: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--session-ms", type=int, default=6_000)
    parser.add_argument("--separate", action="store_true")
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="take-overs-") as folder:
        took = measure(Path(folder), options.keys, options.rounds, options.session_ms, separate=options.separate)
        for said in sorted(Path(folder).glob("said-*")):
            print(f"--- {said.name}, the last of it\n" + "\n".join(said.read_text().splitlines()[-25:]))
    session_s = options.session_ms / 1000
    print(
        f"{len(took)} take-overs, {options.keys} keys a task, session {session_s} s: p50 {statistics.median(took):.2f} s, "
        f"most {max(took):.2f} s; the most beyond the session: {max(took) - session_s:.2f} s"
    )


if __name__ == "__main__":
    main()
