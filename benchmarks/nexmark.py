"""Nexmark: ``python -m benchmarks.nexmark``. Each query drains one topic of events on a real worker, or on Flink SQL.

The answer is held against the test driver's on the same records, which the project's tests hold against an oracle of their
own: ``equal`` if the same records were written, ``equal tables`` if the last value of every key is the same (a query that
joins repartitioned streams may write other updates on the way, as their arrival is not the driver's). Query 12 counts by
the clock, so only its sum can be held against anything: the number of bids. Where nothing is expected, as no window of a
query closes within so few events, nothing is proved, and the verdict says so. ``--systems`` names who runs: ``penstock``
writes every update of a result, ``penstock-per-commit`` the last one of each commit, as do Flink's mini-batches; ``flink``
keeps state on its heap, ``flink-rocksdb`` there (``nexmark_flink``).

The driver holds all events and all that is written in memory. For numbers that it cannot hold, ``--held-against flink`` lets
Flink run first, and holds the others against what it wrote.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks import flink_sql
from benchmarks.bench import Bench
from benchmarks.drain import QUIET_S, watch
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import run_worker, start_worker
from benchmarks.nexmark_flink import FLINK_QUERIES, script
from benchmarks.nexmark_generator import records, side_input
from benchmarks.processes import stop
from benchmarks.report import markdown
from benchmarks.steady import Steady, steady
from benchmarks.systems import FLINK, PENSTOCK, System, UnavailableError
from benchmarks.workloads import Variant
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark.suite import QUERIES, UPDATED
from penstock.topologies.graph.topology import Topology

EVENTS = 500_000
"""Fifty seconds of event time: windows of every query close."""
STREAM: dict[str, Any] = {"event_rate": 10_000, "out_of_order_group_size": 1_000}
SIDE_INPUT = "nexmark-side-input"
WINDOW_S = 10.0
"""Of query 12, whose last windows close by the clock."""
TITLE = "Nexmark"
TEXT = """Each query drains one topic of events, at-least-once, from Kafka to Kafka; `penstock` writes every update.
*Partitions / processes*: of every topic, and Penstock's workers, or Flink's parallelism; all on two cores, the broker too.
*whole*: the run was too short for a steady part, so start-up is in the figure. The answer is held against that of
Penstock's own test driver on the same records, of query 12 the sum of its counts against the number of bids. *Nothing
expected*: within so few events no window of the query closes, so the row proves no answer."""
COMPARED = """`penstock-per-commit` writes the last update of each commit; of queries that keep no result up to date it does
what `penstock` does. `flink` is Flink 2.2 SQL: the published queries, mini-batches of 2 s, a checkpoint a second, its state
on the heap or in RocksDB; its updated results are held by the last row of each key. *Taken as right*: there were too many
events for the test driver, so the others' answers are held against this one. With a million events or fewer, Flink still
compiles its code while it is measured: with three million it is up to five times as fast, and with ten million up to a third
faster again. The watermark goes through a
repartition topic in steps of 100 ms of event time, so query 11 has not closed the sessions that end within the last step,
which Flink has. Of ten million events Flink with its state on the heap did not finish queries 7, 9 and 20 within five
minutes, so they have fewer. Flink's planner leaves unused fields out before it keys and joins; in Penstock the program says
so, as query 4 does with `select`. Query 5 keeps the best counts of a window with their ties, where Flink joins the counts
with their highest; query 8 reads persons and auctions as one stream of which each person has a group, instead of a join of
two groups. The two rows of a query were measured one after the other on one machine; of two such machines one may be half
as fast, so only their ratio is to be read."""
SYSTEMS: Mapping[str, System] = {
    system.name: system
    for system in (
        PENSTOCK,
        dataclasses.replace(PENSTOCK, name="penstock-per-commit", environment={"EMISSION": "per_commit"}),
        FLINK,
        dataclasses.replace(FLINK, name="flink-rocksdb", environment={**FLINK.environment, "FLINK_BACKEND": "rocksdb"}),
    )
}

SHAPE = "partitions / processes"
"""The column of what ran."""
NOTHING = "nothing expected: give it more --events"
"""The verdict where the right answer is empty."""
TAKEN = "taken as right"
"""The verdict on the answer that the others are held against."""

Pair = tuple[bytes | None, bytes | None]


class Result(NamedTuple):
    """One query's run. ``steady``: of its steady part; ``verdict``: how the answer compares, or what went wrong;
    ``processes``: Penstock's, or Flink's parallelism."""

    system: str
    query: str
    events: int
    written: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    steady: Steady | None
    verdict: str
    partitions: int = 1
    processes: int = 1

    @property
    def events_per_s(self) -> float:
        """Of the steady part, or of the whole run if it has none; 0 if it did not end."""
        return self.steady.records_per_s if self.steady else self.events / self.seconds if self.seconds else 0.0

    @property
    def cpu_s_per_million(self) -> float:
        """Of the steady part, or of the whole run."""
        return self.steady.cpu_s_per_million if self.steady else self.cpu_s / self.events * 1e6


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
    return said.startswith(("equal", "counts", TAKEN))


def nothing_wrong(said: str) -> bool:
    """Whether the verdict is that of a right answer, or of one that has not written a few last rows yet (``COMPARED``)."""
    return answers(said) or said.startswith("differs: 0 of")


class Standard:
    """What the answers of one query are held against: the test driver's, or that of the first Flink to run."""

    def __init__(self, query: str, events: list[Record], bid_count: int, *, by_flink: bool) -> None:
        self._query = query
        self._bid_count = bid_count
        self._by_flink = by_flink and query in FLINK_QUERIES and query != "q12"
        # By the clock, the driver answers nothing that could be compared.
        self._right = [] if query == "q12" or self._by_flink else expected(query, events)
        self._flinks: Any = None

    def verdict(self, system: System, found: list[Pair]) -> str:
        """How an answer compares."""
        by_flink = system.program == FLINK.program
        if self._query == "q12" or not (by_flink or self._by_flink):
            return verdict(self._query, self._right, found, self._bid_count)
        if not found and not self._right and not self._flinks:
            return NOTHING
        query = FLINK_QUERIES[self._query]
        answer = flink_sql.of_flinks(query, found) if by_flink else flink_sql.of_ours(query, found)
        if not self._by_flink:
            return flink_sql.verdict(query, flink_sql.of_ours(query, self._right), answer)
        if self._flinks is not None:
            pair = (self._flinks, answer) if by_flink else (answer, self._flinks)
            return flink_sql.verdict(query, *pair)
        if not by_flink:
            return "Flink has written no answer yet to compare it with"
        self._flinks = answer
        return TAKEN


