"""Where the CPU of each Nexmark query goes: ``python -m benchmarks.nexmark_profile``.

Each query runs on the test driver, in columns as from a native reader, with a commit every few thousand events: first
plain, which gives its cost, then under a profiler, which gives the shares. The two runs must write the same. What the
driver itself does is in neither. A profiler makes small calls look dearer than they are: compare shares of one query before
and after a change, not of one room with another.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.harness import say
from benchmarks.nexmark import SIDE_INPUT, STREAM
from benchmarks.nexmark_generator import records, side_input
from benchmarks.report import markdown
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.nexmark.suite import QUERIES

EVENTS = 20_000
COMMIT_EVENTS = 5_000
DRIVER = "driver"
ROOMS = {
    "streams/testing": DRIVER,
    "streams/": "engine",
    "topologies/graph": "engine",
    "state/serdes": "serdes",
    "topologies/columnar": "serdes",
    "state/": "state",
    "topologies/expressions": "expressions",
    "<expression>": "expressions",
    "topologies/aggregators": "aggregates",
    "topologies/examples": "functions",
    "topologies/": "operators",
}
"""By the part of a file's path, the first that fits: what its time is counted as. What is called out of C, and other
packages, count for whoever calls them."""
ASKED_BY_DRIVER = frozenset({"causes", "locate"})
"""Functions of the engine that here only the driver calls, for every record that is written. What they call is the
driver's, too."""
_DEPTH = 20
"""How many calls up callers are looked for."""
SHOWN = ("serdes", "operators", "expressions", "aggregates", "state", "engine", "functions")

Function = tuple[str, int, str]
Pairs = list[tuple[bytes | None, bytes | None]]


class Profile(NamedTuple):
    """One query. ``us``: CPU-microseconds per event; ``shares``: of the profiled time by room, which add up to 1."""

    query: str
    written: int
    us: float
    shares: dict[str, float]
    equal: bool


def room_of(function: Function) -> str | None:
    """The room of a function; ``None``: its caller's."""
    if function[2] in ASKED_BY_DRIVER:
        return DRIVER
    path = function[0].rpartition("/penstock/")[2] if "/penstock/" in function[0] else function[0]
    return next((room for part, room in ROOMS.items() if path.startswith(part)), None)


def asked_by_driver(stats: Mapping[Function, Any]) -> dict[Function, float]:
    """The part of each function's own time that it spends for the driver's questions."""
    parts = {function: float(function[2] in ASKED_BY_DRIVER) for function in stats}
    for _ in range(_DEPTH):
        for function, row in stats.items():
            whole = sum(caller[2] for caller in row[4].values())
            if function[2] not in ASKED_BY_DRIVER and whole:
                parts[function] = sum(row[4][c][2] * parts.get(c, 0.0) for c in row[4]) / whole
    return parts


def seconds_by_room(stats: Mapping[Function, Any]) -> dict[str, float]:
    """Own seconds of functions by room. Those without one are given to their callers, in proportion, a few calls up."""
    left = {function: float(row[2]) for function, row in stats.items()}
    asked = asked_by_driver(stats)
    found: dict[str, float] = defaultdict(float)
    for _ in range(_DEPTH):
        passed: dict[Function, float] = defaultdict(float)
        for function, seconds in left.items():
            room, callers = room_of(function), stats[function][4]
            if room is not None or not callers:
                if asked[function]:
                    found[DRIVER] += seconds * asked[function]
                found[room or DRIVER] += seconds * (1 - asked[function])
                continue
            whole = sum(row[3] for row in callers.values())
            for caller, row in callers.items():
                passed[caller] += seconds * (row[3] / whole if whole else 1 / len(callers))
        left = passed
    return found


def run(query: str, events: list[Record], profile: cProfile.Profile | None = None) -> tuple[Pairs, float]:
    """What a query writes, and the CPU-seconds of the run."""
    with TopologyTestDriver(QUERIES[query](), columns=True, auto_commit=False) as driver:
        if query == "q13":
            driver.pipe_raw({SIDE_INPUT: list(side_input())})
        began = time.process_time()
        if profile is not None:
            profile.enable()
        for start in range(0, len(events), COMMIT_EVENTS):
            driver.pipe_raw({"nexmark": events[start : start + COMMIT_EVENTS]})
            driver.commit()
        if profile is not None:
            profile.disable()
        seconds = time.process_time() - began
        return [(r.key, r.value) for r in driver.read_raw(query)], seconds


def profiled(query: str, events: list[Record]) -> Profile:
    """Run the query plain and profiled."""
    plain, seconds = run(query, events)
    profile = cProfile.Profile(time.process_time)
    again, _ = run(query, events, profile)
    rooms = seconds_by_room(pstats.Stats(profile).stats)  # type: ignore[attr-defined]  # what the stubs leave out
    whole, ours = sum(rooms.values()), sum(s for room, s in rooms.items() if room != DRIVER)
    shares = {room: rooms.get(room, 0.0) / ours for room in SHOWN}
    return Profile(query, len(plain), seconds / len(events) * 1e6 * ours / whole, shares, plain == again)


def table(found: Iterable[Profile]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    rows = [
        [
            p.query,
            f"{p.written:,}",
            f"{p.us:.1f}",
            *(f"{p.shares[room]:.0%}" for room in SHOWN),
            "equal" if p.equal else "the two runs differ",
        ]
        for p in found
    ]
    return ["query", "written", "CPU µs per event", *SHOWN, "check"], rows


def main(argv: list[str] | None = None) -> int:
    """Profile the queries; 1 if two runs of one differ."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nexmark_profile", description="Where Nexmark's CPU goes."
    )
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), metavar="qN")
    parser.add_argument("--events", type=int, default=EVENTS, help="per query (%(default)s)")
    options = parser.parse_args(argv)
    events = list(records(options.events, **STREAM))
    found = []
    for query in options.queries:
        found.append(profiled(query, events))
        say(f"{query}: {found[-1].us:.1f} µs per event")
    print(markdown(*table(found)))
    return int(not all(p.equal for p in found))


if __name__ == "__main__":
    sys.exit(main())
