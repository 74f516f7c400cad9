"""Nexmark on Penstock: ``python -m benchmarks.nexmark``. Each query drains one topic of events on a real worker.

The answer is held against the test driver's on the same records, which the project's tests hold against an oracle of their
own: ``equal`` if the same records were written, ``equal tables`` if the last value of every key is the same (a query that
joins repartitioned streams may write other updates on the way, as their arrival is not the driver's). Query 12 counts by
the clock, so only its sum can be held against anything: the number of bids. Where nothing is expected, as no window of a
query closes within so few events, nothing is proved, and the verdict says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.bench import Bench
from benchmarks.drain import QUIET_S, watch
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import run_worker, start_worker
from benchmarks.nexmark_generator import records, side_input
from benchmarks.processes import stop
from benchmarks.report import markdown
from benchmarks.steady import Steady, steady
from benchmarks.systems import PENSTOCK
from benchmarks.workloads import Variant
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark.suite import QUERIES

EVENTS = 500_000
"""Fifty seconds of event time: windows of every query close."""
STREAM: dict[str, Any] = {"event_rate": 10_000, "out_of_order_group_size": 1_000}
SIDE_INPUT = "nexmark-side-input"
WINDOW_S = 10.0
"""Of query 12, whose last windows close by the clock."""
TITLE = "Nexmark"
TEXT = """Each query drains one partition of events, at-least-once; every update is written. *whole*: the run was too short
for a steady part, so start-up is in the figure. The answer is held against that of Penstock's own test driver on the same
records, of query 12 the sum of its counts against the number of bids. *Nothing expected*: within so few events no window of
the query closes, so the row proves no answer."""

NOTHING = "nothing expected: give it more --events"
"""The verdict where the right answer is empty."""

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


def expected(query: str, events: list[Record]) -> list[Pair]:
    """What the test driver writes."""
    with TopologyTestDriver(QUERIES[query]()) as driver:
        if query == "q13":
            driver.pipe_raw({SIDE_INPUT: list(side_input())})
        driver.pipe_raw({"nexmark": events})
        return [(r.key, r.value) for r in driver.read_raw(query)]


def verdict(query: str, right: list[Pair], found: list[Pair], bids: int) -> str:
    """How two answers compare; ``answers`` says whether they do. ``bids``: of the events, what query 12 must count."""
    if query == "q12":
        counted = sum(json.loads(v).get("bid_count", 0) for _, v in found if v)
        return f"counts by the clock: {counted:,} bids" if counted == bids else f"counted {counted:,} of {bids:,} bids"
    if not right and not found:
        return NOTHING
    if Counter(right) == Counter(found):
        return "equal"
    if dict(right) == dict(found) and None not in dict(right):
        return "equal tables"
    return f"differs: {len(found):,} records instead of {len(right):,}"


def answers(said: str) -> bool:
    """Whether the verdict is that of a right answer."""
    return said.startswith(("equal", "counts"))


def load(bench: Bench, events: list[Record]) -> None:
    """Write the topics that the queries read."""
    for topic, rows in (("nexmark", events), (SIDE_INPUT, side_input())):
        bench.log.create(topic)
        bench.log.write(topic, ((r.key, r.value, r.timestamp_ms) for r in rows))


def bids(events: list[Record]) -> int:
    """How many of the events are bids."""
    return sum("bid" in json.loads(record.value or b"{}") for record in events)


def run(bench: Bench, query: str, events: list[Record], bid_count: int) -> Result:
    """Run a query to the end of its input."""
    for topic in (query, f"{query}-success"):
        bench.log.create(topic)
    application, count = bench.new_application(PENSTOCK, query), len(events)
    process = start_worker(bench, "benchmarks.nexmark", ["--worker", query], application, "ALO", {})
    quiet_s = QUIET_S + (WINDOW_S if query == "q12" else 0)
    began_s = time.monotonic()
    try:
        samples, done = watch(bench, process, application, "nexmark", count, "ALO", quiet_s)
    finally:
        stop(process)
    peak = max((s.resident_bytes for s in samples), default=0)
    if done is None:
        return Result(query, count, 0, 0.0, 0.0, peak, None, f"not done, see logs/{application}.log")
    found = list(bench.log.read(query))
    part = steady(samples, count)
    # By the clock, the driver answers nothing that could be compared.
    right = [] if query == "q12" else expected(query, events)
    said = verdict(query, right, found, bid_count)
    bench.clean(application)
    whole_s = done.at_s - began_s
    return Result(query, count, len(found), whole_s, done.cpu_s, peak, part if isinstance(part, Steady) else None, said)


def table(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    rows = []
    for r in results:
        part = r.steady
        rate = f"{part.records_per_s:,.0f}" if part else f"{r.events / r.seconds:,.0f} (whole)" if r.seconds else "-"
        cost = f"{part.cpu_s_per_million:.1f}" if part else f"{r.cpu_s / r.events * 1e6:.1f} (whole)"
        said = NOTHING if r.verdict == "equal" and not r.written else r.verdict
        rows.append([r.query, f"{r.events:,}", f"{r.written:,}", rate, cost, f"{r.peak_bytes / 1e6:.0f}", said])
    return ["query", "events", "written", "events/s", "CPU s/M", "peak MB", "check"], rows


def brought(lines: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The table of results read back from a file; of one query the last counts."""
    last: dict[str, Result] = {}
    for line in lines:
        facts = {name: line[name] for name in Result._fields}
        last[line["query"]] = Result(**{**facts, "steady": Steady(**line["steady"]) if line["steady"] else None})
    return table(last.values())


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description="Nexmark's queries on a worker, one after the other. With --queries q1 q3 "
        "--events 40000, about 15 s a query; windows of q7, q8 and q11 close within the default number only.",
    )
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="qN")
    parser.add_argument("--events", type=int, default=EVENTS, help="that each query drains (%(default)s)")
    parser.add_argument("--worker", choices=list(QUERIES), help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the queries; 1 if an answer differs or nothing was expected."""
    options = arguments(argv)
    if options.worker:
        run_worker(QUERIES[options.worker]())
        return 0
    results: list[Result] = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(partitions=1))
        events = list(records(options.events, **STREAM))
        load(bench, events)
        bid_count = bids(events)
        for query in options.queries:
            results.append(run(bench, query, events, bid_count))
            part = results[-1].steady
            bench.write("nexmark", results[-1]._asdict() | {"steady": part._asdict() if part else None})
            say(f"{query}: {results[-1].verdict}")
        head, rows = table(results)
        bench.write("table", {"title": TITLE, "text": TEXT, "head": head, "rows": rows})
    print(markdown(head, rows))
    return int(not all(answers(r.verdict) for r in results))


if __name__ == "__main__":
    sys.exit(main())