def load(bench: Bench, events: Iterable[Record]) -> int:
    """Write the topics that the queries read. Returns how many of the events are bids."""
    counted = Bids(events)
    for topic, rows in (("nexmark", counted), (SIDE_INPUT, side_input())):
        bench.log.create(topic)
        bench.log.write(topic, ((r.key, r.value, r.timestamp_ms) for r in rows))
    return counted.count


class Bids:
    """Events as they come. ``count``: how many of those that came so far are bids."""

    def __init__(self, events: Iterable[Record]) -> None:
        self.count = 0
        self._events = events

    def __iter__(self) -> Iterator[Record]:
        for event in self._events:
            self.count += b'"bid":{' in (event.value or b"")
            yield event


def topology(query: str) -> Topology:
    """The query's topology, with the emission that the environment names."""
    emission = os.environ.get("EMISSION")
    return QUERIES[query](emission=emission) if emission and query in UPDATED else QUERIES[query]()


def start(bench: Bench, system: System, query: str, application: str) -> subprocess.Popen[bytes]:
    """Start the system's program. Raises ``UnavailableError``."""
    if system.program == PENSTOCK.program:
        return start_worker(bench, "benchmarks.nexmark", ["--worker", query], application, "ALO", system.environment)
    return flink_sql.start(bench, system, application, script(query, bench.log.bootstrap, application))


def run(bench: Bench, system: System, query: str, count: int, standard: Standard) -> Result:
    """Run a query to the end of its input, that many events."""
    for topic in (query, f"{query}-success"):
        bench.log.create(topic)
    application = bench.new_application(system, query)
    shape = (bench.log.variant.partitions, bench.threads)
    none = Result(system.name, query, count, 0, 0.0, 0.0, 0, None, "", *shape)
    quiet_s = QUIET_S + (WINDOW_S if query == "q12" else 0)
    made = run_to_end(bench, none, lambda: start(bench, system, query, application), application, ["nexmark"], quiet_s)
    if made.verdict:
        return made
    found = list(bench.log.read(query))
    said = standard.verdict(system, found)
    bench.clean(application)
    return made._replace(written=len(found), verdict=said)


