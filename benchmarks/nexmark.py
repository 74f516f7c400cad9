"""Nexmark on Penstock: ``python -m benchmarks.nexmark``. Each query drains one topic of events on a real worker.

The answer is held against the test driver's on the same records, which the project's tests hold against an oracle of their
own: ``equal`` if the same records were written, ``equal tables`` if the last value of every key is the same (a query that
joins repartitioned streams may write other updates on the way, as their arrival is not the driver's). Query 12 counts by
the clock, so only its sum can be held against anything.

A table of records/s and CPU-seconds per million goes to standard output, a line of JSON per query to the results file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine
from benchmarks.processes import stop, tree, usage
from benchmarks.report import markdown
from benchmarks.steady import Sample, Steady, steady
from benchmarks.systems import ROOT
from benchmarks.topics import Log
from benchmarks.workloads import Variant
from penstock.state.log import Record
from penstock.streams.settings import WorkerSettings
from penstock.streams.test_driver import TopologyTestDriver
from penstock.streams.worker import Worker
from penstock.topologies.examples.nexmark.generator import records, side_input
from penstock.topologies.examples.nexmark.suite import QUERIES

EVENTS = 500_000
STREAM: dict[str, Any] = {"event_rate": 10_000, "out_of_order_group_size": 1_000}
SIDE_INPUT = "nexmark-side-input"
LIMIT_S = 300.0
QUIET_S = 2.5
WINDOW_S = 10.0
"""Of query 12, whose last windows close by the clock."""

Pair = tuple[bytes | None, bytes | None]


class Result(NamedTuple):
    """One query's run. ``steady``: of its steady part; ``verdict``: how the answer compares, or what went wrong."""

    query: str
    events: int
    written: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    steady: Steady | None
    verdict: str


def work(query: str) -> None:
    """Run one worker in this process until SIGTERM."""
    settings = WorkerSettings(
        application_id=os.environ["APP_ID"],
        bootstrap_servers=os.environ["BOOTSTRAP"],
        state_dir=os.environ["STATE_DIR"],
        guarantee="at_least_once",
        commit_interval_ms=1_000,
        producer={"compression.type": "lz4"},
    )
    worker = Worker(QUERIES[query](), settings)
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.run()


def expected(query: str, events: list[Record]) -> list[Pair]:
    """What the test driver writes."""
    with TopologyTestDriver(QUERIES[query]()) as driver:
        if query == "q13":
            driver.pipe_raw({SIDE_INPUT: list(side_input())})
        driver.pipe_raw({"nexmark": events})
        return [(r.key, r.value) for r in driver.read_raw(query)]


def verdict(query: str, right: list[Pair], found: list[Pair]) -> str:
    """How two answers compare; starts with ``equal`` if they do."""
    if query == "q12":
        counted = sum(json.loads(v).get("bid_count", 0) for _, v in found if v)
        return f"counts by the clock: {counted:,} bids" if counted else "counted no bid"
    if Counter(right) == Counter(found):
        return "equal"
    if dict(right) == dict(found) and None not in dict(right):
        return "equal tables"
    return f"differs: {len(found):,} records instead of {len(right):,}"


class Run:
    """Queries on one broker, with one stream of events in its topic."""

    def __init__(self, log: Log, folder: Path, events: list[Record]) -> None:
        self.log = log
        self.folder = folder
        self.events = events
        log.create("nexmark")
        log.write("nexmark", ((r.key, r.value, r.timestamp_ms) for r in events))
        log.create(SIDE_INPUT)
        log.write(SIDE_INPUT, ((r.key, r.value, r.timestamp_ms) for r in side_input()))

    def query(self, name: str) -> Result:
        """Run a query to the end of its input."""
        for topic in (name, f"{name}-success"):
            self.log.create(topic)
        application = f"nexmark-{name}-{int(time.time())}"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)]),
            "APP_ID": application,
            "BOOTSTRAP": self.log.bootstrap,
            "STATE_DIR": str(self.folder / "state" / application),
        }
        command = [sys.executable, "-m", "benchmarks.nexmark", "--worker", name]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{application}.log").open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            samples, done = self._watch(process, application, QUIET_S + (WINDOW_S if name == "q12" else 0))
        finally:
            stop(process)
        peak = max((s.resident_bytes for s in samples), default=0)
        count = len(self.events)
        if done is None:
            return Result(name, count, 0, 0.0, 0.0, peak, None, f"not done, see {application}.log")
        found = list(self.log.read(name))
        part = steady(samples, count)
        said = verdict(name, expected(name, self.events), found)
        self.log.remove_application(application)
        return Result(
            name, count, len(found), done.at_s, done.cpu_s, peak, part if isinstance(part, Steady) else None, said
        )

    def _watch(
        self, process: subprocess.Popen[bytes], application: str, quiet_s: float
    ) -> tuple[list[Sample], Sample | None]:
        """Samples until all is committed and nothing more comes; the first of that state."""
        samples: list[Sample] = []
        began = changed_s = time.monotonic()
        last: Sample | None = None
        while time.monotonic() - began < LIMIT_S:
            if process.poll() is not None:
                return samples, None
            cost, now = usage(tree(process.pid)), time.monotonic()
            progress = self.log.progress(application, "nexmark")
            if progress is not None:
                sample = Sample(now - began, cost.cpu_s, cost.resident_bytes, 0.0, 0.0, *progress)
                samples.append(sample)
                if last is None or (last.committed, last.waiting) != tuple(progress):
                    last, changed_s = sample, now
                if progress.committed >= len(self.events) and progress.waiting <= 0 and now - changed_s > quiet_s:
                    return samples, last
            time.sleep(0.2)
        return samples, None


def lines(results: Iterable[Result]) -> str:
    """The table."""
    rows = []
    for r in results:
        part = r.steady
        rate = f"{part.records_per_s:,.0f}" if part else f"{r.events / r.seconds:,.0f} (whole)" if r.seconds else ""
        cost = f"{part.cpu_s_per_million:.1f}" if part else f"{r.cpu_s / r.events * 1e6:.1f} (whole)"
        rows.append([r.query, f"{r.events:,}", f"{r.written:,}", rate, cost, f"{r.peak_bytes / 1e6:.0f}", r.verdict])
    return markdown(["query", "events", "written", "events/s", "CPU s/M", "peak MB", "check"], rows)


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """The address of a broker of its own."""
    from penstock.streams.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(heap="768m") as kafka:
        yield kafka.bootstrap_servers


def main() -> int:
    """Run the queries; 1 if an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark", description=__doc__.split("\n")[0])
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="qN")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--work", type=Path, default=ROOT / "var" / "benchmarks" / "nexmark")
    parser.add_argument("--worker", choices=list(QUERIES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return 0
    folder: Path = options.work.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    with broker() as bootstrap, (folder / f"results-{time.strftime('%Y-%m-%d-%H%M%S')}.jsonl").open("w") as out:
        print(json.dumps({"kind": "machine", **machine()}), file=out)
        run = Run(Log(bootstrap, folder, Variant(partitions=1)), folder, list(records(options.events, **STREAM)))
        for name in options.queries:
            results.append(run.query(name))
            found = results[-1]._asdict() | {"steady": results[-1].steady and results[-1].steady._asdict()}
            print(json.dumps({"kind": "nexmark", **found}), file=out, flush=True)
            print(f"{time.strftime('%H:%M:%S')} {name}: {results[-1].verdict}", file=sys.stderr, flush=True)
    print(lines(results))
    return int(any(not r.verdict.startswith(("equal", "counts")) for r in results))


if __name__ == "__main__":
    sys.exit(main())
