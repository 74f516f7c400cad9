"""``python -m benchmarks.spark_jobs``: Spark as the second engine, compared with what a user of PySpark would write.

On one topic of clicks, in one Spark session, taking turns:

- ``replay``: a count per user and window by ``penstock.spark.replay``; the same count by ``groupBy`` on Spark's own Kafka
  source. Both write Parquet.
- ``frame``: an aggregation over all fields of the typed topic (``Application.topic``); the same with Spark's source
  and ``from_json``.
- ``compact``: the topic as a table, compacted into snapshots; a plain ``count`` of the topic by Spark's source.

Then ``catch-up``: a backlog of that count, worked off by ``penstock.spark`` in a process of its own, compared with
workers; both are timed from the start of the process until everything is committed. Every answer is held against the
data's own numbers or against the other's; a figure whose answer differs is void.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import spark_work
from benchmarks.harness import Opened, add_common, open_bench, say
from benchmarks.processes import stop
from benchmarks.report import markdown
from benchmarks.spark_work import Topic
from benchmarks.topics import Log
from benchmarks.workloads import Variant

TITLE = "Spark as the second engine"
TEXT = """The same work by Penstock's Spark side and by what a user of PySpark would write by hand, or by Penstock's worker,
on the same topic of clicks, taking turns: seconds are medians, ratios those of the same turn, with their range. A replay, a
frame and a compaction run in a Spark session that has run each once before; a catch-up is a process of its own, so its
start, the JVM's and Spark's are in it, as the worker's start is in the worker's."""
PARTS = ("replay", "frame", "compact", "catch-up")
RECORDS, BACKLOG = 2_000_000, 10_000_000
KEYS = 100_000
TURNS = 3
HEAD = ["work", "records", "Penstock, s", "compared with", "s", "ratio", "asked", "check"]
BESIDE = {
    "replay": "groupBy, window and count in PySpark",
    "frame": "Spark's Kafka source and from_json",
    "compact": "count of the topic by Spark's Kafka source",
    "catch-up": "one worker",
    "catch-up, two": "two workers",
}
ASKED = {"replay": "≤ 1.5", "frame": "≤ 1.2", "compact": "≤ 1.25", "catch-up": "≤ 1.43", "catch-up, two": ""}


class Turn(NamedTuple):
    """Seconds of both, and what is wrong with an answer."""

    ours_s: float
    theirs_s: float
    void: str


class Figure(NamedTuple):
    """The turns of one kind of work."""

    part: str
    records: int
    turns: list[Turn]

    @property
    def void(self) -> str:
        """Why the figure tells nothing; empty if it does."""
        return next((turn.void for turn in self.turns if turn.void), "")

    def row(self) -> list[str]:
        """The table's row, below ``HEAD``."""
        what = [self.part.split(",")[0], f"{self.records:,}"]
        if self.void:
            return [*what, "-", BESIDE[self.part], "-", "-", ASKED[self.part], f"VOID: {self.void}"]
        ours, theirs = (statistics.median(t[i] for t in self.turns) for i in (0, 1))
        ratios = [t.ours_s / t.theirs_s for t in self.turns]
        spread = f" [{min(ratios):.2f}–{max(ratios):.2f}]" if len(ratios) > 1 else ""
        ratio = f"{statistics.median(ratios):.2f}{spread}"
        return [*what, f"{ours:.1f}", BESIDE[self.part], f"{theirs:.1f}", ratio, ASKED[self.part], "answers equal"]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Its seconds and its answer."""
    began = time.monotonic()
    found = work()
    return time.monotonic() - began, found


# -- in one session ------------------------------------------------------------------------------------------------


def in_session(topic: Topic, folder: Path, parts: Sequence[str], turns: int) -> list[Figure]:
    """The parts that share a session; the first turn of each only warms up."""
    from penstock.streams.spark.session import spark_session

    found: dict[str, list[Turn]] = {part: [] for part in parts}
    with spark_session(spark_work.session()) as spark:
        for number in range(turns + 1):
            for part in parts:
                ours, theirs, verdict = spark_work.pair(part, spark, topic, folder)
                # Every second turn the other way round, so that neither always finds the other's warm caches.
                took = {work: timed(work) for work in ((theirs, ours) if number % 2 else (ours, theirs))}
                (ours_s, answer), (theirs_s, their_answer) = took[ours], took[theirs]
                turn = Turn(ours_s, theirs_s, verdict(answer, their_answer))
                say(
                    f"{part} {number or 'warm-up'}: {turn.ours_s:.1f} s, compared with {turn.theirs_s:.1f} s {turn.void}"
                )
                if number:
                    found[part].append(turn)
    return [Figure(part, topic.records, some) for part, some in found.items()]


# -- a backlog -----------------------------------------------------------------------------------------------------


def child(order: dict[str, Any], log_path: Path) -> subprocess.Popen[bytes]:
    """This program as another process, with work to do."""
    with log_path.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_jobs", "--work-on", json.dumps(order)],
            env=spark_work.environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def caught_up(log: Log, folder: Path, topic: Topic, processes: int, limit_s: float) -> tuple[float, str]:
    """Seconds until a new application has committed all of the topic, and why they tell nothing. ``processes``: workers;
    0: a catch-up."""
    application = f"spark-jobs-{time.time_ns():x}"
    order = {"application": application, "state": str(folder / "state" / application), **topic._asdict()}
    began = time.monotonic()
    running = [
        child({**order, "catch_up": not processes}, folder / "logs" / f"{application}.log")
        for _ in range(max(processes, 1))
    ]
    try:
        while time.monotonic() - began < limit_s:
            ended = [p for p in running if p.poll() is not None]
            if any(p.returncode for p in ended):
                return 0.0, f"a process ended with status {ended[0].returncode}, see logs/{application}.log"
            # A catch-up ends when it is done; only workers are asked, which takes the brokers' time.
            if (processes and _committed(log, application, topic)) or len(ended) == len(running):
                break
            time.sleep(0.1)
        else:
            return 0.0, f"not done after {limit_s:.0f} s, see logs/{application}.log"
        seconds = time.monotonic() - began
    finally:
        for process in running:
            stop(process)
    if not _committed(log, application, topic):
        return seconds, "it has not committed all of the topic"
    wrong = spark_work.wrong_changelog(log, application, topic)
    log.remove_application(application)
    return seconds, wrong


def _committed(log: Log, application: str, topic: Topic) -> bool:
    progress = log.progress(application, topic.name)
    return progress is not None and progress.committed >= topic.records


def backlog(log: Log, folder: Path, topic: Topic, turns: int, limit_s: float) -> list[Figure]:
    """Catch-up, compared with one worker and with two."""
    found: dict[str, list[Turn]] = {"catch-up": [], "catch-up, two": []}
    for number in range(turns):
        ours_s, wrong = caught_up(log, folder, topic, 0, limit_s)
        for part, processes in (("catch-up", 1), ("catch-up, two", 2)):
            theirs_s, also = caught_up(log, folder, topic, processes, limit_s)
            turn = Turn(ours_s, theirs_s, wrong or also)
            say(f"{part} {number + 1}: {turn.ours_s:.1f} s, compared with {turn.theirs_s:.1f} s {turn.void}")
            found[part].append(turn)
    return [Figure(part, topic.records, some) for part, some in found.items()]


def measured(opened: Opened, options: argparse.Namespace) -> list[Figure]:
    """All parts that are asked for."""
    bench = opened.bench(Variant(keys=options.keys))
    for name in ("logs", "state"):
        (opened.work / name).mkdir(parents=True, exist_ok=True)
    found: list[Figure] = []

    def topic(records: int) -> Topic:
        name = bench.log.load("clicks", records)
        return Topic(bench.log.bootstrap, name, records, options.keys, bench.log.base_ms)

    if parts := [p for p in options.parts if p != "catch-up"]:
        found += in_session(topic(options.records), opened.work / "spark-jobs", parts, options.turns)
    if "catch-up" in options.parts:
        found += backlog(bench.log, opened.work, topic(options.backlog), options.backlog_turns, options.limit)
    rows = [figure.row() for figure in found]
    bench.write("table", {"title": TITLE, "text": TEXT, "head": HEAD, "rows": rows})
    return found


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_jobs", description=TITLE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="of: %(choices)s (default: all)")
    parser.add_argument("--records", type=int, default=RECORDS, help="of the topic (%(default)s)")
    parser.add_argument("--backlog", type=int, default=BACKLOG, help="records to catch up (%(default)s)")
    parser.add_argument("--keys", type=int, default=KEYS, help="different users (%(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="in the session, after one to warm up (%(default)s)")
    parser.add_argument("--backlog-turns", type=int, default=1, help="of the catch-up (%(default)s)")
    parser.add_argument("--work-on", help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if an answer differs."""
    options = arguments(argv)
    if options.work_on:
        spark_work.work_on(json.loads(options.work_on))
        return 0
    with open_bench(options) as opened:
        found = measured(opened, options)
    print(markdown(HEAD, [figure.row() for figure in found]))
    return int(any(figure.void for figure in found))


if __name__ == "__main__":
    sys.exit(main())