def run_to_end(
    bench: Bench,
    none: Result,
    start: Callable[[], subprocess.Popen[bytes]],
    application: str,
    topics: Collection[str],
    quiet_s: float,
) -> Result:
    """Run a program until it has committed the ``none.events`` records of the topics. Returns ``none`` with the figures; if
    the program did not get there, with the reason as its verdict, and the application is removed."""
    try:
        process = start()
    except UnavailableError as error:
        return none._replace(verdict=str(error))
    began_s = time.monotonic()
    try:
        samples, done = watch(bench, process, application, topics, none.events, "ALO", quiet_s)
    finally:
        stop(process)
    peak = max((s.resident_bytes for s in samples), default=0)
    if done is None:
        bench.clean(application)
        return none._replace(peak_bytes=peak, verdict=f"not done, see logs/{application}.log")
    part = steady(samples, none.events)
    kept = part if isinstance(part, Steady) else None
    return none._replace(seconds=done.at_s - began_s, cpu_s=done.cpu_s, peak_bytes=peak, steady=kept)


def table(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    rows = []
    for r in results:
        whole = "" if r.steady else " (whole)"
        rate = f"{r.events_per_s:,.0f}{whole}" if r.steady or r.seconds else "-"
        cost = f"{r.cpu_s_per_million:.1f}{whole}"
        said = NOTHING if r.verdict == "equal" and not r.written else r.verdict
        rows.append(
            [
                r.query,
                r.system,
                f"{r.partitions} / {r.processes}",
                f"{r.events:,}",
                f"{r.written:,}",
                rate,
                cost,
                f"{r.peak_bytes / 1e6:.0f}",
                said,
            ]
        )
    head = ["query", "system", SHAPE, "events", "written", "events/s", "CPU s/M", "peak MB", "check"]
    return head, rows


def about(systems: Iterable[str]) -> str:
    """What the report says before the table of these systems' results."""
    return TEXT if set(systems) <= {PENSTOCK.name} else f"{TEXT}\n{COMPARED}"


def brought(lines: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The table of results read back from a file."""
    last = last_results(lines)
    return table(sorted(last.values(), key=lambda r: (list(QUERIES).index(r.query), r.partitions)))


def last_results(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, int, int], Result]:
    """The last result of each query, system, and numbers of partitions and processes. Lines that name no system are
    Penstock's."""
    last: dict[tuple[str, str, int, int], Result] = {}
    for line in lines:
        facts = {name: line[name] for name in Result._fields if name in line} | {
            "system": line.get("system", PENSTOCK.name)
        }
        result = Result(**{**facts, "steady": Steady(**line["steady"]) if line["steady"] else None})
        last[result.query, result.system, result.partitions, result.processes] = result
    return last


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark",
        description="Nexmark's queries on a worker, one after the other. With --queries q1 q3 "
        "--events 40000, about 15 s a query; windows of q7, q8 and q11 close within the default number only.",
    )
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="qN")
    parser.add_argument(
        "--systems", nargs="+", choices=list(SYSTEMS), default=[PENSTOCK.name], metavar="NAME", help=", ".join(SYSTEMS)
    )
    parser.add_argument("--events", type=int, default=EVENTS, help="that each query drains (%(default)s)")
    parser.add_argument(
        "--held-against",
        choices=("driver", FLINK.name),
        default="driver",
        help="whose answers count as right (%(default)s); flink: for more events than the test driver can hold",
    )
    parser.add_argument("--partitions", type=int, default=1, help="of every topic (%(default)s)")
    parser.add_argument("--worker", choices=list(QUERIES), help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the queries; 1 if an answer differs or nothing was expected."""
    options = arguments(argv)
    if options.worker:
        run_worker(topology(options.worker))
        return 0
    results: list[Result] = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(partitions=options.partitions))
        by_flink = options.held_against == FLINK.name
        generated = records(options.events, **STREAM)
        driven = not by_flink or not set(options.queries) <= set(FLINK_QUERIES)
        events = list(generated) if driven else []  # more may not fit into memory
        bid_count = load(bench, events or generated)
        for query in options.queries:
            standard = Standard(query, events, bid_count, by_flink=by_flink)
            for name in sorted(options.systems, key=lambda name: not name.startswith(options.held_against)):
                if name.startswith(FLINK.name) and query not in FLINK_QUERIES:
                    say(f"{query} {name}: it has no such query")
                    continue
                results.append(run(bench, SYSTEMS[name], query, options.events, standard))
                part = results[-1].steady
                bench.write("nexmark", results[-1]._asdict() | {"steady": part._asdict() if part else None})
                say(f"{query} {name}: {results[-1].verdict}")
        head, rows = table(results)
        bench.write("table", {"title": TITLE, "text": about(r.system for r in results), "head": head, "rows": rows})
    print(markdown(head, rows))
    return int(not all(answers(r.verdict) for r in results))


if __name__ == "__main__":
    sys.exit(main())
