"""``python -m tests.chaos.peers SYSTEM …``: the same random kills and freezes for Penstock and its peers, exactly-once.

Each system runs the word count of the benchmark with an update for every word, in three processes, on one real broker. From
one seed come the times at which a process is killed (and started again) or frozen for 1 to 22 s, with sessions and
transactions of 6 s. Then all heals, and what readers of committed records see is judged without knowing the systems: each
word must have 1, 2, … its number, once each and in order. Prints one row for each system, and writes what it found wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.systems import SYSTEMS, Command, System
from penstock.streams.batch.background import in_background
from penstock.streams.kafka.embedded import EmbeddedKafka
from tests.chaos.ledger import table
from tests.chaos.log_reading import LogReader, Topic
from tests.chaos.oracle import Verdict, sequences

ROOT = Path(__file__).parents[2]
PROCESSES = 3
PARTITIONS = 4
WORDS = [f"w{i}" for i in range(40)]
LINES_PER_S = 40.0
EVERY_S = 4.0
KILLS = 0.55
FROZEN_S = (1.0, 22.0)
TIMEOUT_MS = "6000"
STALLED_S = 90.0
SHORT_SESSIONS = {
    "penstock": {
        "EMISSION": "every_update",
        "PENSTOCK_SESSION_TIMEOUT_MS": TIMEOUT_MS,
        "PENSTOCK_TRANSACTION_TIMEOUT_MS": TIMEOUT_MS,
    },
    "kafka-streams": {
        "CACHE_BYTES": "0",
        "JDK_JAVA_OPTIONS": "-Xms128m -Xmx256m",
        "KS_EXTRA": f"main.consumer.session.timeout.ms={TIMEOUT_MS};main.consumer.heartbeat.interval.ms=2000;"
        f"producer.transaction.timeout.ms={TIMEOUT_MS}",
    },
    "quix": {"SESSION_TIMEOUT_MS": TIMEOUT_MS, "TRANSACTION_TIMEOUT_MS": TIMEOUT_MS},
}
"""Each system's settings for it."""


