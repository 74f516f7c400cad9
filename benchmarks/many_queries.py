"""Many queries on one topic: ``python -m benchmarks.many_queries``. One worker that runs all of them in one topology reads
and decodes the topic once; the alternative is a worker for each. Measured: all of them together, and a few on their own,
from which the sum over all is reckoned.

Query *i* of *n* keeps the clicks whose page ends in *i* (of the last digits) and writes who clicked to a topic of its own:
a filter and a projection in row functions. The CPU is that of the worker's process, the client's threads among it, from the
first fifth of the records to the last; start-up is left out. Each query's outputs are counted against the data's own
numbers, and a figure whose count differs is void.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import data
from benchmarks.harness import add_common, open_bench
from benchmarks.report import markdown
from benchmarks.systems import ROOT
from benchmarks.topics import Log
from benchmarks.workloads import Variant
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology

TEXT = """One worker that runs all the queries in one topology reads and decodes the topic once; beside it a worker with one
query, and the sum over a worker for each. A query is a filter and a projection in Python functions; CPU of the worker's
process, from the first fifth of the records on."""
QUERIES = 100
RECORDS = 300_000
ALONE = 3
WARM_PART = 0.2
LIMIT_S = 240.0


class Result(NamedTuple):
    """CPU-seconds per million records of the topic: of one worker with all queries, and of a worker with one (the median
    of those tried). ``ratio``: together against one worker each. ``void``: why the figures tell nothing, or empty."""

    queries: int
    records: int
    together_cpu_s: float
    alone_cpu_s: float
    ratio: float
    void: str


def topology(topic: str, queries: Sequence[int], of: int) -> Topology:
    """These queries of so many. Each reads the topic for itself, as if it knew of no other."""
    builder = StreamsBuilder("many-queries", key=str, value=dict)
    for number in queries:
        clicks = builder.stream(topic)
        chosen = clicks.filter(partial(_of_page, of, number), name=f"of-{number}")
        chosen.map_values(_who, name=f"who-{number}", value=str).to(output(number), name=f"to-{number}")
    return builder.build()


def _of_page(of: int, number: int, key: str, click: dict[str, Any]) -> bool:
    return int(click["url"][-5:]) % of == number


def _who(click: dict[str, Any]) -> str:
    return str(click["user"])


def output(number: int) -> str:
    """The topic that a query writes."""
    return f"many-queries-{number}"


def wanted(records: int, of: int) -> Counter[int]:
    """How many records each query must write."""
    found: Counter[int] = Counter()
    for block, _, count in data.blocks(records):
        _, pages = data.draw_clicks(block, count)
        found.update((pages % of).tolist())
    return found


def work(order: dict[str, Any]) -> None:
    """One worker in this process; prints its CPU-seconds from the warm part to the end."""
    settings = WorkerSettings(
        application_id=order["application"],
        bootstrap_servers=order["bootstrap"],
        state_dir=order["state_dir"],
        guarantee="at_least_once",
    )
    worker = Worker(topology(order["topic"], order["queries"], order["of"]), settings)
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.start()
    began: tuple[float, int] | None = None
    deadline = time.monotonic() + LIMIT_S
    while worker.running and time.monotonic() < deadline:
        done = worker.runtime.records if worker.runtime is not None else 0
        if began is None and done >= WARM_PART * order["records"]:
            began = (time.process_time(), done)
        if done >= order["records"]:
            break
        time.sleep(0.01)
    worker.stop()
    assert began is not None, "the worker ended before its warm part was over"
    print(json.dumps({"cpu_s": time.process_time() - began[0], "records": order["records"] - began[1]}))


class Run:
    """Workers on one broker, with one topic of clicks."""

    def __init__(self, log: Log, folder: Path, records: int, of: int) -> None:
        self.log = log
        self.folder = folder
        self.records = records
        self.of = of
        self.topic = log.load("clicks", records)
        self.right = wanted(records, of)

    def measure(self, queries: Sequence[int]) -> tuple[float, str]:
        """CPU-seconds per million of one worker with these queries, and what is wrong with its answer."""
        for number in queries:
            self.log.create(output(number))
        application = f"many-queries-{time.time_ns():x}"
        state_dir = self.folder / "state" / application
        order = {
            "application": application,
            "bootstrap": self.log.bootstrap,
            "state_dir": str(state_dir),
            "topic": self.topic,
            "queries": list(queries),
            "of": self.of,
            "records": self.records,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.many_queries", "--worker", json.dumps(order)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)])},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        shutil.rmtree(state_dir, ignore_errors=True)
        if done.returncode:
            return 0.0, f"the worker ended with status {done.returncode}"
        found = {number: self.log.count(output(number)) for number in queries}
        wrong = [n for n in queries if found[n] != self.right[n]]
        self.log.remove_application(application)
        said = json.loads(done.stdout.splitlines()[-1])
        void = f"query {wrong[0]} wrote {found[wrong[0]]:,} of {self.right[wrong[0]]:,} records" if wrong else ""
        return said["cpu_s"] / said["records"] * 1e6, void


def many_queries(
    log: Log, folder: Path, *, queries: int = QUERIES, records: int = RECORDS, alone: int = ALONE
) -> Result:
    """All queries in one worker, and ``alone`` of them in one each."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(log, folder, records, queries)
    together, void = run.measure(range(queries))
    single = [run.measure([number]) for number in range(alone)]
    void = void or next((said for _, said in single if said), "")
    one = statistics.median(cpu_s for cpu_s, _ in single)
    return Result(queries, records, together, one, together / (one * queries) if one else float("nan"), void)


HEAD = ["queries", "records", "together, CPU s/M", "one alone, CPU s/M", "one worker each, CPU s/M", "ratio", "check"]


def row(result: Result) -> list[str]:
    """The table's row, below ``HEAD``."""
    return [
        f"{result.queries}",
        f"{result.records:,}",
        f"{result.together_cpu_s:.1f}",
        f"{result.alone_cpu_s:.2f}",
        f"{result.alone_cpu_s * result.queries:.0f}",
        f"{result.ratio:.3f}",
        result.void or "counts equal",
    ]


def main() -> int:
    """Measure; 1 if an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_queries", description=__doc__.split("\n")[0])
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--alone", type=int, default=ALONE, help="workers with one query (%(default)s)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    add_common(parser)
    options = parser.parse_args()
    if options.worker:
        work(json.loads(options.worker))
        return 0
    with open_bench(options) as opened:
        bench = opened.bench(Variant(partitions=1))
        found = many_queries(
            bench.log, opened.work, queries=options.queries, records=options.records, alone=options.alone
        )
        bench.write("table", {"title": "Many queries on one topic", "text": TEXT, "head": HEAD, "rows": [row(found)]})
    print(markdown(HEAD, [row(found)]))
    return int(bool(found.void))


if __name__ == "__main__":
    sys.exit(main())
