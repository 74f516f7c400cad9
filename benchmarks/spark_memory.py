"""``python -m benchmarks.spark_memory``: the memory of Spark's jobs against the records that they read, 1 M to 50 M.

Each job runs in Spark's ``local-cluster``: a driver, and two executors that are processes of their own, each with Python
workers. Ten times a second the resident memory of each is read; a figure is the highest of the largest process of its
kind. A job's answer is checked when its memory has been taken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import oracle, spark_work
from benchmarks.harness import Opened, add_common, open_bench, say
from benchmarks.plots import Line, chart
from benchmarks.processes import stop, tree, usage
from benchmarks.report import markdown
from benchmarks.spark_work import Topic
from benchmarks.systems import ROOT
from benchmarks.workloads import Variant

TITLE = "Memory of Spark's jobs"
MARKS = (1_000_000, 5_000_000, 20_000_000, 50_000_000)
KEYS = 100_000
JOBS = ("replay", "compact", "catch-up")
KINDS = ("driver, JVM", "driver, Python", "executor, JVM", "executor, Python")
HEAD = ["job", "records", *(f"{kind}, MB" for kind in KINDS), "s", "check"]
HEAP = "1g"
MEASURED = "measured"
"""What the job's process writes when its work is done, before its answer is checked."""
EVERY_S = 0.1


class Point(NamedTuple):
    """A job over a number of records. ``bytes_by_kind``: the highest resident memory of one process of each kind."""

    job: str
    records: int
    bytes_by_kind: dict[str, int]
    seconds: float
    void: str

    def row(self) -> list[str]:
        """The table's row, below ``HEAD``."""
        memory = [f"{self.bytes_by_kind.get(kind, 0) / 1e6:,.0f}" for kind in KINDS]
        return [self.job, f"{self.records:,}", *memory, f"{self.seconds:.0f}", self.void or "right"]


