"""``python -m benchmarks``: run the workloads on Penstock and its peers by turns, print the tables.

Progress goes to standard error, the tables to standard output, every run as a line of JSON to the results file.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.drain import drain_pair, summary
from benchmarks.latency import latency
from benchmarks.restore import restore_pair
from benchmarks.systems import GUARANTEES, PEERS, ROOT, SYSTEMS, WORKLOADS, System
from benchmarks.topics import Log

EXTRA_WORKLOADS = ("restore", "latency")
RESTORE_SIZES = (500_000, 2_000_000)
RESTORING = ("penstock", "kafka-streams")
LATENCY_RATE_PER_S = 5_000


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Penstock beside its peers on one Kafka.")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS, *EXTRA_WORKLOADS], metavar="NAME",
                        default=[*WORKLOADS, *EXTRA_WORKLOADS], help="of: %(choices)s (default: all)")  # fmt: skip
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", default=list(SYSTEMS),
                        help="of: %(choices)s (default: all)")  # fmt: skip
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=list(GUARANTEES))
    parser.add_argument("--repetitions", type=int, default=2, help="pairs per row; systems take turns (default: 2)")
    parser.add_argument("--sizes", type=int, nargs=2, metavar=("SMALL", "LARGE"),
                        help="records of both runs of a pair, instead of each system's own")  # fmt: skip
    parser.add_argument("--threads", type=int, default=1, help="Kafka Streams threads, Penstock processes (default: 1)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run is given up")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for every program's environment")
    parser.add_argument("--peers-dir", type=Path, default=PEERS, help="where the peers' programs are")
    parser.add_argument(
        "--bootstrap", help="a running broker on this machine, instead of one started for the benchmark"
    )
    parser.add_argument("--broker-pid", type=int, help="that broker's process, so that its CPU is counted")
    parser.add_argument("--work", type=Path, default=ROOT / "var" / "benchmarks", help="scratch folder (%(default)s)")
    return parser.parse_args(argv)


@contextlib.contextmanager
def broker(options: argparse.Namespace) -> Iterator[tuple[str, int | None]]:
    """Address and process of the broker."""
    if options.bootstrap:
        yield options.bootstrap, options.broker_pid
        return
    from penstock.streams.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(heap="768m") as kafka:
        yield kafka.bootstrap_servers, kafka.pid(0)


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def drains(bench: Bench, systems: list[System], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every drain of the plan; within a workload the systems take turns, so that noise falls on all alike."""
    results = []
    for workload in (name for name in WORKLOADS if name in options.workloads):
        for guarantee in options.guarantees:
            for repetition in range(options.repetitions):
                for system in systems:
                    if workload not in system.sizes or guarantee not in system.guarantees:
                        continue
                    say(f"{workload} {guarantee} {system.name} {repetition + 1} of {options.repetitions}")
                    sizes = tuple(options.sizes) if options.sizes else system.sizes[workload]
                    result = summary(drain_pair(bench, system, workload, guarantee, sizes))
                    bench.write("pair", {**result, "threads": bench.threads, "set": bench.extra})
                    say(f"  {result['void'] or format(result['records_per_s'], ',.0f') + ' records/s'}")
                    results.append(result)
    return results


def extras(bench: Bench, systems: list[System], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Restores and latencies."""
    for guarantee in options.guarantees:
        for system in (system for system in systems if system.name in RESTORING):
            if "restore" in options.workloads:
                say(f"restore {guarantee} {system.name}")
                yield "restore", restore_pair(bench, system, guarantee, options.sizes or RESTORE_SIZES)
            if "latency" in options.workloads:
                say(f"latency {guarantee} {system.name}")
                yield "latency", latency(bench, system, guarantee, LATENCY_RATE_PER_S)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; 1 if any of Penstock's results is void."""
    options = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds, so that programs are stopped
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results_path = work / f"results-{time.strftime('%Y-%m-%d-%H%M%S')}.jsonl"
    found: dict[str, list[dict[str, Any]]] = {"drain": [], "restore": [], "latency": []}
    with broker(options) as (bootstrap, pid):
        bench = Bench(
            Log(bootstrap, work), pid, work, options.peers_dir.resolve(), results_path, options.threads, options.limit,
            dict(setting.split("=", 1) for setting in options.set),
        )  # fmt: skip
        systems = [SYSTEMS[name] for name in options.systems]
        found["drain"] = drains(bench, systems, options)
        for kind, result in extras(bench, systems, options):
            bench.write(kind, result)
            found[kind].append(result)
    tables = {"drain": report.drain_table, "restore": report.restore_table, "latency": report.latency_table}
    for kind, results in found.items():
        if results:
            print(f"{kind.capitalize()}\n\n{tables[kind](results)}\n")
    say(f"every run: {results_path}")
    return int(
        any(result["void"] for results in found.values() for result in results if result["system"] == "penstock")
    )


if __name__ == "__main__":
    sys.exit(main())
