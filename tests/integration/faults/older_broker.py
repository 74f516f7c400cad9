"""The broker's group protocol on an older broker: ``python -m tests.integration.faults.older_broker [--version 4.1.1]``.

Fetches that broker by its Maven coordinates, as the embedded one is fetched (next to it in the cache, its sums not checked).
Runs more workers with ``group.protocol=consumer`` than there are partitions, under exactly-once, while others come, go and
are killed. Prints how often each joined again, and ends with an error unless the answers are exact and nobody joined again
while all were left alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from penstock.streams.kafka.embedded import EmbeddedKafka, launch, resolve
from penstock.streams.kafka.embedded.java import find_java
from penstock.streams.kafka.embedded.paths import cache_dir
from tests.integration.faults.workers import StruckApplication
from tests.integration.worker.application import PARTITIONS, until

VERSION = "4.1.1"
"""The last one before KIP-1251 that has the protocol as it is in use."""
CALM_S = 30.0
LINES = 200
WORKERS = PARTITIONS + 2


def jars(version: str) -> Path:
    """The broker's jars, fetched if they are not there."""
    folder = cache_dir() / f"kafka-{version}-unchecked"
    if not folder.is_dir():
        others = [coordinate for coordinate in resolve.COORDINATES if coordinate[0] != "org.apache.kafka"]
        resolve.COORDINATES = (("org.apache.kafka", "kafka_2.13", version), *others)
        with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
            resolve._run_ivy(find_java().path, Path(scratch), Path(scratch) / "jars")
            (Path(scratch) / "jars").rename(folder)
    return folder


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default=VERSION)
    return int(any(rejoined(parser.parse_args().version)))


def rejoined(version: str) -> list[int]:
    """How often each worker joined again while all were left alone. Raises ``AssertionError`` if an answer is wrong."""
    folder = jars(version)
    launch.kafka_jars = lambda java: folder
    with tempfile.TemporaryDirectory(prefix="older-") as name, EmbeddedKafka() as cluster:
        app = StruckApplication(cluster.bootstrap_servers, "older", Path(name))
        app.add_lines(LINES)
        more = {"consumer": {"group.protocol": "consumer"}}
        workers = [app.worker(f"w{i}", **more) for i in range(WORKERS)]
        try:
            app.wait()
            until("all are members", lambda: app.admin.group_members(app.name) == WORKERS)
            settled = [len(worker.reported("Rejoining")) for worker in workers]
            until_s = time.monotonic() + CALM_S
            while time.monotonic() < until_s:
                app.add_lines(5)
                time.sleep(0.5)
            calm = [len(worker.reported("Rejoining")) - n for worker, n in zip(workers, settled, strict=True)]
            print(
                f"Kafka {version}: joined again in {CALM_S:.0f} s in which nobody came or went: {calm}",
                flush=True,
            )
            workers[0].stop()
            workers[1].kill()
            app.add_lines(LINES)
            late = app.worker("late", **more)
            workers.append(late)
            app.wait()
            late.stop()
            app.add_lines(LINES)
            app.wait()
            print(f"joined again in all: {[len(worker.reported('Rejoining')) for worker in workers]}")
            fenced = [fact for worker in workers for fact in worker.reported("DeadWorkerFenced")]
            print(f"dead workers fenced: {len(fenced)}")
        finally:
            for worker in workers:
                worker.kill()
        app.assert_exact()
        print("exact")
    return calm


if __name__ == "__main__":
    sys.exit(main())