def kind_of(pid: int, program: int) -> str | None:
    """Which of ``KINDS`` a process is; ``program``: the driver's Python."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return None
    if b"CoarseGrainedExecutorBackend" in command:
        return "executor, JVM"
    if b"org.apache.spark.deploy" in command and b"java" in command:
        return "driver, JVM"
    if b"pyspark.daemon" in command or b"pyspark/daemon" in command:
        return "executor, Python"
    return "driver, Python" if pid == program else None


class Watch:
    """Notes the highest memory of each kind of process below a program, until it is closed."""

    def __init__(self, program: int) -> None:
        self.bytes_by_kind: dict[str, int] = {}
        self._program, self._closed = program, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._closed.wait(EVERY_S):
            for pid in tree(self._program):
                if (kind := kind_of(pid, self._program)) is not None:
                    now = usage([pid]).resident_bytes
                    self.bytes_by_kind[kind] = max(now, self.bytes_by_kind.get(kind, 0))

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._thread.join()


def measured(job: str, topic: Topic, folder: Path, limit_s: float) -> Point:
    """The job in a process of its own."""
    order = {"job": job, "folder": str(folder / job), "topic": topic._asdict()}
    shutil.rmtree(folder / job, ignore_errors=True)
    began = time.monotonic()
    with (folder / f"{job}-{topic.records}.log").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_memory", "--work-on", json.dumps(order)],
            env=spark_work.environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    watch, late = Watch(process.pid), threading.Timer(limit_s, partial(stop, process))
    late.start()
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        done = any(line.decode().strip() == MEASURED for line in lines)
        seconds = time.monotonic() - began
        watch.close()
        said = process.stdout.read().decode().strip()
        code = process.wait()
    finally:
        late.cancel()
        stop(process)
    void = said if code == 0 and done else f"the job ended with status {code}, see {job}-{topic.records}.log"
    shutil.rmtree(folder / job, ignore_errors=True)
    return Point(job, topic.records, watch.bytes_by_kind, seconds, void)


# -- the job's process -----------------------------------------------------------------------------------------------


def work_on(order: dict[str, Any]) -> None:
    """Run a job, say so, then write what is wrong with its answer."""
    from penstock.streams.spark.session import SparkSettings, spark_session

    heap = int(HEAP.removesuffix("g")) * 1024
    settings = SparkSettings(
        master=f"local-cluster[2,1,{heap}]", driver_memory=HEAP, conf={"spark.executor.memory": HEAP}
    )
    with spark_session(settings):
        wrong = _JOBS[order["job"]](Topic(**order["topic"]), Path(order["folder"]))
        print(MEASURED, flush=True)
        print(wrong(), flush=True)


def _replay(topic: Topic, folder: Path) -> Callable[[], str]:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from penstock.streams.spark import Connection, replay

    done = replay(
        partial(spark_work.counted, topic.name),
        application_id="spark-memory",
        connection=Connection(topic.bootstrap),
        output=str(folder),
        to="end",
    )

    def wrong() -> str:
        spark = SparkSession.builder.getOrCreate()
        rows = spark.read.parquet(*(f"{folder}/{file.path}" for file in done.replay.store_files("counts")))
        counted = rows.agg(F.sum(F.conv(F.hex("value"), 16, 10).cast("long"))).first()
        assert counted is not None
        return "" if counted[0] == topic.records else f"counted {counted[0]:,} of {topic.records:,} clicks"

    return wrong


def _compact(topic: Topic, folder: Path) -> Callable[[], str]:
    from penstock.streams.spark import Connection, compact

    done = compact(
        partial(spark_work.tabled, topic.name),
        application_id="spark-memory",
        connection=Connection(topic.bootstrap),
        repository=str(folder),
        at="end",
    )
    entries = sum(file.entries for store in done.stores for file in store.manifest.files)

    def wrong() -> str:
        users = len(oracle.clicks_per_user(topic.records, topic.keys))
        return "" if entries == users else f"{entries:,} of {users:,} users"

    return wrong


def _catch_up(topic: Topic, folder: Path) -> Callable[[], str]:
    from penstock.streams.spark.handover.catch_up import catch_up
    from penstock.streams.worker.settings import WorkerSettings

    settings = WorkerSettings(
        application_id=f"spark-memory-{topic.records}",
        bootstrap_servers=topic.bootstrap,
        state_dir=str(folder),
        guarantee="exactly_once",
    )
    done = catch_up(partial(spark_work.counted, topic.name), settings)
    return lambda: "" if done.work.records == topic.records else f"{done.work.records:,} of {topic.records:,} records"


_JOBS = {"replay": _replay, "compact": _compact, "catch-up": _catch_up}


# -- the command -----------------------------------------------------------------------------------------------------


def drawn(points: Sequence[Point]) -> str:
    """The chart, as SVG."""
    lines = [
        Line(
            f"{job}: {kind}",
            [(p.records, p.bytes_by_kind.get(kind, 0) / 1e6) for p in points if p.job == job],
            dashed=kind.startswith("driver"),
        )
        for job in dict.fromkeys(p.job for p in points)
        for kind in KINDS
        if kind != "driver, Python"
    ]
    return chart(TITLE, lines, "records", "resident memory of one process, MB")


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory", description=TITLE)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="of: %(choices)s (default: all)")
    parser.add_argument("--marks", nargs="+", type=int, default=list(MARKS), help="records of each topic (%(default)s)")
    parser.add_argument("--svg", type=Path, help="where the chart goes")
    parser.add_argument("--work-on", help=argparse.SUPPRESS)
    add_common(parser)
    options = parser.parse_args(argv)
    if options.work_on:
        work_on(json.loads(options.work_on))
        return 0
    with open_bench(options) as opened:
        points = _all(opened, options)
    print(markdown(HEAD, [point.row() for point in points]))
    if options.svg:
        options.svg.write_text(drawn(points))
    return int(any(point.void for point in points))


def _all(opened: Opened, options: argparse.Namespace) -> list[Point]:
    bench, folder = opened.bench(Variant(keys=KEYS)), opened.work / "spark-memory"
    folder.mkdir(parents=True, exist_ok=True)
    points = []
    for records in options.marks:
        name = bench.log.load("clicks", records)
        topic = Topic(bench.log.bootstrap, name, records, KEYS, bench.log.base_ms)
        for job in options.jobs:
            points.append(measured(job, topic, folder, options.limit))
            say(" | ".join(points[-1].row()))
        bench.log.remove_application(f"spark-memory-{records}")
        bench.log.delete([name])
    return points


if __name__ == "__main__":
    sys.exit(main())