class Peer:
    """One process of a system, over its lives."""

    def __init__(self, command: Command, env: dict[str, str], folder: Path) -> None:
        self._command, self._env, self._log = command, env, folder / "log.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self.ended = 0
        self.frozen_until_s = 0.0
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, "wordcount"], cwd=ROOT, env=self._env, stdout=log, stderr=subprocess.STDOUT
            )
        self.frozen_until_s = 0.0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def freeze(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        self.frozen_until_s = time.monotonic() + seconds

    def look(self) -> None:
        """Let it go on when its time is over; start it again if it has ended by itself, as a supervisor would."""
        if self.process.poll() is not None:
            self.ended += 1
            time.sleep(0.5)
            self.start()
        elif self.frozen_until_s and time.monotonic() >= self.frozen_until_s:
            self.thaw()

    def thaw(self) -> None:
        if self.frozen_until_s:
            self.process.send_signal(signal.SIGCONT)
            self.frozen_until_s = 0.0

    def end(self) -> None:
        self.thaw()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait()


@dataclasses.dataclass
class Scenario:
    """What struck one system, and the judgement."""

    system: str
    faults: Counter[str]
    ended: int
    verdict: Verdict
    converged: bool

    def row(self) -> dict[str, str]:
        numbers = {n: str(getattr(self.verdict, n)) for n in ("results", "lost", "doubled", "regressions", "stale")}
        faults = {"kills": str(self.faults["kill"]), "freezes": str(self.faults["freeze"])}
        return {"system": self.system, **faults, "ended by itself": str(self.ended), **numbers} | {
            "all came out": "yes" if self.converged else "no"
        }


def lines(producer: Producer, topic: str, seed: int, stop: threading.Event) -> None:
    """Write lines of words until told to stop."""
    rng = random.Random(seed)
    while not stop.wait(rng.expovariate(LINES_PER_S)):
        producer.produce(topic, " ".join(rng.choices(WORDS, k=5)), key=str(rng.randrange(1_000)))
        producer.poll(0)
    assert producer.flush(60) == 0


@contextlib.contextmanager
def writing(servers: str, topic: str, seed: int) -> Iterator[None]:
    """Input is written inside the block."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    with in_background(partial(lines, producer, topic, seed), "writer"):
        yield


def judged(source: Topic, out: Topic) -> Verdict:
    """Each word's updates against the words of the input."""
    wanted: Counter[str] = Counter()
    for records in source.values():
        wanted.update(word for record in records for word in (record.value or b"").decode().split())
    found: dict[str, list[int]] = {}
    for records in out.values():
        for record in records:
            found.setdefault((record.key or b"").decode().strip('"'), []).append(int(record.value or b"0"))
    verdict = Verdict()
    sequences(verdict, "words", wanted, found)
    return verdict


def strike(peers: list[Peer], seed: int, seconds: float) -> Counter[str]:
    """Kill and freeze for so long."""
    rng, happened = random.Random(seed), Counter[str]()
    end = time.monotonic() + seconds
    due = time.monotonic() + rng.expovariate(1 / EVERY_S)
    while time.monotonic() < end:
        for peer in peers:
            peer.look()
        if time.monotonic() >= due:
            due = time.monotonic() + rng.expovariate(1 / EVERY_S)
            peer, kills = rng.choice(peers), rng.random() < KILLS
            frozen_s = math.exp(rng.uniform(*map(math.log, FROZEN_S)))
            if kills:
                peer.kill()
                happened["kill"] += 1
            elif not peer.frozen_until_s and sum(bool(p.frozen_until_s) for p in peers) < PROCESSES - 1:
                peer.freeze(frozen_s)
                happened["freeze"] += 1
        time.sleep(0.05)
    return happened


def converged(reader: LogReader, source: str, out: str, peers: list[Peer]) -> Verdict:
    """The first verdict in which nothing is missing, or the last one if nothing more has come out for ``STALLED_S``."""
    least, since = -1, time.monotonic()
    while True:
        for peer in peers:
            peer.look()
        found = reader.read([source, out])
        verdict = judged(found[source], found[out])
        missing = verdict.lost + verdict.stale
        if missing != least:
            least, since = missing, time.monotonic()
        if not missing or time.monotonic() - since > STALLED_S:
            return verdict
        time.sleep(1.0)


def run(system: System, command: Command, servers: str, seed: int, seconds: float, folder: Path) -> Scenario:
    """One scenario on one system."""
    name = f"{system.name}-{seed}-{int(time.time())}"
    reader = LogReader(servers)
    source, out = f"{name}-in", f"{name}-out"
    reader.create([source, out], PARTITIONS, 1)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)]), **system.environment}
    env |= {"APP_ID": name, "BOOTSTRAP": servers, "TOPIC_IN": source, "TOPIC_TABLE": "", "TOPIC_OUT": out}
    env |= {"GUARANTEE": "exactly_once_v2", "COMMIT_MS": "200", "THREADS": "1", **SHORT_SESSIONS[system.name]}
    peers = []
    try:
        with writing(servers, source, seed):
            for number in range(PROCESSES):
                own = folder / name / str(number)
                peers.append(Peer(command, {**env, "STATE_DIR": str(own / "state")}, own))
            time.sleep(20)
            faults = strike(peers, seed, seconds)
            for peer in peers:
                peer.thaw()
        verdict = converged(reader, source, out, peers)
        nothing_missing = verdict.lost == verdict.stale == 0
    finally:
        for peer in peers:
            peer.end()
    return Scenario(system.name, faults, sum(p.ended for p in peers), verdict, nothing_missing)


def main() -> int:
    """Run; the exit status is 1 if Penstock was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.peers", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"of {', '.join(SHORT_SESSIONS)} (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long faults strike (default: 120)")
    args = parser.parse_args()
    unknown = set(args.systems) - set(SHORT_SESSIONS)
    if unknown:
        parser.error(f"there is no system {', '.join(sorted(unknown))}; name some of {', '.join(SHORT_SESSIONS)}")
    work = ROOT / "var" / "chaos-peers"
    work.mkdir(parents=True, exist_ok=True)
    done = []
    with EmbeddedKafka(heap="512m") as kafka:
        for name in args.systems or list(SHORT_SESSIONS):
            command = SYSTEMS[name].make_ready(work, ROOT / "benchmarks" / "peers")
            done.append(run(SYSTEMS[name], command, kafka.bootstrap_servers, args.seed, args.seconds, work))
            print(done[-1].row(), *done[-1].verdict.examples[:5], sep="\n  ", flush=True)
    rows = [scenario.row() for scenario in done]
    print(table(list(rows[0]), rows))
    return int(any(s.system == "penstock" and not (s.verdict.exact() and s.converged) for s in done))


if __name__ == "__main__":
    sys.exit(main())
