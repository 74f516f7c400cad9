"""``python -m benchmarks``: run the workloads on Penstock and its peers by turns, print the tables.

Progress goes to standard error, the tables to standard output, every run as a line of JSON to the results file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.ceiling import Ceilings
from benchmarks.drain import drain, summary
from benchmarks.harness import add_common, open_bench, say
from benchmarks.latency import Load, latency
from benchmarks.restore import RESTORE_SIZES, restore_pair
from benchmarks.systems import DEFAULT_SYSTEMS, GUARANTEES, SYSTEMS, System
from benchmarks.workloads import WORKLOADS, Variant

EXTRA_WORKLOADS = ("restore", "latency")
RESTORING = ("penstock", "kafka-streams")
LATENT = ("penstock", "kafka-streams", "kafka-streams-tuned", "quix")
LATENCY_RATE_PER_S = 5_000


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Penstock beside its peers on one Kafka.")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS, *EXTRA_WORKLOADS], metavar="NAME",
                        default=[*WORKLOADS, *EXTRA_WORKLOADS], help="of: %(choices)s (default: all)")  # fmt: skip
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", default=list(DEFAULT_SYSTEMS),
                        help=f"of: %(choices)s (default: {' '.join(DEFAULT_SYSTEMS)})")  # fmt: skip
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=list(GUARANTEES))
    parser.add_argument("--repetitions", type=int, default=3, help="runs per row; systems take turns (default: 3)")
    parser.add_argument("--records", type=int, help="records of a run, instead of the workload's own")
    parser.add_argument("--part", type=float, default=1.0, help="of the workload's own records (default: 1)")
    parser.add_argument("--keys", type=int, default=Variant.keys, help="users of clicks (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=Variant.partitions, help="of every topic (%(default)s)")
    parser.add_argument("--window-ms", type=int, default=Variant.window_ms, help="windows of ysb (%(default)s)")
    add_common(parser)
    return parser.parse_args(argv)


def drains(
    bench: Bench, systems: list[System], options: argparse.Namespace, ceilings: Ceilings | None
) -> list[dict[str, Any]]:
    """Every drain of the plan; within a workload the systems take turns, so that noise falls on all alike."""
    results: list[dict[str, Any]] = []
    for workload in (name for name in WORKLOADS if name in options.workloads):
        for guarantee in options.guarantees:
            for repetition in range(options.repetitions):
                # Turns the other way round in every second repetition: what drifts falls on all alike.
                for system in systems[:: -1 if repetition % 2 else 1]:
                    own = WORKLOADS[workload].records.get(system.program)
                    if own is None or guarantee not in system.guarantees:
                        continue
                    say(f"{workload} {guarantee} {system.name} {repetition + 1} of {options.repetitions}")
                    run = drain(bench, system, workload, guarantee, options.records or int(own * options.part))
                    result = {**summary(bench, run), "repetition": repetition}
                    result["ceiling"] = ceilings.of(WORKLOADS[workload], result) if ceilings else None
                    bench.write("drain", result)
                    say(f"  {result['void'] or report.one_line(result)}")
                    results.append(result)
    return results


def extras(
    bench: Bench, systems: list[System], options: argparse.Namespace, ceilings: Ceilings | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Restores and latencies."""
    for guarantee in options.guarantees:
        for system in (system for system in systems if guarantee in system.guarantees):
            if "restore" in options.workloads and system.name in RESTORING:
                say(f"restore {guarantee} {system.name}")
                restored = restore_pair(bench, system, guarantee, RESTORE_SIZES)
                yield "restore", {**restored, "ceiling": ceilings.of_restore() if ceilings else None}
            if "latency" in options.workloads and system.name in LATENT:
                say(f"latency {guarantee} {system.name}")
                yield "latency", latency(bench, system, guarantee, Load(LATENCY_RATE_PER_S))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; 1 if any of Penstock's results is void."""
    options = arguments(argv)
    found: dict[str, list[dict[str, Any]]] = {"drain": [], "restore": [], "latency": []}
    with open_bench(options) as opened:
        bench = opened.bench(Variant(options.keys, options.partitions, options.window_ms))
        systems = [SYSTEMS[name] for name in options.systems]
        ceilings = Ceilings.read(bench.work)
        if ceilings is None:
            say("no shares of ceilings: make roofline has not run on this kind of machine")
        found["drain"] = drains(bench, systems, options, ceilings)
        for kind, result in extras(bench, systems, options, ceilings):
            bench.write(kind, result)
            found[kind].append(result)
    tables = {"drain": report.drain_table, "restore": report.restore_table, "latency": report.latency_table}
    for kind, results in found.items():
        if results:
            print(f"{kind.capitalize()}\n\n{tables[kind](results)}\n")
    return int(
        any(result["void"] for results in found.values() for result in results if result["system"] == "penstock")
    )


if __name__ == "__main__":
    sys.exit(main())
