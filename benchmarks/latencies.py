"""``python -m benchmarks.latencies``: p50 and p99 of ``enrich`` against the rate of clicks, for batches of 1 to 10,000
records, for batches that adapt, for peers, and for no system at all: one point per series and rate, each a new application,
and again, ``--tries`` times at most, where the machine's host took the processor away (``calm.py``). A series ends at the
first rate at which clicks come back too late to be counted, or later than ``HOPELESS_MS``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.bench import Bench
from benchmarks.calm import is_calm
from benchmarks.harness import Budget, add_common, open_bench, say
from benchmarks.latency import Load, floor, latency
from benchmarks.report import latency_table
from benchmarks.systems import GUARANTEES, SYSTEMS
from benchmarks.workloads import Variant

RATES = (500, 2_000, 5_000, 10_000, 20_000, 40_000)
HOPELESS_MS = 5_000.0
COMMIT_MS = 100


class Series(NamedTuple):
    """One line of the plot."""

    name: str
    system: str
    environment: dict[str, str]


def _batches(size: int) -> Series:
    return Series(f"batches ≤ {size:,}", "penstock", {"PENSTOCK_BATCH_MAX_RECORDS": str(size)})


NO_SYSTEM = Series("no system", "", {})
SERIES = {
    series.name: series
    for series in (
        NO_SYSTEM,
        *(_batches(size) for size in (1, 10, 100, 1_000, 10_000)),
        Series("adaptive", "penstock", {}),
        Series("adaptive, low latency", "penstock", {"PENSTOCK_LATENCY": "low"}),
        Series("Kafka Streams", "kafka-streams", {}),
        Series("Kafka Streams, linger 5 ms", "kafka-streams", {"KS_EXTRA": "producer.linger.ms=5"}),
        Series("Quix Streams", "quix", {}),
        Series("Spark micro-batch", "spark", {}),
    )
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latencies", description="Latency against rate.")
    parser.add_argument("--series", nargs="+", choices=list(SERIES), metavar="NAME", default=list(SERIES),
                        help="of: %(choices)s (default: all)")  # fmt: skip
    parser.add_argument("--rates", nargs="+", type=int, default=list(RATES), help="clicks a second (%(default)s)")
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=["ALO"])
    parser.add_argument("--keys", type=int, default=Variant.keys, help="rows of the table (default: %(default)s); a worker "
                        "of batches of 1 reads a million in a quarter of an hour")  # fmt: skip
    parser.add_argument("--warm-s", type=float, default=5.0, help="before measuring (default: %(default)s)")
    parser.add_argument("--measured-s", type=float, default=15.0, help="measured (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=2, help="of a point while the host takes (default: %(default)s)")
    parser.add_argument("--budget-min", type=float, default=60.0, help="minutes after which no point is begun")
    add_common(parser)
    return parser.parse_args(argv)


def points(bench: Bench, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every point that the budget allows; rates go up, so that each series has its low ones first."""
    budget = Budget(options.budget_min)
    hopeless: set[tuple[str, str]] = set()
    for rate in sorted(options.rates):
        for guarantee in options.guarantees:
            for series in map(SERIES.__getitem__, options.series):
                place = (series.name, guarantee)
                if place in hopeless or guarantee not in _guarantees(series):
                    continue
                for _ in range(options.tries):
                    what = f"{series.name} {guarantee} at {rate:,}/s"
                    if not budget.allows(what):
                        return
                    say(what)
                    found = _point(bench, series, guarantee, Load(rate, options.warm_s, options.measured_s))
                    say(f"  {_said(found)}")
                    yield found
                    if found["void"] or found["p50_ms"] > HOPELESS_MS:
                        hopeless.add(place)
                        break
                    if is_calm(found):
                        break


def _guarantees(series: Series) -> tuple[str, ...]:
    return tuple(GUARANTEES) if series is NO_SYSTEM else SYSTEMS[series.system].guarantees


def _point(bench: Bench, series: Series, guarantee: str, load: Load) -> dict[str, Any]:
    if series is NO_SYSTEM:
        found = floor(bench, guarantee, load)
    else:
        found = latency(bench, SYSTEMS[series.system], guarantee, load, COMMIT_MS, series.environment)
    return {**found, "series": series.name, "commit_ms": COMMIT_MS, "keys": bench.variant.keys}


def _said(found: dict[str, Any]) -> str:
    if found["void"]:
        return str(found["void"])
    return f"{found['p50_ms']:.1f} / {found['p99_ms']:.1f} ms, {found['stolen_cores']:.2f} cores taken by the host"


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    options = arguments(argv)
    found = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(keys=options.keys))
        for point in points(bench, options):
            bench.write("latencies", point)
            found.append({**point, "system": point["series"]})
    print(latency_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
